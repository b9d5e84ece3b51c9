"""A problem as the fields of a library's C ABI: sizes, strides and switches; its pointers, outputs and workspaces.

Arrays other than Q, K, V and O are contiguous:

- LSE: [batch, head, query] (group mode: [head, token])
- elementwise bias and dropout's bytes: [batch, head, query, key] (group mode: [head, token, key], the keys of the
  longest sequence)
- ALiBi's slopes: [head] or [batch, head]
- block scales: [page, head, K and V]; scales of heads: [head]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ckpm.attention.launch.encodings import largest
from ckpm.base.errors import ProblemError
from ckpm.kernels.families.libraries import host
from ckpm.matrix.problems.problem import CHOICES, ELEMENT_BYTES, Problem, Strides, launch_seqlen_k

Fields = dict[str, int | float | str]

SPLIT_KEYS = 16  # the fewest keys of a backward tile: they bound the splits of dQ


def _number(field: str, word: str) -> int:
    """The number of a problem's word in the C ABI, whose enumerators have the order of CHOICES."""
    return CHOICES[field].index(word)


def _shared_fields(p: Problem) -> Fields:
    """Fields of a forward and of a backward pass: sizes, mask and bias."""
    most = p.seqlen_q + p.seqlen_k  # of a window's sides: kernels add them to lengths in 32 bits
    return {
        "data_type": p.dtype, "batch": p.batch, "seqlen_q": p.seqlen_q, "seqlen_k": p.seqlen_k,
        "max_seqlen_q": p.seqlen_q, "hdim_q": p.hdim_q, "hdim_v": p.hdim_v, "nhead_q": p.nhead_q, "nhead_k": p.nhead_k,
        "mask_type": _number("mask", p.mask), "window_left": min(p.window_left, most),
        "window_right": min(p.window_right, most), "bias_type": _number("bias", p.bias),
        "is_group_mode": int(p.mode != "batch"),
    }  # fmt: skip


def out_bytes(problem: Problem) -> int:
    """Bytes of an element of O."""
    return ELEMENT_BYTES[problem.o_dtype]


def attention_fields(problem: Problem) -> Fields:
    """Fields that all families with Q, K, V and O share."""
    p = problem
    fields = _shared_fields(p) | {
        "is_v_rowmajor": int(p.vlayout == "row"), "has_lse": int(p.lse), "scale_s": p.softmax_scale, "scale_p": 1.0,
        "scale_o": 1.0, "has_logits_soft_cap": int(p.logits_soft_cap > 0), "logits_soft_cap": p.logits_soft_cap,
    }  # fmt: skip
    fields |= _stride_fields({tensor: p.stride(tensor) for tensor in ("q", "k", "v", "o")})
    if p.lse:
        strides = p.stride("lse")
        fields |= {"nhead_stride_lse": strides.nhead, "batch_stride_lse": strides.batch}
    return fields | _score_fields(p)


def _stride_fields(strides: Mapping[str, Strides]) -> Fields:
    """The three fields of each tensor's strides."""
    fields: Fields = {}
    for tensor, tensor_strides in strides.items():
        fields |= {
            f"stride_{tensor}": tensor_strides.row,
            f"nhead_stride_{tensor}": tensor_strides.nhead,
            f"batch_stride_{tensor}": tensor_strides.batch,
        }
    return fields


def _score_fields(p: Problem) -> Fields:
    """Fields of bias, its gradient and dropout, which have a number for each score."""
    fields: Fields = {}
    if p.bias == "alibi":
        fields["stride_bias"] = p.nhead_q if p.alibi_per_batch else 0
    wanted = {"bias": p.bias == "bias", "dbias": p.dbias, "randval": p.stores_random}
    rows = {name: p.stride("bias" if name == "dbias" else name) for name, is_wanted in wanted.items() if is_wanted}
    fields |= _stride_fields(rows)
    if p.p_drop:
        fields |= {"has_dropout": 1, "p_drop": p.p_drop, "store_randval": int(p.store_randval)}
        fields |= {"dropout_seed": p.dropout_seed, "dropout_offset": p.dropout_offset}
    return fields


