"""aiter's attention by its own names and parameters (aiter/ops/mha.py of summer 2026).

``unified_attention`` is of aiter/ops/triton/attention/unified_attention.py. ``mla_decode_fwd`` and ``mla_prefill_fwd``
are of aiter/mla.py.

Masks have their corner at the bottom right, LSE is natural, [head, query token]. ``ours`` of a function are
``dispatcher``, and ``dtype`` for arrays that don't say theirs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ckpm.attention.arrays.pytorch import padded_list
from ckpm.attention.arrays.tables import Pages
from ckpm.attention.arrays.tensors import OnDevice
from ckpm.attention.call import Attention, fmha, fmha_of
from ckpm.attention.familiar.tensors import (
    add_page_axis,
    as_int32,
    demand_scale,
    has_fp8,
    is_on_host,
    mask_options,
    row_numbers,
    shrink_scale,
    swap_axes,
)
from ckpm.base.errors import ArgumentError, ProblemError

__all__ = (
    "flash_attn_varlen_fp8_pertensor_func",
    "flash_attn_varlen_func",
    "mha_batch_prefill_func",
    "mla_decode_fwd",
    "mla_prefill_fwd",
    "unified_attention",
)


# fmt: off
def mha_batch_prefill_func(
    q: Any, k: Any, v: Any, cu_seqlens_q: Any, kv_indptr: Any, kv_page_indices: Any, max_seqlen_q: int,
    max_seqlen_k: int, dropout_p: float = 0.0, softmax_scale: float | None = None, logits_soft_cap: float = 0.0,
    causal: bool = False, window_size: tuple[int, ...] = (-1, -1), alibi_slopes: Any = None,
    deterministic: bool = False, return_lse: bool = False, return_attn_probs: bool = False, out: Any = None,
    kv_last_page_lens: Any = None, block_table: Any = None, seqlen_k: Any = None, q_descale: Any = None,
    k_descale: Any = None, v_descale: Any = None, kv_block_descale: Any = None, sink_ptr: Any = None,
    sink_size: int = 0, **ours: Any,
) -> Any:
    # fmt: on
    """O, or (O, LSE), or (O, LSE, random bytes).

    K and V are [token, head, dim] (pages of one token), [page, token, head, dim], or vectorized as
    attention.arrays.posing describes. ``deterministic`` is read and changes nothing: the forward pass is. LSE under a
    causal mask with ALiBi is softmax's for arrays of the host, and the kernel's on the device, as aiter returns it
    (ckpm.attention.alibi).

    Raises:
        ArgumentError: some scales are there and others are not. Else as :func:`ckpm.attention.call.fmha`.
    """
    del deterministic
    if block_table is None:
        tables = padded_list(kv_page_indices), kv_indptr, kv_last_page_lens, None
    else:
        tables = block_table, None, None, seqlen_k
    tensors = (
        q, k, v, cu_seqlens_q, *tables, q_descale, k_descale, v_descale, kv_block_descale, alibi_slopes, sink_ptr,
    )  # fmt: skip
    numbers = (
        max_seqlen_q, max_seqlen_k, dropout_p, softmax_scale, logits_soft_cap, causal, window_size, sink_size,
        return_lse, return_attn_probs,
    )  # fmt: skip
    return _results(fmha_of(_pose_batch_prefill, tensors, numbers, out=out, **ours), return_lse, return_attn_probs)


def _pose_batch_prefill(tensors: Sequence[Any], numbers: Any) -> tuple[Sequence[Any], dict[str, Any]]:
    """Q, K, V and options of fmha, of :func:`mha_batch_prefill_func`'s arguments."""
    q, k, v, sums, table, indptr, last_page_lens, lengths, of_q, of_k, of_v, of_pages, slopes, sinks = tensors
    longest_q, longest_k, dropout, scale, soft_cap, causal, window, sink_size, lse, probabilities = numbers
    pages = Pages(
        indices=table, indptr=indptr, last_page_lens=last_page_lens, seqlens_k=lengths, longest=longest_k,
        kv_layout="vectorized" if len(k.shape) == 5 else "linear",
    )  # fmt: skip
    options = {
        "cu_seqlens_q": sums, "max_seqlen_q": longest_q, "pages": pages, "dropout": dropout,
        "scale": demand_scale(scale), "soft_cap": soft_cap, "alibi_slopes": slopes, "lse": lse, "sink_logits": sinks,
        "descales": _descales((of_q, of_k, of_v), of_pages), "kv_block_descale": of_pages,
        "random_values": probabilities and dropout > 0, **_mask(causal, window, sink_size),
    }  # fmt: skip
    return (q, add_page_axis(k), add_page_axis(v)), options


