"""One backward pass: random Q, K, V and dO, O and LSE of the float64 reference, and the gradients compared with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ckpm.attention.backward.reference import BackwardInputs, comparisons, exact_gradients
from ckpm.attention.launch.c_abi import Launch, Library
from ckpm.attention.launch.device import Device, Fault
from ckpm.attention.launch.encodings import bits_type, decode, encode
from ckpm.attention.launch.fwd_launching import by_head, by_sequence, check_tensors, inputs, pose, random_values
from ckpm.attention.launch.launching import host_buffers, launch_plan
from ckpm.attention.launch.plan import LaunchPlan
from ckpm.attention.philox import drawn
from ckpm.attention.reference import Bytes, exact
from ckpm.attention.tolerances import ArrayComparison
from ckpm.kernels.abi import Status
from ckpm.matrix.problems.case import SuiteCase
from ckpm.suites import fwd_cases
from ckpm.suites.checks import foreign_random_values
from ckpm.suites.fwd_cases import Ended

Bits = NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Given:
    """Inputs of a pass: ``tensors`` as bits for the kernels, ``backward`` the same numbers for the reference.

    ``random_values`` are dropout's, of each sequence [head, query, key], as the forward pass drew them.
    """

    tensors: Mapping[str, Bits]
    backward: BackwardInputs
    random_values: tuple[Bytes, ...] | None


def given(p: SuiteCase, arch: str = "gfx950") -> Given:
    """Random inputs, and the outputs that a forward pass stores for them."""
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
    backward = BackwardInputs(
        inputs=inputs,
        o=decode(bits["o"], p.dtype, arch),
        dout=decode(bits["dout"], p.dtype, arch),
        lse=bits["lse"].astype(np.float64),
    )
    return Given(tensors=bits, backward=backward, random_values=random_values)


def compare_gradients(data: Given, outcome: BwdOutcome, arch: str = "gfx950") -> tuple[ArrayComparison, ...]:
    """D and every gradient against the float64 reference."""
    return comparisons(exact_gradients(data.backward, data.random_values), _numbers(data, outcome, arch))


def _numbers(data: Given, outcome: BwdOutcome, arch: str) -> dict[str, NDArray[np.float64]]:
    """D and every gradient by name."""
    dtype = data.backward.inputs.problem.dtype
    numbers = {name: decode(getattr(outcome, name), dtype, arch) for name in ("dq", "dk", "dv")}
    numbers["d"] = outcome.d.astype(np.float64)
    if outcome.dbias is not None:
        numbers["dbias"] = decode(outcome.dbias, dtype, arch)
    return numbers


def shown_signatures(data: Given, outcome: BwdOutcome, arch: str = "gfx950") -> frozenset[str]:
    """The ledger's signatures that gradients show of which some are wrong.

    ``empty_sequences_alone_are_wrong``: all is right but dK and dV of sequences without queries, and dQ of sequences
    without keys. ``dq_and_dk_alone_are_wrong``: in the other sequences dQ is wrong, dK may be, the rest is right.
    """
    p, numbers = data.backward.inputs.problem, _numbers(data, outcome, arch)
    without_keys = np.repeat(np.array(p.seqlens_k) == 0, p.seqlens_q)
    without_queries = np.repeat(np.array(p.seqlens_q) == 0, p.seqlens_k)
    for name, rows in (("dq", without_keys), ("dk", without_queries), ("dv", without_queries)):
        numbers[name] = np.where(rows[:, None, None], 0.0, numbers[name])
    compared = comparisons(exact_gradients(data.backward, data.random_values), numbers)
    wrong = {comparison.name for comparison in compared if not comparison.passed}
    if not wrong:
        return frozenset(("empty_sequences_alone_are_wrong",))
    return frozenset(("dq_and_dk_alone_are_wrong",) if "dq" in wrong <= {"dq", "dk"} else ())


def run_case(case: SuiteCase, device: Device, library: Library) -> Ended:
    """Launch the kernels that dispatch chooses, and compare. Raises HipError.

    The outputs leave out dQ if workgroups add to it in any order: its bits then depend on the order of waves.
    """
    arch = device.arch
    data = given(case, arch)
    outcome = run_backward(device, library, case, data.tensors)
    if outcome.fault or outcome.launch.status != Status.OK:
        return Ended(launch=outcome.launch, fault=outcome.fault)
    compared = compare_gradients(data, outcome, arch)
    stored = outcome.random_values
    foreign = [] if stored is None else foreign_random_values(case, stored)
    outputs = [outcome.dk, outcome.dv, outcome.d.view(np.uint32)]
    outputs += [outcome.dq] if case.deterministic else []
    outputs += [] if outcome.dbias is None else [outcome.dbias]
    wrong = (*(str(comparison) for comparison in compared if not comparison.passed), *foreign)
    return Ended(
        launch=outcome.launch,
        outputs=tuple(outputs),
        lines=tuple(map(str, compared)),
        wrong=wrong,
        tolerance_used=max(comparison.worst for comparison in compared),
        shows=shown_signatures(data, outcome, arch) if wrong and not foreign else frozenset(),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BwdOutcome:
    """Gradients as bits of the problem's type, of each head of Q: ``dq`` [token of Q, head, hdim_q], ``dk`` and ``dv``
    [token of K, head, dim], ``dbias`` [head, token, key], None if there is none; ``d`` [head, token] in float32.

    ``random_values`` of each sequence are [head, query, key], None if they aren't stored. Empty after a refusal.
    """

    launch: Launch
    fault: Fault | None = None
    dq: Bits
    dk: Bits
    dv: Bits
    d: NDArray[np.float32]
    dbias: Bits | None = None
    random_values: tuple[Bits, ...] | None = None


def laid_out(case: SuiteCase, tensors: Mapping[str, Bits]) -> dict[str, Bits]:
    """The arrays of a launch, by their field of ckpm_bwd_problem.

    ``tensors``: bits of q, k, v, o, dout as [token, head, dim], sequences one after another; ``lse`` [head, token];
    ``bias`` if the problem has one.
    """
    p, kind = case, np.dtype(bits_type(case.dtype))
    wanted = inputs(p) | {
        "o": ((p.rows_q, p.nhead_q, p.hdim_v), kind),
        "dout": ((p.rows_q, p.nhead_q, p.hdim_v), kind),
        "lse": ((p.nhead_q, p.rows_q), np.dtype(np.float32)),
    }
    arrays = check_tensors(p, wanted, tensors)
    if p.mode == "group":
        arrays["seqstart_q"] = np.cumsum((0, *p.seqlens_q), dtype=np.int32)
        arrays["seqstart_k"] = np.cumsum((0, *p.seqlens_k), dtype=np.int32)
    if p.dbias:  # hidden scores are not written
        arrays["dbias"] = by_sequence(p, np.zeros((p.nhead_q, p.rows_q, p.seqlen_k), kind))
    return arrays


def run_backward(device: Device, library: Library, case: SuiteCase, tensors: Mapping[str, Bits]) -> BwdOutcome:
    """Launch the kernels that dispatch chooses. ``tensors``: see :func:`laid_out`."""
    p = pose(case, library.family, device.arch)
    plan, arrays = LaunchPlan(p, device, library), laid_out(p, tensors)
    sizes = {name: size for name, size in plan.outputs.items() if name not in arrays}
    sizes["d"] = plan.workspaces["d"]  # compared, too
    ended = launch_plan(plan, host_buffers(arrays, sizes), None, (*plan.outputs, "d"))
    kind = np.dtype(bits_type(p.dtype))
    if not ended.ran:
        none = np.empty(0, kind)
        return BwdOutcome(launch=ended.launch, fault=ended.fault, dq=none, dk=none, dv=none, d=np.empty(0, np.float32))
    read = ended.outputs
    shapes = {"dq": (p.rows_q, p.hdim_q), "dk": (p.rows_k, p.hdim_q), "dv": (p.rows_k, p.hdim_v)}
    gradients = {name: read[name].view(kind).reshape(rows, p.nhead_q, hdim) for name, (rows, hdim) in shapes.items()}
    return BwdOutcome(
        launch=ended.launch,
        **gradients,
        d=by_head(p, read["d"].view(np.float32))[..., 0],
        dbias=by_head(p, read["dbias"].view(kind)) if p.dbias else None,
        random_values=random_values(p, read["rand_val"]) if "rand_val" in read else None,
    )