def prefill_fields(problem: Problem) -> Fields:
    """Fields of struct ckpm_problem (kernels/include/ckpm.h)."""
    p = problem
    fields = attention_fields(p) | {
        "num_total_pages": p.pool_pages, "page_size": p.page_size, "sink_size": p.sink_size,
        "kv_layout": _number("kv_layout", p.kv_layout),
        "kv_table": _number("kv_table", p.kv_table),
        "batch_stride_block_table": p.table_width, "has_sink": int(p.sink_size > 0),
        "qscale_type": _number("qscale", p.qscale),
    }  # fmt: skip
    if p.page_size == 1:  # a page is one token, so tokens have the stride of pages
        rows = ("k", "v") if p.vlayout == "row" else ("k",)
        fields |= {f"stride_{tensor}": p.stride(tensor).batch for tensor in rows}
    if p.mode == "batch":
        fields["seqlen_k"] = launch_seqlen_k(p)
    if p.split_keys:  # seqlen_k is for the number of splits alone: the least that has so many
        fields |= {"split_keys": p.split_keys, "seqlen_k": (p.key_splits - 1) * p.split_keys + 1}
    if p.qscale == "kv_blockscale":
        fields |= {"block_stride_kv_descale": 2 * p.nhead_k, "nhead_stride_kv_descale": 2}
    elif p.qscale == "perhead":
        fields["nhead_stride_kv_descale"] = 1
    return fields


def fwd_fields(problem: Problem) -> Fields:
    """Fields of struct ckpm_fwd_problem (kernels/include_fwd/ckpm_fwd.h).

    Its families have no sinks and no block scales.
    """
    p = problem
    if p.sink_size or p.sink_logits or p.qscale == "kv_blockscale":
        raise ProblemError(f"{p.family} has no field for sinks and block scales. Ask batch_prefill.")
    fields = attention_fields(p)
    if p.page_size:
        fields |= {"page_block_size": p.page_size, "batch_stride_block_table": p.table_width}
    if p.qscale == "pertensor":
        of_q, of_k, of_v = p.descales
        top = largest(p.dtype, p.arch)  # the kernel stretches P, which lies in 0..1, over the format
        fields |= {"do_fp8_static_quant": 1, "scale_s": p.softmax_scale * of_q * of_k}
        fields |= {"scale_p": top, "scale_o": of_v / top}
    if p.min_seqlen_q:
        fields |= {"skip_min_seqlen_q": 1, "min_seqlen_q": p.min_seqlen_q}
    if p.splits:
        batch, rows = p.mode == "batch", p.head_rows
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
    """Fields of struct ckpm_appendkv_problem (kernels/include_fwd/ckpm_appendkv.h)."""
    p = problem
    fields: Fields = {
        "data_type": p.dtype, "seqlen_q": p.seqlen_q, "seqlen_knew": p.seqlen_knew, "batch": p.batch,
        "hdim_q": p.hdim_q, "hdim_v": p.hdim_v, "nhead_q": p.nhead_q, "nhead_k": p.nhead_k, "rotary_dim": p.rotary_dim,
        "rope_type": _number("rope", p.rope), "has_mask": int(p.mask != "no"), "is_v_rowmajor": int(p.vlayout == "row"),
    }  # fmt: skip
    if p.page_size:
        fields |= {"page_block_size": p.page_size, "batch_stride_block_table": p.table_width}
    strides = {tensor: p.stride(tensor) for tensor in ("q", "k", "v")}
    for tensor, hdim in (("knew", p.hdim_q), ("vnew", p.hdim_v)):
        strides[tensor] = Strides(p.seqlen_knew * p.nhead_k * hdim, hdim, p.nhead_k * hdim)
    return fields | _stride_fields(strides)


