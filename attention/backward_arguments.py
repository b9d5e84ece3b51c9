"""A backward problem as fields of ckpm_bwd_problem (kernels/include_bwd/ckpm_bwd.h), its pointers and workspaces.

dO lies as O does, dQ as a contiguous Q; dK and dV have as many heads as Q, of which those of one KV head belong
together. LSE and D are [batch, head, query] (group mode: [head, token]); a bias and its gradient [batch, head, query,
key] (group mode: [head, token, key]).
"""

from __future__ import annotations

from collections.abc import Mapping

from ckpm.attention.launch.backward.launching import SPLIT_KEYS
from ckpm.attention.launch.harness import Bias, Mask
from ckpm.attention.problems.problem import Problem

Fields = dict[str, int | float | str]

_MASKS = {"no": Mask.NONE, "top_left": Mask.TOP_LEFT, "bottom_right": Mask.BOTTOM_RIGHT, "window": Mask.WINDOW}
_BIASES = {"no": Bias.NONE, "bias": Bias.ELEMENTWISE, "alibi": Bias.ALIBI}


def extents(problem: Problem) -> Mapping[str, tuple[int, int, int]]:
    """Heads, elements of a head and rows of a sequence (group mode: of all) of what has no strides of its own."""
    p = problem
    (_, hdim_q, rows_q), (_, _, rows_k) = p.extent("q"), p.extent("k")
    return {
        "dout": (p.nhead_q, p.hdim_v, rows_q),
        "dq": (p.nhead_q, hdim_q, rows_q),
        "dq_acc": (p.nhead_q, hdim_q, rows_q),
        "dk": (p.nhead_q, hdim_q, rows_k),
        "dv": (p.nhead_q, p.hdim_v, rows_k),
    }


def backward_fields(problem: Problem) -> Fields:
    """Sizes, strides and switches of a launch."""
    p, batch = problem, problem.mode == "batch"
    rows = p.seqlen_q if batch else p.rows_q
    fields: Fields = {
        "data_type": p.dtype, "batch": p.batch, "seqlen_q": p.seqlen_q, "seqlen_k": p.seqlen_k,
        "max_seqlen_q": p.seqlen_q, "max_seqlen_k": p.seqlen_k, "hdim_q": p.hdim_q, "hdim_v": p.hdim_v,
        "nhead_q": p.nhead_q, "nhead_k": p.nhead_k, "scale": p.softmax_scale, "mask_type": int(_MASKS[p.mask]),
        "window_left": p.window_left, "window_right": p.window_right, "bias_type": int(_BIASES[p.bias]),
        "is_group_mode": int(not batch), "has_dbias": int(p.dbias), "is_deterministic": int(p.deterministic),
        "nhead_stride_lsed": rows, "batch_stride_lsed": p.nhead_q * rows if batch else 0,
    }  # fmt: skip
    strides = {tensor: p.stride(tensor) for tensor in ("q", "k", "v", "o")}
    strides |= {tensor: p.contiguous(*extent) for tensor, extent in extents(p).items()}
    for tensor, one in strides.items():
        fields |= {
            f"stride_{tensor}": one.row,
            f"nhead_stride_{tensor}": one.nhead,
            f"batch_stride_{tensor}": one.batch,
        }
    if p.bias == "alibi":
        fields["stride_bias"] = p.nhead_q if p.alibi_per_batch else 0
    for name, wanted in (("bias", p.bias == "bias"), ("dbias", p.dbias), ("randval", p.store_randval)):
        if wanted:
            fields |= {f"stride_{name}": p.seqlen_k, f"nhead_stride_{name}": rows * p.seqlen_k}
            fields[f"batch_stride_{name}"] = p.nhead_q * rows * p.seqlen_k if batch else 0
    if p.deterministic:
        fields["split_stride_dq_acc"] = p.rows_q * p.nhead_q * p.hdim_q
    if p.p_drop:
        fields |= {"has_dropout": 1, "p_drop": p.p_drop, "store_randval": int(p.store_randval)}
        fields |= {"dropout_seed": p.dropout_seed, "dropout_offset": p.dropout_offset}
    return fields


def backward_workspaces(problem: Problem) -> Mapping[str, int]:
    """Bytes between the stages: D, and dQ in float32, once or for each split of the keys if it is deterministic."""
    p = problem
    splits = -(-p.seqlen_k // SPLIT_KEYS) if p.deterministic else 1
    return {"d": p.rows_q * p.nhead_q * 4, "dq_acc": splits * p.rows_q * p.nhead_q * p.hdim_q * 4}


def backward_outputs(problem: Problem) -> Mapping[str, int]:
    """Bytes of dQ, dK and dV, of the bias's gradient and of dropout's bytes, by their pointer."""
    p = problem
    sizes = {
        "dq": p.rows_q * p.nhead_q * p.hdim_q * p.element_bytes,
        "dk": p.rows_k * p.nhead_q * p.hdim_q * p.element_bytes,
        "dv": p.rows_k * p.nhead_q * p.hdim_v * p.element_bytes,
    }
    scores = p.rows_q * p.nhead_q * p.seqlen_k
    if p.dbias:
        sizes["dbias"] = scores * p.element_bytes
    if p.store_randval:
        sizes["rand_val"] = scores
    return sizes


def backward_inputs(problem: Problem) -> tuple[str, ...]:
    """The pointers that a call must give besides the outputs."""
    p = problem
    names = ("q", "k", "v", "o", "lse", "dout", *(["bias"] if p.bias != "no" else []))
    names += ("seqstart_q", "seqstart_k") if p.mode == "group" else ()
    return (*names, *(["cu_seqlen_q", "cu_seqlen_k"] if p.cu_seqlens else []))
