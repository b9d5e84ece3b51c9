"""One backward pass: random Q, K, V and dO, O and LSE of the float64 reference, and the gradients compared with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ckpm.attention.backward.reference import Backward, comparisons, exact_gradients
from ckpm.attention.launch.backward_launching import BwdOutcome, run_backward
from ckpm.attention.launch.c_abi import Library
from ckpm.attention.launch.device import Device
from ckpm.attention.launch.encodings import decode, encode
from ckpm.attention.reference import Bytes, exact
from ckpm.attention.tolerances import Comparison
from ckpm.kernels.abi import Status
from ckpm.matrix.problems.case import SuiteCase
from ckpm.suites import fwd_cases
from ckpm.suites.checks import foreign_random_values, uneven_dropout
from ckpm.suites.fwd_cases import Ended
from ckpm.suites.philox import drawn

Bits = NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Given:
    """Inputs of a pass: ``tensors`` as bits for the kernels, ``backward`` the same numbers for the reference.

    ``random_values`` are dropout's, of each sequence [head, query, key], as the forward pass drew them.
    """

    tensors: Mapping[str, Bits]
    backward: Backward
    random_values: tuple[Bytes, ...] | None


def given(p: SuiteCase, arch: str = "gfx950") -> Given:
    """Random numbers, and what a forward pass makes of them, stored as it stores them."""
    bits = fwd_cases.tensors(p, arch)
    inputs = fwd_cases.inputs(p, bits, arch)
    random_values = tuple(drawn(p)) if p.p_drop else None
    forward = exact(inputs, random_values)
    shape = sum(p.seqlens_q), p.nhead_q, p.hdim_v
    numbers = np.random.default_rng([*p.seqlens_k, *p.seqlens_q]).uniform(-1, 1, shape)
    bits |= {
        "o": encode(forward.o, p.dtype, arch),
        "dout": encode(numbers, p.dtype, arch),
        "lse": forward.lse.astype(np.float32),
    }
    backward = Backward(
        inputs=inputs,
        o=decode(bits["o"], p.dtype, arch),
        dout=decode(bits["dout"], p.dtype, arch),
        lse=bits["lse"].astype(np.float64),
    )
    return Given(tensors=bits, backward=backward, random_values=random_values)


def compare_gradients(data: Given, outcome: BwdOutcome, arch: str = "gfx950") -> tuple[Comparison, ...]:
    """D and every gradient against the float64 reference."""
    dtype = data.backward.inputs.problem.dtype
    got = {name: decode(getattr(outcome, name), dtype, arch) for name in ("dq", "dk", "dv")}
    got["d"] = outcome.d.astype(np.float64)
    if outcome.dbias is not None:
        got["dbias"] = decode(outcome.dbias, dtype, arch)
    return comparisons(exact_gradients(data.backward, data.random_values), got)


def run_case(case: SuiteCase, device: Device, library: Library) -> Ended:
    """Launch what dispatch chooses and compare. Raises ProblemError, HipError.

    Outputs that must not depend on the order of waves leave out dQ if workgroups add to it in any order.
    """
    arch = device.arch
    data = given(case, arch)
    outcome = run_backward(device, library, case, data.tensors)
    if outcome.fault or outcome.launch.status != Status.OK:
        return Ended(launch=outcome.launch, fault=outcome.fault)
    found = compare_gradients(data, outcome, arch)
    stored = outcome.random_values
    dropped = [] if stored is None else uneven_dropout(case, stored)
    foreign = [] if stored is None else foreign_random_values(case, stored)
    outputs = [outcome.dk, outcome.dv, outcome.d.view(np.uint32)]
    outputs += [outcome.dq] if case.deterministic else []
    outputs += [] if outcome.dbias is None else [outcome.dbias]
    return Ended(
        launch=outcome.launch,
        outputs=tuple(outputs),
        lines=tuple(map(str, found)),
        wrong=(*(str(one) for one in found if not one.passed), *dropped, *foreign),
        tolerance_used=max(one.worst for one in found),
    )
