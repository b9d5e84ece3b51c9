"""A problem as the fields of a library's C ABI: sizes, strides and switches; its pointers, outputs and workspaces.

Arrays beside Q, K, V and O are contiguous: LSE [batch, head, query] (group mode: [head, token]), the elementwise bias
and dropout's bytes [batch, head, query, key] (group mode: [head, token, key], the keys of the longest sequence),
ALiBi's slopes [head] or [batch, head], block scales [page, head, K and V].
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ckpm.attention.backward_arguments import (
    backward_fields,
    backward_inputs,
    backward_outputs,
    backward_workspaces,
)
from ckpm.attention.errors import InvalidProblemError
from ckpm.attention.launch.appendkv_launching import ROPES
from ckpm.attention.launch.encodings import fp8_of
from ckpm.attention.launch.harness import Bias, KvLayout, KvTable, Mask, QScale
from ckpm.attention.problems.problem import Problem
from ckpm.attention.problems.shapes import to_table_problem
from ckpm.kernels.families.libraries import host
from ckpm.matrix.problems.problem import launch_seqlen_k

Fields = dict[str, int | float | str]

_MASKS = {"no": Mask.NONE, "top_left": Mask.TOP_LEFT, "bottom_right": Mask.BOTTOM_RIGHT, "window": Mask.WINDOW}
_BIASES = {"no": Bias.NONE, "bias": Bias.ELEMENTWISE, "alibi": Bias.ALIBI}
_QSCALES = {"no": QScale.NONE, "pertensor": QScale.PERTENSOR, "kv_blockscale": QScale.KV_BLOCKSCALE}
_OUT_BYTES = {"fp32": 4, "fp8fp32": 4, "fp8": 1}


def out_bytes(problem: Problem) -> int:
    """Of an element of O."""
    return _OUT_BYTES.get(problem.dtype, 2)


def head_rows(problem: Problem) -> int:
    """Rows of a head in LSE, bias and random values: a sequence's in batch mode, all in group mode."""
    return problem.seqlen_q if problem.mode == "batch" else problem.rows_q


def attention_fields(problem: Problem) -> Fields:
    """What all families with Q, K, V and O have in common."""
    p, batch, rows = problem, problem.mode == "batch", head_rows(problem)
    fields: Fields = {
        "data_type": p.dtype, "batch": p.batch, "seqlen_q": p.seqlen_q, "seqlen_k": p.seqlen_k,
        "max_seqlen_q": p.seqlen_q, "hdim_q": p.hdim_q, "hdim_v": p.hdim_v, "nhead_q": p.nhead_q, "nhead_k": p.nhead_k,
        "mask_type": int(_MASKS[p.mask]), "window_left": p.window_left, "window_right": p.window_right,
        "bias_type": int(_BIASES[p.bias]), "is_group_mode": int(not batch), "is_v_rowmajor": int(p.vlayout == "row"),
        "has_lse": int(p.lse), "has_logits_soft_cap": int(p.logits_soft_cap > 0), "logits_soft_cap": p.logits_soft_cap,
        "scale_s": p.softmax_scale, "scale_p": 1.0, "scale_o": 1.0,
    }  # fmt: skip
    for tensor in ("q", "k", "v", "o"):
        strides = p.stride(tensor)
        fields |= {f"stride_{tensor}": strides.row, f"nhead_stride_{tensor}": strides.nhead}
        fields[f"batch_stride_{tensor}"] = strides.batch
    if p.lse:
        fields |= {"nhead_stride_lse": rows, "batch_stride_lse": p.nhead_q * rows if batch else 0}
    if p.bias == "alibi":
        fields["stride_bias"] = p.nhead_q if p.alibi_per_batch else 0
    for name, wanted in (("bias", p.bias == "bias"), ("randval", p.store_randval)):
        if wanted:
            fields |= {f"stride_{name}": p.seqlen_k, f"nhead_stride_{name}": rows * p.seqlen_k}
            fields[f"batch_stride_{name}"] = p.nhead_q * rows * p.seqlen_k if batch else 0
    if p.p_drop:
        fields |= {"has_dropout": 1, "p_drop": p.p_drop, "store_randval": int(p.store_randval)}
        fields |= {"dropout_seed": p.dropout_seed, "dropout_offset": p.dropout_offset}
    return fields