# fmt: off
def flash_attn_varlen_func(
    q: Any, k: Any, v: Any, cu_seqlens_q: Any, cu_seqlens_k: Any, max_seqlen_q: int, max_seqlen_k: int,
    min_seqlen_q: int = 0, dropout_p: float = 0.0, softmax_scale: float | None = None, logits_soft_cap: float = 0.0,
    causal: bool = False, window_size: tuple[int, ...] = (-1, -1, 0), bias: Any = None, alibi_slopes: Any = None,
    deterministic: bool = False, return_lse: bool = False, return_attn_probs: bool = False,
    how_v3_bf16_cvt: int = 1, block_table: Any = None, out: Any = None, cu_seqlens_q_padded: Any = None,
    cu_seqlens_k_padded: Any = None, sink_ptr: Any = None, **ours: Any,
) -> Any:
    # fmt: on
    """O, or (O, LSE), or (O, LSE, random bytes), of sequences one after another, or with ``block_table`` in pages.

    K and V in pages are [page, token, head, dim], and ``cu_seqlens_k`` are running sums of the sequences' keys. Keys
    with sink logits, and with head dims of Q and V that differ, are read as pages of one token. Kernels of ``fwd`` have
    no sink logits, and 192/128 has the known defect v-overwrites-the-last-slice-of-k.
    ``deterministic`` and ``how_v3_bf16_cvt``, a rounding of aiter's own kernels, change nothing.

    Raises:
        ProblemError: a bias, which has no heads in aiter. ``min_seqlen_q`` over 1, which leaves out short sequences.
            Padding between sequences. Else as :func:`ckpm.attention.call.fmha`.
    """
    del deterministic, how_v3_bf16_cvt
    _refuse("flash_attn_varlen_func", {
        "min_seqlen_q": min_seqlen_q if (min_seqlen_q or 0) > 1 else None, "bias": bias,
        "cu_seqlens_q_padded": cu_seqlens_q_padded, "cu_seqlens_k_padded": cu_seqlens_k_padded,
    })  # fmt: skip
    keys: dict[str, Any] = {"cu_seqlens_k": cu_seqlens_k, "max_seqlen_k": max_seqlen_k}
    if block_table is not None:
        lengths = cu_seqlens_k[1:] - cu_seqlens_k[:-1]
        keys = {"pages": Pages(indices=block_table, seqlens_k=lengths, longest=max_seqlen_k)}
    elif (sink_ptr is not None or k.shape[-1] != v.shape[-1]) and not isinstance(k, OnDevice):
        keys = {"pages": Pages(indices=row_numbers(k), indptr=cu_seqlens_k, longest=max_seqlen_k)}
        k, v = add_page_axis(k), add_page_axis(v)
    done = fmha(
        q, k, v, cu_seqlens_q=cu_seqlens_q, max_seqlen_q=max_seqlen_q, dropout=dropout_p,
        scale=demand_scale(softmax_scale), soft_cap=logits_soft_cap, alibi_slopes=alibi_slopes, lse=return_lse,
        sink_logits=sink_ptr, random_values=return_attn_probs and dropout_p > 0, out=out,
        **keys, **_mask(causal, window_size, 0), **ours,
    )  # fmt: skip
    return _results(done, return_lse, return_attn_probs)


