"""A backward pass on a device: tensors uploaded, up to three kernels launched, the gradients read back.

Q, K, V, O and their gradients lie as [token, head, dim], with as many heads of dK and dV as Q has; LSE and D as [batch,
head, token] (batch mode) or [head, token] (group mode), the accumulators of dQ as [split] of float32 dQs. An
elementwise bias and its gradient lie as [head, token, key], the tokens and the longest length of all sequences; ALiBi's
slopes as [head], or [batch, head] if each sequence has its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ckpm.attention.launch.backward.harness import BwdArguments
from ckpm.attention.launch.c_abi import Launch, Library, Status
from ckpm.attention.launch.encodings import bits_type
from ckpm.attention.launch.fwd_features import random_values
from ckpm.attention.launch.fwd_launching import checked, inputs, uploaded
from ckpm.attention.launch.hip_api import HipApi
from ckpm.base.errors import ProblemError
from ckpm.kernels.families.backward.problems import BackwardRequest
from ckpm.matrix.problems.problem import Problem

SPLIT_KEYS = 16  # of a split of dQ's accumulators: no tile has fewer keys
_MASKS = {"no": 0, "top_left": 1, "bottom_right": 2, "window": 3}
_BIASES = {"no": 0, "bias": 1, "alibi": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class BwdOutcome:
    """Gradients as bits of the problem's type, of each head of Q: ``dq`` [token of Q, head, hdim_q], ``dk`` and ``dv``
    [token of K, head, dim], ``dbias`` [head, token, key], None if it isn't asked for; ``d`` [head, token] in float32.

    ``random_values`` of each sequence are [head, query, key], None if they aren't stored. Empty after a refusal.
    """

    launch: Launch
    dq: NDArray[Any]
    dk: NDArray[Any]
    dv: NDArray[Any]
    d: NDArray[np.float32]
    dbias: NDArray[Any] | None = None
    random_values: tuple[NDArray[Any], ...] | None = None


def fields(request: BackwardRequest) -> dict[str, int | float | str]:
    """Sizes, strides (in elements) and switches of a launch.

    Raises:
        ProblemError: in batch mode its sequences have several lengths.
    """
    p, batch = request.problem, request.problem.mode == "batch"
    if batch and (len({*p.seqlens_q}) > 1 or len({*p.seqlens_k}) > 1):
        raise ProblemError(f"{p.name}: in batch mode all sequences have one length.")
    longest_q, longest_k = max(p.seqlens_q), max(p.seqlens_k)
    rows = longest_q if batch else sum(p.seqlens_q)  # of a head
    values: dict[str, int | float | str] = {
        "data_type": p.dtype, "batch": p.batch, "seqlen_q": longest_q, "seqlen_k": longest_k,
        "max_seqlen_q": longest_q, "max_seqlen_k": longest_k, "hdim_q": p.hdim_q, "hdim_v": p.hdim_v,
        "nhead_q": p.nhead_q, "nhead_k": p.nhead_k, "scale": p.softmax_scale,
        "mask_type": _MASKS[p.mask], "window_left": p.window_left, "window_right": p.window_right,
        "bias_type": _BIASES[p.bias], "is_group_mode": int(not batch), "has_dbias": int(request.dbias),
        "is_deterministic": int(request.deterministic),
        "nhead_stride_lsed": rows, "batch_stride_lsed": p.nhead_q * rows if batch else 0,
    }  # fmt: skip
    for name, heads, hdim, length in (
        ("q", p.nhead_q, p.hdim_q, longest_q),
        ("k", p.nhead_k, p.hdim_q, longest_k),
        ("v", p.nhead_k, p.hdim_v, longest_k),
        ("o", p.nhead_q, p.hdim_v, longest_q),
        ("dout", p.nhead_q, p.hdim_v, longest_q),
        ("dq", p.nhead_q, p.hdim_q, longest_q),
        ("dq_acc", p.nhead_q, p.hdim_q, longest_q),
        ("dk", p.nhead_q, p.hdim_q, longest_k),
        ("dv", p.nhead_q, p.hdim_v, longest_k),
    ):
        values |= {f"stride_{name}": heads * hdim, f"nhead_stride_{name}": hdim}
        values[f"batch_stride_{name}"] = length * heads * hdim if batch else 0
    if request.deterministic:
        values["split_stride_dq_acc"] = sum(p.seqlens_q) * p.nhead_q * p.hdim_q
    return values | _score_fields(request, rows)


def _score_fields(request: BackwardRequest, rows: int) -> dict[str, int | float | str]:
    """What belongs to bias, its gradient and dropout, of which there is a number for each score."""
    p, batch, keys = request.problem, request.problem.mode == "batch", max(request.problem.seqlens_k)
    values: dict[str, int | float | str] = {}
    if p.bias == "alibi":
        values["stride_bias"] = p.nhead_q if p.alibi_per_batch else 0
    elif p.bias == "bias":
        for name in ("bias", "dbias") if request.dbias else ("bias",):
            values |= {f"stride_{name}": keys, f"nhead_stride_{name}": sum(p.seqlens_q) * keys}
            values[f"batch_stride_{name}"] = rows * keys if batch else 0
    if p.p_drop:
        values |= {"has_dropout": 1, "p_drop": p.p_drop, "dropout_seed": p.seed, "dropout_offset": p.dropout_offset}
        if p.store_randval:
            values |= {"store_randval": 1, "stride_randval": keys, "nhead_stride_randval": rows * keys}
            values["batch_stride_randval"] = p.nhead_q * rows * keys if batch else 0
    return values


def laid_out(request: BackwardRequest, tensors: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """The arrays of a launch, by their field of ckpm_bwd_problem, zeros where kernels add or leave numbers out.

    ``tensors``: bits of q, k, v, o, dout as [token, head, dim], sequences one after another; ``lse`` [head, token];
    ``bias`` if the problem has one.

    Raises:
        ProblemError: a tensor has another size or type than the problem says.
    """
    p, kind = request.problem, np.dtype(bits_type(request.problem.dtype))
    tokens, longest = sum(p.seqlens_q), max(p.seqlens_k)
    wanted = inputs(p) | {
        "o": ((tokens, p.nhead_q, p.hdim_v), kind),
        "dout": ((tokens, p.nhead_q, p.hdim_v), kind),
        "lse": ((p.nhead_q, tokens), np.dtype(np.float32)),
    }
    arrays = checked(p, wanted, tensors)
    if p.mode == "batch":
        by_sequence = tensors["lse"].reshape(p.nhead_q, p.batch, -1).transpose(1, 0, 2)
        arrays["lse"] = np.ascontiguousarray(by_sequence)
    else:
        arrays["seqstart_q"] = np.cumsum((0, *p.seqlens_q), dtype=np.int32)
        arrays["seqstart_k"] = np.cumsum((0, *p.seqlens_k), dtype=np.int32)
    splits = -(-longest // SPLIT_KEYS) if request.deterministic else 1
    arrays["dq_acc"] = np.zeros((splits, tokens, p.nhead_q, p.hdim_q), np.float32)
    if request.dbias:
        arrays["dbias"] = np.zeros((p.nhead_q, tokens, longest), kind)
    return arrays


def run_backward(
    hip: HipApi, library: Library, request: BackwardRequest, tensors: Mapping[str, NDArray[Any]]
) -> BwdOutcome:
    """Launch what dispatch chooses. ``tensors``: see :func:`laid_out`.

    Raises:
        ProblemError: see :func:`fields` and :func:`laid_out`.
        HipError: memory ran out, or the device faulted.
    """
    p, numbers, given = request.problem, fields(request), laid_out(request, tensors)
    kind = np.dtype(bits_type(p.dtype))
    tokens, keys = sum(p.seqlens_q), sum(p.seqlens_k)
    shapes = {
        "dq": (tokens, p.nhead_q, p.hdim_q),
        "dk": (keys, p.nhead_q, p.hdim_q),
        "dv": (keys, p.nhead_q, p.hdim_v),
    }
    sizes = {name: int(np.prod(shape)) * kind.itemsize for name, shape in shapes.items()}
    sizes["d"] = tokens * p.nhead_q * 4
    if "store_randval" in numbers:
        sizes["rand_val"] = tokens * p.nhead_q * max(p.seqlens_k)
    with uploaded(hip, given, sizes) as memory:
        launch = library.launch(BwdArguments(**numbers, **{name: part.address for name, part in memory.items()}))
        if launch.status != Status.OK:
            nothing = np.empty(0, kind)
            return BwdOutcome(launch=launch, dq=nothing, dk=nothing, dv=nothing, d=np.empty(0, np.float32))
        hip.synchronize()
        gradients = {name: hip.read(memory[name], kind, shape) for name, shape in shapes.items()}
        d = hip.read(memory["d"]).view(np.float32)
        dbias = hip.read(memory["dbias"], kind, given["dbias"].shape) if request.dbias else None
        drawn = random_values(p, hip.read(memory["rand_val"])) if "rand_val" in memory else None
    by_head = _by_head(p, d)
    return BwdOutcome(launch=launch, **gradients, d=by_head, dbias=dbias, random_values=drawn)


def _by_head(p: Problem, rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Numbers of rows of Q as [head, token], whichever the mode."""
    if p.mode == "batch":
        rows = rows.reshape(p.batch, p.nhead_q, -1).transpose(1, 0, 2)
    return rows.reshape(p.nhead_q, -1)