def prefill_fields(problem: Problem) -> Fields:
    """Of struct ckpm_problem (kernels/include/ckpm.h)."""
    p = problem
    fields = attention_fields(p) | {
        "num_total_pages": p.pool_pages, "page_size": p.page_size, "sink_size": p.sink_size,
        "kv_layout": int(KvLayout.VECTORIZED if p.kv_layout == "vectorized" else KvLayout.LINEAR),
        "kv_table": int(KvTable.VLLM_2D if p.kv_table == "vllm" else KvTable.SGLANG_1D),
        "batch_stride_block_table": p.table_width, "has_sink": int(p.sink_size > 0),
        "qscale_type": int(_QSCALES[p.qscale]),
    }  # fmt: skip
    if p.page_size == 1:  # a token's step is then its page's
        fields |= {f"stride_{tensor}": p.stride(tensor).batch for tensor in ("k", "v")}
    if p.mode == "batch":
        fields["seqlen_k"] = launch_seqlen_k(to_table_problem(p))
    if p.qscale == "kv_blockscale":
        fields |= {"block_stride_kv_descale": 2 * p.nhead_k, "nhead_stride_kv_descale": 2}
    return fields


def fwd_fields(problem: Problem) -> Fields:
    """Of struct ckpm_fwd_problem (kernels/include_fwd/ckpm_fwd.h).

    Raises:
        InvalidProblemError: sinks or block scales, which these families don't read.
    """
    p = problem
    if p.sink_size or p.sink_logits or p.qscale == "kv_blockscale":
        raise InvalidProblemError(f"{p.family} has no field for sinks and block scales. Ask batch_prefill.")
    fields = attention_fields(p)
    if p.page_size:
        fields |= {"page_block_size": p.page_size, "batch_stride_block_table": p.table_width}
    if p.qscale == "pertensor":
        of_q, of_k, of_v = p.descales
        largest = fp8_of(p.arch).largest  # the kernel stretches P, which lies in 0..1, over the format
        fields |= {"do_fp8_static_quant": 1, "scale_s": p.softmax_scale * of_q * of_k}
        fields |= {"scale_p": largest, "scale_o": of_v / largest}
    if p.splits:
        batch, rows = p.mode == "batch", head_rows(p)
        head = rows * p.hdim_v
        fields |= {
            "num_splits": p.splits, "stride_o_acc": p.hdim_v,
            "nhead_stride_o_acc": head, "batch_stride_o_acc": p.nhead_q * head if batch else 0,
            "split_stride_o_acc": p.nhead_q * p.rows_q * p.hdim_v,
            "nhead_stride_lse_acc": rows, "batch_stride_lse_acc": p.nhead_q * rows if batch else 0,
            "split_stride_lse_acc": p.nhead_q * p.rows_q,
            "nhead_stride_lse": rows, "batch_stride_lse": p.nhead_q * rows if batch else 0,
        }  # fmt: skip
    return fields


def append_fields(problem: Problem) -> Fields:
    """Of struct ckpm_appendkv_problem (kernels/include_fwd/ckpm_appendkv.h)."""
    p = problem
    fields: Fields = {
        "data_type": p.dtype, "seqlen_q": p.seqlen_q, "seqlen_knew": p.seqlen_knew, "batch": p.batch,
        "hdim_q": p.hdim_q, "hdim_v": p.hdim_v, "nhead_q": p.nhead_q, "nhead_k": p.nhead_k, "rotary_dim": p.rotary_dim,
        "rope_type": ROPES[p.rope], "has_mask": int(p.mask != "no"), "is_v_rowmajor": int(p.vlayout == "row"),
    }  # fmt: skip
    if p.page_size:
        fields |= {"page_block_size": p.page_size, "batch_stride_block_table": p.table_width}
    new = {"knew": (p.nhead_k, p.hdim_q), "vnew": (p.nhead_k, p.hdim_v)}
    for tensor in ("q", "k", "v"):
        strides = p.stride(tensor)
        fields |= {f"stride_{tensor}": strides.row, f"nhead_stride_{tensor}": strides.nhead}
        fields[f"batch_stride_{tensor}"] = strides.batch
    for tensor, (heads, hdim) in new.items():
        fields |= {f"stride_{tensor}": heads * hdim, f"nhead_stride_{tensor}": hdim}
        fields[f"batch_stride_{tensor}"] = p.seqlen_knew * heads * hdim
    return fields