# fmt: off
def flash_attn_varlen_fp8_pertensor_func(
    q: Any, k: Any, v: Any, q_descale: Any, k_descale: Any, v_descale: Any, cu_seqlens_q: Any, cu_seqlens_k: Any,
    max_seqlen_q: int, max_seqlen_k: int, min_seqlen_q: int = 0, logits_soft_cap: float = 0.0, causal: bool = False,
    window_size: tuple[int, ...] = (-1, -1, 0), softmax_scale: float | None = None, sink_ptr: Any = None, **ours: Any,
) -> Any:
    # fmt: on
    """O in bf16, of Q, K and V in fp8 with a scale each. Raises as :func:`flash_attn_varlen_func`."""
    return flash_attn_varlen_func(
        q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, min_seqlen_q, softmax_scale=softmax_scale,
        logits_soft_cap=logits_soft_cap, causal=causal, window_size=window_size, sink_ptr=sink_ptr,
        descales=_descales((q_descale, k_descale, v_descale), None), **ours,
    )  # fmt: skip


# fmt: off
def unified_attention(
    q: Any, k: Any, v: Any, out: Any, cu_seqlens_q: Any, max_seqlen_q: int, seqused_k: Any, max_seqlen_k: int,
    softmax_scale: float, causal: bool, window_size: tuple[int, ...], block_table: Any, softcap: float, q_descale: Any,
    k_descale: Any, v_descale: Any, q_scales: Any = None, alibi_slopes: Any = None, output_scale: Any = None,
    qq_bias: Any = None, sinks: Any = None, shuffled_kv_cache: bool = False, skip_reduce: bool = False,
    backend: str | None = None, **ours: Any,
) -> Any:
    # fmt: on
    """``out``, of queries over the pages of a block table; prefill and decode alike.

    K and V are [page, token, head, dim], or vectorized with ``shuffled_kv_cache``. The mask is causal. ``backend``, a
    choice among aiter's kernels, changes nothing. Scales beside K and V of 16 bits must be 1, which is checked of
    arrays of the host.

    Raises:
        ProblemError: ``causal`` is false. A scale of O or of blocks, a bias of pairs of queries, results of parts.
            Else as :func:`ckpm.attention.call.fmha`.
    """
    del backend
    _refuse("unified_attention", {
        "q_scales": q_scales, "output_scale": output_scale, "qq_bias": qq_bias, "skip_reduce": skip_reduce or None,
        "causal=False": None if causal else True,
    })  # fmt: skip
    scales = shrink_scale(q_descale), shrink_scale(k_descale), shrink_scale(v_descale)
    if not has_fp8(k):
        _demand_ones(scales)
    pages = Pages(
        indices=block_table, seqlens_k=as_int32(seqused_k), longest=max_seqlen_k,
        kv_layout="vectorized" if shuffled_kv_cache else "linear",
    )  # fmt: skip
    return fmha(
        q, k, v, cu_seqlens_q=cu_seqlens_q, max_seqlen_q=max_seqlen_q, pages=pages, scale=demand_scale(softmax_scale),
        soft_cap=softcap, alibi_slopes=alibi_slopes, sink_logits=sinks, out=out,
        descales=_descales(scales, None) if has_fp8(k) else None,
        **_mask(causal, window_size, 0), **ours,
    ).o  # fmt: skip


# fmt: off
def mla_decode_fwd(
    q: Any, kv_buffer: Any, o: Any, qo_indptr: Any, kv_indptr: Any, kv_indices: Any, kv_last_page_lens: Any,
    max_seqlen_q: int, page_size: int = 1, nhead_kv: int = 1, sm_scale: float | None = None, logit_cap: float = 0.0,
    num_kv_splits: int | None = None, num_kv_splits_indptr: Any = None, work_meta_data: Any = None,
    work_indptr: Any = None, work_info_set: Any = None, reduce_indptr: Any = None, reduce_final_map: Any = None,
    reduce_partial_map: Any = None, q_scale: Any = None, kv_scale: Any = None, intra_batch_mode: bool = False,
    return_logits: bool = False, return_lse: bool = False, g_kv_indptr: Any = None, cp_world_size: int = 1,
    cp_rank: int = 0, causal: bool = True, **ours: Any,
) -> Any:
    # fmt: on
    """(``o``, LSE [query token, head] or None), of queries over a cache of latents; V is the beginning of K.

    The cache is [page, token, 1, dim]. Splits and schedules of aiter's own kernels change nothing. aiter returns
    partial results where this function returns ``o``.

    Raises:
        ProblemError: a part of a sequence's keys (context parallel), partial results. Else as
            :func:`ckpm.attention.call.fmha`.
    """
    del nhead_kv, num_kv_splits, num_kv_splits_indptr, work_meta_data, work_indptr, work_info_set, reduce_indptr
    del reduce_final_map, reduce_partial_map, intra_batch_mode, cp_rank
    _refuse("mla_decode_fwd", {
        "g_kv_indptr": g_kv_indptr, "cp_world_size": None if cp_world_size == 1 else cp_world_size,
        "return_logits": return_logits or None,
    })  # fmt: skip
    scales = q_scale, kv_scale, kv_scale
    if not has_fp8(kv_buffer):
        _demand_ones(scales)
    pages = Pages(
        indices=kv_indices, indptr=kv_indptr, last_page_lens=kv_last_page_lens if page_size > 1 else None,
        longest=None if is_on_host(kv_indptr) else kv_indices.shape[0] * page_size,
    )  # fmt: skip
    done = fmha(
        q, kv_buffer, kv_buffer[..., : o.shape[-1]], cu_seqlens_q=qo_indptr, max_seqlen_q=max_seqlen_q, pages=pages,
        scale=demand_scale(sm_scale), soft_cap=max(logit_cap, 0.0), lse=return_lse, out=o,
        descales=_descales(scales, None) if has_fp8(kv_buffer) else None,
        **mask_options(causal, -1, -1), **ours,
    )  # fmt: skip
    return o, swap_axes(done.lse, 0, 1) if return_lse else None


