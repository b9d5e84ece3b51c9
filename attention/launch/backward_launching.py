"""A backward pass of a case on a device: tensors uploaded, the plan launched, the gradients read back.

Q, K, V, O and their gradients lie as [token, head, dim], with as many heads of dK and dV as Q has. LSE and D of a case
are [head, token], an elementwise bias and its gradient [head, token, key], the keys of the longest sequence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ckpm.attention.launch.c_abi import Launch, Library
from ckpm.attention.launch.device import Device, Fault
from ckpm.attention.launch.encodings import bits_type
from ckpm.attention.launch.fwd_launching import by_head, by_sequence, check_tensors, inputs, pose, random_values
from ckpm.attention.launch.launching import host_buffers, launch_plan
from ckpm.attention.launch.plan import Plan
from ckpm.matrix.problems.case import SuiteCase

Bits = NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class BwdOutcome:
    """Gradients as bits of the problem's type, of each head of Q: ``dq`` [token of Q, head, hdim_q], ``dk`` and ``dv``
    [token of K, head, dim], ``dbias`` [head, token, key], None if it isn't asked for; ``d`` [head, token] in float32.

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

    Raises:
        ProblemError: a tensor has another size or type than the problem.
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
    """Launch what dispatch chooses. ``tensors``: see :func:`laid_out`.

    Raises:
        ProblemError: see :func:`laid_out` and :func:`fwd_launching.pose`. HipError: memory ran out.
    """
    p = pose(case, library.family, device.arch)
    plan, given = Plan(p, device, library), laid_out(p, tensors)
    sizes = {name: size for name, size in plan.outputs.items() if name not in given}
    sizes["d"] = plan.workspaces["d"]  # compared, too
    ended = launch_plan(plan, host_buffers(given, sizes), None, (*plan.outputs, "d"))
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
