"""A case with a known defect still fails when it shows anything beside that defect: a second one is planted here.

A fake kernel computes what the reference computes of numbers that are read as the defect reads them. The suites compare
the prediction with real kernels: a case of the ledger fails if it shows anything else.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from ckpm.attention.launch import launching
from ckpm.attention.launch.buffers import POISON, Prepared
from ckpm.attention.launch.c_abi import Launch
from ckpm.attention.launch.device import Fault
from ckpm.attention.launch.encodings import encode
from ckpm.attention.launch.launching import LaunchOutcome
from ckpm.attention.reference import exact
from ckpm.kernels.abi import Status
from ckpm.matrix.dialects import dialect
from ckpm.matrix.keys import Key
from ckpm.matrix.problems.case import SuiteCase
from ckpm.matrix.problems.ledger import LEDGER, SIGNATURES, Ledger, LedgerEntry, read_ledger
from ckpm.matrix.problems.serving import serves
from ckpm.matrix.problems.tables import find
from ckpm.matrix.selection import Selection, select
from ckpm.suites.checks import Result, run_case
from ckpm.suites.signatures import FAULTS, PREDICTIONS, Reading, compute_outputs
from ckpm.suites.suites import Case, judge, with_signatures
from tests.unit.attention.fakes import make_case
from tests.unit.enumerated import keys_of
from tests.unit.suites.test_lacking_kernels import bench

KEYS = tuple(select(dialect("ck-2025-11"), Selection(archs=("gfx950",), tier="smoke")))
Outputs = dict[str, np.ndarray]


make = functools.partial(make_case, name="batch-prefill/x.y", suite="batch-prefill", table_end="zeros")


def run(
    monkeypatch: pytest.MonkeyPatch,
    problem: SuiteCase,
    kernel: Callable[[Prepared], Outputs | Fault],
    *signatures: str,
    dispatch: Sequence[Key] | None = None,
    variants: Sequence[Mapping[str, Any]] = ({},),
) -> Result:
    """The case on a device whose kernel is a function: to O in float64, or to a fault; a buffer has 4096 bytes.

    The library chooses the first kernel in the order of ``dispatch`` that serves the case.
    """

    def launch(device: Any, library: Any, prepared: Prepared, named: str | None = None) -> LaunchOutcome:
        p = prepared.problem
        name = next(key.name for key in dispatch or KEYS if serves(key, p))
        result = kernel(prepared)
        addresses = {buffer: 4096 * (index + 1) for index, buffer in enumerate(prepared.buffers)}
        outputs: Outputs = {}
        if isinstance(result, dict):
            rows = np.full((sum(p.seqlens_q), p.nhead_q, int(prepared.fields["nhead_stride_o"])), 0xFFFF, np.uint16)
            rows[..., : p.hdim_v] = encode(result["o"], p.dtype, "gfx950")
            outputs["o"] = rows.reshape(-1).view(np.uint8)
            if "gap" in result:
                outputs["o"][-1] = POISON ^ 1
        return LaunchOutcome(
            prepared=prepared,
            launch=Launch(status=Status.OK, message="", kernels=(name,), milliseconds=0),
            fault=result if isinstance(result, Fault) else None,
            seconds=0.0,
            outputs=outputs,
            addresses=addresses,
        )

    monkeypatch.setattr(launching, "run_problem", launch)
    return run_case(bench(KEYS), problem, variants, signatures)


def read_with(**switches: bool) -> Callable[[Prepared], Outputs]:
    """A kernel with a defect of reading."""

    def kernel(prepared: Prepared) -> Outputs:
        computed = compute_outputs(prepared, 64, 128, Reading(**switches))
        assert computed is not None
        return {"o": np.where(computed.o_nan, np.nan, computed.expected.o)}

    return kernel


def right(prepared: Prepared) -> Outputs:
    return {"o": exact(prepared.inputs).o}


def spoil_outputs(
    kernel: Callable[[Prepared], Outputs], spoil: Callable[[Outputs], None]
) -> Callable[[Prepared], Outputs]:
    def other(prepared: Prepared) -> Outputs:
        outputs = kernel(prepared)
        spoil(outputs)
        return outputs

    return other


# ---- a second defect

SHORT = make(
    seqlens_q=(70,), seqlens_k=(150,), hdim_q=64, hdim_v=64, mask="bottom_right", window_right=0, nhead_q=2,
    checks=("reference", "nan_canary", "output_gaps"), seed=5, page_order="identity",
)  # fmt: skip
OTHERWISE = "it failed otherwise than by its numbers"
LATE = make(seqlens_q=(70,), seqlens_k=(600,), mask="bottom_right", window_left=31, window_right=0, seed=6)


@pytest.mark.parametrize(
    ("problem", "switch", "signature"),
    [(SHORT, "whole_rows", "whole_rows_are_read"), (LATE, "first_pages", "windows_start_at_the_first_page")],
)
def test_defect_alone_is_known_and_second_defect_is_found(
    monkeypatch: pytest.MonkeyPatch, problem: SuiteCase, switch: str, signature: str
) -> None:
    kernel = read_with(**{switch: True})
    alone = run(monkeypatch, problem, kernel, signature)
    assert (alone.outcome, alone.signature) == ("wrong", "")

    def row(outputs: Outputs) -> None:
        sound = int(np.flatnonzero(~np.isnan(outputs["o"]).any(axis=(1, 2)))[0])
        outputs["o"][sound, 0, 3] += 0.5

    assert "O 1 of" in (run(monkeypatch, problem, spoil_outputs(kernel, row), signature).signature or "")
    no_rows = run(monkeypatch, problem, spoil_outputs(kernel, lambda outputs: outputs["o"].fill(0)), signature)
    assert no_rows.signature not in ("", None)
    all_nan = run(monkeypatch, problem, spoil_outputs(kernel, lambda outputs: outputs["o"].fill(np.nan)), signature)
    assert "are NaN and should not be, or the reverse" in (all_nan.signature or "")
    assert run(monkeypatch, problem, right, signature).outcome == "passed"


def test_wrong_choice_of_dispatch_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = read_with(whole_rows=True)
    result = run(monkeypatch, SHORT, kernel, "whole_rows_are_read", dispatch=KEYS[::-1])
    assert result.message.startswith("dispatch chose a tile of ")
    assert result.signature == OTHERWISE


def test_race_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both launches are right within the tolerances. The defect of the signature has no effect on this case."""
    problem, steps = dataclasses.replace(SHORT, hdim_q=128, hdim_v=128), iter((1.0, 1.001))

    def kernel(prepared: Prepared) -> Outputs:
        return {"o": right(prepared)["o"] * next(steps)}

    result = run(monkeypatch, problem, kernel, "whole_rows_are_read", variants=({}, {}))
    assert result.message == "O differs between two orders of the same waves: a race"
    assert result.signature == OTHERWISE


