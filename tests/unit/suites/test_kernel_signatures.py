"""Known defects of kernels of the suite `kernels`: a failure is known only if it shows the signature of its entry."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from unittest import mock

import numpy as np
import pytest

from ckpm.attention.backward.reference import exact_gradients
from ckpm.attention.launch.c_abi import Launch
from ckpm.attention.launch.encodings import encode
from ckpm.kernels.abi import Status
from ckpm.matrix.keys import Key
from ckpm.suites import kernel_cases
from ckpm.suites.backward_cases import BwdOutcome, given, shown_signatures
from ckpm.suites.checks import CaseBench, EndError
from ckpm.suites.fwd_cases import Ended
from tests.unit.attention.fakes import make_case
from tests.unit.enumerated import keys_of

DQ_AND_DK, EMPTY = "dq_and_dk_alone_are_wrong", "empty_sequences_alone_are_wrong"
LAUNCH = Launch(status=Status.OK, message="", milliseconds=0.0, kernels=())
# the first sequence has no queries, the second no keys
CASE = make_case(
    name="kernels/x", suite="kernels", tier="full", mode="group", dtype="bf16", seed=3,
    seqlens_q=(0, 3, 5), seqlens_k=(4, 0, 7), nhead_q=2, nhead_k=1, hdim_q=8, hdim_v=16,
)  # fmt: skip
FULL_ROWS = {"dq": slice(3, None), "dk": slice(4, None), "dv": slice(4, None)}
EMPTY_ROWS = {"dq": slice(0, 3), "dk": slice(0, 4), "dv": slice(0, 4)}


@pytest.mark.parametrize(
    ("wrong_rows", "shown"),
    [
        ({"dk": EMPTY_ROWS["dk"], "dv": EMPTY_ROWS["dv"]}, EMPTY),
        (EMPTY_ROWS, EMPTY),
        ({"dq": FULL_ROWS["dq"]}, DQ_AND_DK),
        ({"dq": FULL_ROWS["dq"], "dk": FULL_ROWS["dk"]}, DQ_AND_DK),
        # both defects
        ({"dq": slice(None), "dk": slice(None), "dv": EMPTY_ROWS["dv"]}, DQ_AND_DK),
        # other defects
        ({"dk": FULL_ROWS["dk"]}, ""),
        ({"dv": FULL_ROWS["dv"]}, ""),
        ({"dk": slice(3, 5)}, ""),
        ({"dq": FULL_ROWS["dq"], "dv": FULL_ROWS["dv"]}, ""),
        ({"d": slice(None), "dq": slice(None)}, ""),
    ],
)
def test_wrong_gradients_show_signature_of_their_rows(wrong_rows: Mapping[str, slice], shown: str) -> None:
    data = given(CASE)
    gradients = dict(exact_gradients(data.backward).values)
    for name, rows in wrong_rows.items():
        gradients[name][rows] += 1
    dq, dk, dv = (encode(gradients[name], CASE.dtype, "gfx950") for name in ("dq", "dk", "dv"))
    outcome = BwdOutcome(launch=LAUNCH, dq=dq, dk=dk, dv=dv, d=gradients["d"].astype(np.float32))
    assert shown_signatures(data, outcome) == ({shown} if shown else set())


class PlainDevice:
    """A device without options."""

    def restart_addresses(self) -> None:
        pass

    reset_executed = restart_addresses

    def executed_ranges(self) -> dict[str, Any]:
        return {}

    def has(self, feature: str) -> bool:
        return False


def fail(outcome: str, fault: Mapping[str, Any], shows: frozenset[str]) -> Callable[..., Any]:
    def run(bench: CaseBench, key: Key, record: Any) -> tuple[str, str]:
        if outcome == "wrong":
            kernel_cases._examine(Ended(launch=LAUNCH, wrong=("dq differs",), shows=shows), record)
        raise EndError(outcome, "text", fault)

    return run


RACE = {"kind": "race", "access": "store", "text": "ds_write_b64 v1, v[2:3]"}


@pytest.mark.parametrize(
    ("signature", "outcome", "fault", "shows", "difference"),
    [
        ("waves_race_in_lds", "fault", RACE, (), ""),
        ("waves_race_in_lds", "fault", {**RACE, "kind": "memory"}, (), "it does not show waves_race_in_lds"),
        ("waves_race_in_lds", "fault", {**RACE, "kind": "lds"}, (), "it does not show waves_race_in_lds"),
        ("waves_race_in_lds", "fault", {"kind": "hip"}, (), None),
        (DQ_AND_DK, "wrong", {}, (DQ_AND_DK,), ""),
        (DQ_AND_DK, "wrong", {}, (EMPTY,), f"it does not show {DQ_AND_DK}"),
        (EMPTY, "infrastructure", {}, (), None),
    ],
)
def test_kernel_failure_without_signature_has_difference(
    signature: str, outcome: str, fault: Mapping[str, Any], shows: tuple[str, ...], difference: str | None
) -> None:
    key = keys_of("ck-2025-11", "bwd_dq_dk_dv")[0]
    bench = CaseBench(device=PlainDevice(), library=mock.Mock(), keys=(key,))  # type: ignore[arg-type]
    with mock.patch.object(kernel_cases, "_run_scenarios", fail(outcome, fault, frozenset(shows))):
        result = kernel_cases.run_kernel(bench, key.name, (signature,))
    assert (result.outcome, result.signature) == (outcome, difference)