_FIELDS: Mapping[str, Callable[[Problem], Fields]] = {  # all others: ckpm_fwd.h
    "batch_prefill": prefill_fields,
    "bwd_dq_dk_dv": backward_fields,
    "fwd_appendkv": append_fields,
}


def fields(library: str, problem: Problem) -> Fields:
    """What the library of a name (ckpm.kernels.families.libraries) is given for the problem.

    Raises:
        InvalidProblemError: it asks for what the library has no field for.
    """
    unread = host(library).unread
    filled = _FIELDS.get(library, fwd_fields)(problem)
    return {name: value for name, value in filled.items() if name not in unread}


def workspaces(problem: Problem) -> Mapping[str, int]:
    """Bytes of what a plan owns, by its pointer: the accumulators of split-KV, D and dQ's of the backward pass."""
    p = problem
    if p.family == "bwd_dq_dk_dv":
        return backward_workspaces(p)
    if not p.splits:
        return {}
    rows = p.splits * p.nhead_q * p.rows_q
    return {"o_acc": rows * p.hdim_v * 4, "lse_acc": rows * 4}


def cleared(problem: Problem) -> tuple[str, ...]:
    """Workspaces that must hold zeros before each launch: kernels add to dQ's accumulators, or leave rows out."""
    return ("dq_acc",) if problem.family == "bwd_dq_dk_dv" else ()


def outputs(problem: Problem) -> Mapping[str, int]:
    """Bytes of contiguous outputs, by their pointer."""
    p = problem
    if p.family == "bwd_dq_dk_dv":
        return backward_outputs(p)
    if p.family == "fwd_appendkv":  # writes to the cache
        return {}
    sizes = {"o": p.rows_q * p.nhead_q * p.hdim_v * out_bytes(p)}
    if p.lse:
        sizes["lse"] = p.rows_q * p.nhead_q * 4
    if p.store_randval:
        sizes["rand_val"] = p.rows_q * p.nhead_q * p.seqlen_k
    return sizes


def inputs(problem: Problem) -> tuple[str, ...]:
    """The pointers that a call must give besides the outputs, by the C ABI's names."""
    p = problem
    if p.family == "bwd_dq_dk_dv":
        return backward_inputs(p)
    names = ["q", "k", "v"]
    if p.family == "fwd_appendkv":
        rotary = ["rotary_cos", "rotary_sin"] if p.rope != "no" else []
        return (*names, "knew", "vnew", "seqlen_k_ptr", *rotary, *(["block_table"] if p.page_size else []))
    names += ["bias"] if p.bias != "no" else []
    names += ["seqstart_q"] if p.mode == "group" else []
    if p.family == "batch_prefill":
        names += ["kv_page_indices", *(["seqlen_k_ptr"] if p.kv_table == "vllm" else ["kv_indptr"])]
        names += ["kv_last_page_lens"] if p.kv_table == "sglang" and p.page_size > 1 else []
        names += ["q_descale", "k_descale", "v_descale"] if p.qscale != "no" else []
        return (*names, *(["sink"] if p.sink_logits else []))
    names += ["seqstart_k"] if p.mode == "group" else []
    names += ["block_table"] if p.page_size else []
    names += ["seqlen_k_ptr"] if p.page_size and p.ragged else []
    return (*names, *(["cu_seqlen_q", "cu_seqlen_k"] if p.cu_seqlens else []))