def test_store_between_rows_is_seen_beside_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = spoil_outputs(read_with(whole_rows=True), lambda outputs: outputs.update(gap=np.ones(1)))
    result = run(monkeypatch, SHORT, kernel, "whole_rows_are_read")
    assert result.signature == "1 elements between the rows of O were written"


EXACT = make(seqlens_q=(5,), seqlens_k=(20,), table_end="exact", checks=("reference", "nan_canary"), seed=8)


def past_the_table(step: int, access: str = "load") -> Callable[[Prepared], Fault]:
    """A fault ``step`` bytes after the page table's 80."""

    def kernel(prepared: Prepared) -> Fault:
        base = 4096 * (1 + list(prepared.buffers).index("kv_page_indices"))
        fields = {"access": access, "address": base + 80 + step, "bytes": 4, "kind": "memory", "text": "global_load"}
        return Fault(kind="memory", message="a load outside", error=700, fields=fields)

    return kernel


@pytest.mark.parametrize(
    ("faulting", "padded", "why"),
    [
        (past_the_table(0), right, ""),
        (past_the_table(4096), right, "the access is not a load within"),
        (past_the_table(0, "store"), right, "the access is not a load within"),
        (past_the_table(0), spoil_outputs(right, lambda outputs: outputs["o"].fill(0)), "without it: wrong: O "),
    ],
)
def test_fault_is_known_if_case_is_right_without_it(
    monkeypatch: pytest.MonkeyPatch, faulting: Any, padded: Any, why: str
) -> None:
    def kernel(prepared: Prepared) -> Any:
        return (faulting if prepared.problem.table_end == "exact" else padded)(prepared)

    result = run(monkeypatch, EXACT, kernel, "table_is_read_past_its_end")
    assert result.outcome == "fault"
    assert result.signature == why if not why else (result.signature or "").startswith(why)