def backward_fields(problem: Problem) -> Fields:
    """Sizes, strides and switches of a launch."""
    p, batch = problem, problem.mode == "batch"
    rows = p.head_rows
    fields = _shared_fields(p) | {
        "max_seqlen_k": p.seqlen_k, "scale": p.softmax_scale, "has_dbias": int(p.dbias),
        "is_deterministic": int(p.deterministic),
        "nhead_stride_lsed": rows, "batch_stride_lsed": p.nhead_q * rows if batch else 0,
    }  # fmt: skip
    strides = {tensor: p.stride(tensor) for tensor in ("q", "k", "v", "o")}
    fields |= _stride_fields(strides | p.gradients)
    if p.deterministic:
        fields["split_stride_dq_acc"] = p.rows_q * p.nhead_q * p.hdim_q
    return fields | _score_fields(p)


def backward_workspaces(problem: Problem) -> Mapping[str, int]:
    """Bytes of D and of dQ's float32 accumulators: deterministic kernels have one for each split of the keys."""
    p = problem
    splits = -(-p.seqlen_k // SPLIT_KEYS) if p.deterministic else 1
    return {"d": p.rows_q * p.nhead_q * 4, "dq_acc": splits * p.rows_q * p.nhead_q * p.hdim_q * 4}


def backward_outputs(problem: Problem) -> Mapping[str, int]:
    """Bytes of each output, by pointer. dK and dV have a head for each query head, not for each KV head."""
    p = problem
    sizes = {
        "dq": p.rows_q * p.nhead_q * p.hdim_q * p.element_bytes,
        "dk": p.rows_k * p.nhead_q * p.hdim_q * p.element_bytes,
        "dv": p.rows_k * p.nhead_q * p.hdim_v * p.element_bytes,
    }
    scores = p.rows_q * p.nhead_q * p.seqlen_k
    if p.dbias:
        sizes["dbias"] = scores * p.element_bytes
    if p.stores_random:
        sizes["rand_val"] = scores
    return sizes


def backward_inputs(problem: Problem) -> tuple[str, ...]:
    """The pointers that a call must give besides the outputs."""
    p = problem
    names = ("q", "k", "v", "o", "lse", "dout", *(["bias"] if p.bias != "no" else []))
    names += ("seqstart_q", "seqstart_k") if p.mode == "group" else ()
    return (*names, *(["cu_seqlen_q", "cu_seqlen_k"] if p.cu_seqlens else []))


_FIELDS: Mapping[str, Callable[[Problem], Fields]] = {  # all others: ckpm_fwd.h
    "batch_prefill": prefill_fields,
    "bwd_dq_dk_dv": backward_fields,
    "fwd_appendkv": append_fields,
}


def fields(library: str, problem: Problem) -> Fields:
    """The numbers of the problem for a library (by its name in ckpm.kernels.families.libraries)."""
    unread = host(library).unread
    filled = _FIELDS.get(library, fwd_fields)(problem)
    return {name: value for name, value in filled.items() if name not in unread}


def workspaces(problem: Problem) -> Mapping[str, int]:
    """Bytes of a plan's workspaces, by pointer.

    These are the accumulators of splits, and D and dQ's accumulators of the backward pass.
    """
    p = problem
    if p.family == "bwd_dq_dk_dv":
        return backward_workspaces(p)
    rows = (p.key_splits or p.splits) * p.nhead_q * p.rows_q
    if not rows:
        return {}
    return {"o_acc": rows * p.hdim_v * 4, "lse_acc": rows * 4}


def zeroed_workspaces(problem: Problem) -> tuple[str, ...]:
    """Workspaces that must contain zeros before each launch: kernels add to dQ's accumulators, or leave rows out."""
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
    if p.stores_random:
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
        names += ["q_descale"] if p.scales_q else []
        names += ["k_descale", "v_descale"] if p.qscale != "no" else []
        return (*names, *(["sink"] if p.sink_logits else []))
    names += ["seqstart_k"] if p.mode == "group" else []
    names += ["block_table"] if p.page_size else []
    names += ["seqlen_k_ptr"] if p.page_size and p.ragged and p.mode == "batch" else []
    return (*names, *(["cu_seqlen_q", "cu_seqlen_k"] if p.cu_seqlens else []))