# fmt: off
def mla_prefill_fwd(
    q: Any, kv_buffer: Any, o: Any, qo_indptr: Any, kv_indptr: Any, kv_indices: Any, kv_last_page_lens: Any,
    max_seqlen_q: int, sm_scale: float | None = None, logit_cap: float = 0.0, num_kv_splits: int | None = None,
    **ours: Any,
) -> Any:
    # fmt: on
    """(``o``, LSE [query token, 1, head, 1]) as :func:`mla_decode_fwd`, under a causal mask."""
    del num_kv_splits
    o, lse = mla_decode_fwd(
        q, kv_buffer, o, qo_indptr, kv_indptr, kv_indices, kv_last_page_lens, max_seqlen_q, kv_buffer.shape[1],
        sm_scale=sm_scale, logit_cap=logit_cap, return_lse=True, **ours,
    )  # fmt: skip
    return o, lse[:, None, :, None]


def _refuse(call: str, given: Mapping[str, Any]) -> None:
    """Raises ProblemError: a parameter that is not served is given."""
    if used := [name for name, one in given.items() if one is not None]:
        raise ProblemError(f"{call} has no {', '.join(used)} here.")


def _mask(causal: bool, window_size: tuple[int, ...], sink_size: int) -> dict[str, Any]:
    """Options of aiter's mask. Some of its functions have the number of sinks as a third number of the window."""
    left, right, *sinks = window_size
    return {**mask_options(causal, left, right), "sink_size": sink_size or sum(sinks)}


def _results(done: Attention, lse: bool, random_values: bool) -> Any:
    more = [done.lse] if lse else []
    more += [done.random_values] if random_values else []
    return (done.o, *more) if more else done.o


def _descales(given: tuple[Any, Any, Any], of_pages: Any) -> tuple[Any, Any, Any] | None:
    """Q's scale with K's and V's or with those of pages, as aiter wants them; None without scales.

    A Q of 16 bits beside fp8 K and V has none.
    """
    of_q, of_k, of_v = (one is not None for one in given)
    if of_pages is not None and (of_k or of_v):
        raise ArgumentError(
            "kv_block_descale comes with q_descale, without k_descale and v_descale; a Q of 16 bits has no q_descale.",
            kind="dtype",
        )
    if of_pages is None and (of_k != of_v or (of_q and not of_k)):
        raise ArgumentError("q_descale, k_descale and v_descale come together.", kind="dtype")
    return given if of_q or of_k or of_pages is not None else None


def _demand_ones(given: tuple[Any, ...]) -> None:
    """Raises ArgumentError: a scale of the host, beside 16-bit K and V, is not 1."""
    for one in given:
        if one is not None and is_on_host(one) and float(one.reshape(-1)[0]) != 1:
            raise ArgumentError("k and v of 16 bits have no scales: give 1, or none.", kind="scale")