def test_result_without_fault_has_its_own_signature(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = dataclasses.replace(SHORT, table_end="exact")

    def kernel(prepared: Prepared) -> Any:
        exact = prepared.problem.table_end == "exact"
        return past_the_table(540)(prepared) if exact else read_with(whole_rows=True)(prepared)

    both = ("table_is_read_past_its_end", "whole_rows_are_read")
    assert run(monkeypatch, problem, kernel, *both).signature == ""
    assert (run(monkeypatch, problem, kernel, both[0]).signature or "").startswith("without it: wrong")


HEADS = dataclasses.replace(find("page-fault/paged_heads.linear"), seqlens_q=(5,))


@pytest.mark.parametrize(
    ("kind", "pool", "step", "why"),
    [
        ("srd_range", "k", 0, ""),
        ("srd_range", "v", 255, ""),
        ("srd_range", "k", 256, "no range of a buffer resource ends after a pool"),
        ("memory", "k", 0, "no range of a buffer resource ends after a pool"),
    ],
)
def test_range_past_pool_ends_before_offset_of_last_head(
    monkeypatch: pytest.MonkeyPatch, kind: str, pool: str, step: int, why: str
) -> None:
    def kernel(prepared: Prepared) -> Any:
        if prepared.problem.page_order == "identity":
            return right(prepared)
        end = 4096 * (1 + list(prepared.buffers).index(pool)) + prepared.buffers[pool].size
        fields = {"access": "load", "address": end + step, "bytes": 1, "kind": kind, "text": "buffer_load"}
        return Fault(kind=kind, message="a range", error=700, fields=fields)

    newest = tuple(key for key in keys_of("rocm-libraries-2026", "batch_prefill") if serves(key, HEADS))
    monkeypatch.setattr(sys.modules[__name__], "KEYS", newest)
    result = run(monkeypatch, HEADS, kernel, "num_records_reach_behind_the_pool")
    assert result.outcome == "fault"
    assert result.signature == why if not why else (result.signature or "").startswith(why)


# ---- the ledger


def test_ledger_s_signatures_are_those_that_can_be_looked_at() -> None:
    of_kernels = {"waves_race_in_lds", "dq_and_dk_alone_are_wrong", "empty_sequences_alone_are_wrong"}
    assert sorted(SIGNATURES) == sorted({*PREDICTIONS, *FAULTS, *of_kernels})
    for entry in read_ledger(LEDGER).entries:
        if entry.problems[0].startswith("kernels/"):  # test_kernel_signatures.py
            if entry.name == "rows-over-4-gb":
                continue  # it is for calls: no case has such rows
            assert len(entry.signatures) == 1
            assert entry.signatures[0] in of_kernels
            continue
        assert all(name in (FAULTS if entry.outcomes == ("fault",) else PREDICTIONS) for name in entry.signatures[:1])


def test_case_that_shows_something_else_fails_as_itself() -> None:
    entry = LedgerEntry(
        name="known", location="ledger.yaml:3", problems=("batch-prefill/*",), upstreams=("*",), archs=("*",),
        outcomes=("wrong",), signatures=("whole_rows_are_read",), reason="r", link="", expires=datetime.date.max,
    )  # fmt: skip
    (case,) = with_signatures(
        [Case(problem=find("batch-prefill/head_dims.d64-full"))],
        Ledger(file=LEDGER, entries=(entry,)),
        "aiter",
        "gfx950",
    )
    assert case.signatures == ("whole_rows_are_read",)
    book = Ledger(file=LEDGER, entries=(entry,))
    for signature, kind in (("", "known"), (None, "known"), ("1 of 4 are NaN", "failed")):
        reply = {"outcome": "wrong", "message": "O differs", "signature": signature}
        judged = judge(case, reply, book, "aiter", "gfx950")
        assert judged.verdict.kind == kind
    assert judged.verdict.text == "wrong, but not as known (ledger.yaml:3: whole_rows_are_read): 1 of 4 are NaN"
    other = Ledger(file=LEDGER, entries=(dataclasses.replace(entry, signatures=()),))
    reply = {"outcome": "wrong", "message": "O differs", "signature": "of an entry about waited loads alone"}
    assert judge(case, reply, other, "aiter", "gfx950").verdict.kind == "known"
