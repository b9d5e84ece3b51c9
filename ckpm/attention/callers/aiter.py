"""aiter's attention by its own names and parameters (aiter/ops/mha.py of summer 2026).

``unified_attention`` is from aiter/ops/triton/attention/unified_attention.py, ``paged_attention_v1`` and
``paged_attention_ragged`` are from aiter/ops/attention.py. aiter_latent.py has functions of latent attention.

Masks have their corner at the bottom right. LSE is natural, [head, query token]. ``own_options`` of a function are
``dispatcher`` and options of fmha, such as ``dtype`` for arrays of bits.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ckpm.attention.arrays.options import Posable
from ckpm.attention.arrays.pytorch import single_precision
from ckpm.attention.arrays.tables import Pages
from ckpm.attention.arrays.tensors import OnDevice
from ckpm.attention.call import Attention, chosen, fmha, fmha_of, pad_list
from ckpm.attention.callers.aiter_latent import mla_decode_fwd, mla_prefill_fwd, mla_prefill_ps_asm_fwd, mla_reduce_v1
from ckpm.attention.callers.tensors import (
    add_page_axis,
    as_int32,
    cache_descales,
    can_widen,
    count_up,
    demand_arrays,
    demand_layout,
    demand_scale,
    demand_values,
    descales_of,
    has_fp8,
    listed_pages,
    mask_options,
    refuse,
    swap_axes,
    widen,
)
from ckpm.attention.dispatcher import Dispatcher
from ckpm.attention.splitting import MOST_QUERIES
from ckpm.base.errors import ArgumentError, CompileError, NoKernelError, ProblemError, SetupError, demand_type

NOT_SERVED = (NoKernelError, CompileError, SetupError)
_MOST_FP8_DIMS = 256  # of kernels with a Q in fp8

__all__ = (
    "flash_attn_varlen_fp8_pertensor_func",
    "flash_attn_varlen_func",
    "mha_batch_prefill_func",
    "mla_decode_fwd",
    "mla_prefill_fwd",
    "mla_prefill_ps_asm_fwd",
    "mla_reduce_v1",
    "paged_attention_ragged",
    "paged_attention_v1",
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
    sink_size: int = 0, **own_options: Any,
) -> Any:
    # fmt: on
    """Return O, or (O, LSE), or (O, LSE, random bytes).

    K and V are [token, head, dim] (pages of one token), [page, token, head, dim], or vectorized as
    attention.arrays.posing describes. ``deterministic`` changes nothing, because the forward pass is deterministic. LSE
    under a causal mask with ALiBi is softmax's for arrays of the host. On the device it is the kernel's, as aiter
    returns it (ckpm.attention.alibi).

    Raises:
        ArgumentError: only some of the scales are given.
        An error of ckpm.base.errors: see :func:`ckpm.attention.call.fmha`.
    """
    del deterministic
    if block_table is None:
        tables = pad_list(_dispatcher(own_options, q), kv_page_indices), kv_indptr, kv_last_page_lens, None
    else:
        tables = block_table, None, None, seqlen_k
    tensors = (
        q, k, v, cu_seqlens_q, *tables, q_descale, k_descale, v_descale, kv_block_descale, alibi_slopes,
        single_precision(sink_ptr, q),
    )  # fmt: skip
    numbers = (
        max_seqlen_q, max_seqlen_k, dropout_p, softmax_scale, logits_soft_cap, causal, window_size, sink_size,
        return_lse, return_attn_probs,
    )  # fmt: skip
    done = fmha_of(_pose_batch_prefill, tensors, numbers, out=out, **own_options)
    return _results(done, return_lse, return_attn_probs)


def _pose_batch_prefill(tensors: Sequence[Any], numbers: Any) -> Posable:
    """Q, K, V and options of fmha from the arguments of :func:`mha_batch_prefill_func`."""
    q, k, v, sums, table, indptr, last_page_lens, lengths, of_q, of_k, of_v, of_pages, slopes, sinks = tensors
    longest_q, longest_k, dropout, scale, soft_cap, causal, window, sink_size, lse, probabilities = numbers
    demand_arrays(k=k, v=v)
    pages = Pages(
        indices=table, indptr=indptr, last_page_lens=last_page_lens, seqlens_k=lengths, longest=longest_k,
        kv_layout="vectorized" if len(k.shape) == 5 else "linear",
    )  # fmt: skip
    options = {
        "cu_seqlens_q": sums, "max_seqlen_q": longest_q, "pages": pages, "dropout": dropout,
        "scale": demand_scale(scale), "soft_cap": soft_cap, "alibi_slopes": slopes, "lse": lse, "sink_logits": sinks,
        "descales": descales_of((of_q, of_k, of_v), of_pages), "kv_block_descale": of_pages,
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
    cu_seqlens_k_padded: Any = None, sink_ptr: Any = None, **own_options: Any,
) -> Any:
    # fmt: on
    """Return O, or (O, LSE), or (O, LSE, random bytes), of sequences one after another, or in pages of ``block_table``.

    K and V in pages are [page, token, head, dim], and ``cu_seqlens_k`` are running sums of the sequences' keys.
    Contiguous K and V are read as pages of one token in three cases:

    - with sink logits, which kernels of ``fwd`` lack
    - with different head dims of Q and V: 192/128 of ``fwd`` has the known defect v-overwrites-the-last-slice-of-k
    - in fp8 under a causal mask, if a kernel serves that: kernels of V3 are faster than kernels of ``fwd``

    ``deterministic`` and ``how_v3_bf16_cvt``, a rounding of aiter's own kernels, change nothing.

    Raises:
        ProblemError: a bias, which has no heads in aiter, ``min_seqlen_q`` over 1, or padding between sequences.
        An error of ckpm.base.errors: see :func:`ckpm.attention.call.fmha`.
    """
    del deterministic, how_v3_bf16_cvt
    demand_arrays(q=q, k=k, v=v)
    demand_type("min_seqlen_q", min_seqlen_q, int | None, "a number of queries")
    refuse("flash_attn_varlen_func", {
        "min_seqlen_q": (min_seqlen_q or 0) > 1, "bias": bias,
        "cu_seqlens_q_padded": cu_seqlens_q_padded, "cu_seqlens_k_padded": cu_seqlens_k_padded,
    })  # fmt: skip
    options = {
        "cu_seqlens_q": cu_seqlens_q, "max_seqlen_q": max_seqlen_q, "dropout": dropout_p,
        "scale": demand_scale(softmax_scale), "soft_cap": logits_soft_cap, "alibi_slopes": alibi_slopes,
        "lse": return_lse, "sink_logits": sink_ptr, "random_values": return_attn_probs and dropout_p > 0, "out": out,
        **_mask(causal, window_size, 0), **own_options,
    }  # fmt: skip

    def attend(k: Any, v: Any, **keys: Any) -> Any:
        return _results(fmha(q, k, v, **keys, **options), return_lse, return_attn_probs)

    if block_table is not None:
        demand_values(cu_seqlens_k=cu_seqlens_k)
        lengths = cu_seqlens_k[1:] - cu_seqlens_k[:-1]
        return attend(k, v, pages=Pages(indices=block_table, seqlens_k=lengths, longest=max_seqlen_k))
    needed = sink_ptr is not None or k.shape[-1] != v.shape[-1]
    faster = causal and has_fp8(k) and k.shape[0] and not own_options.keys() & {"family", "splits"}
    if (needed or (faster and _dispatcher(own_options, q).has_own)) and not isinstance(k, OnDevice):
        pages = Pages(indices=count_up(k.shape[0], k), indptr=cu_seqlens_k, longest=max_seqlen_k)
        with contextlib.suppress(*(() if needed else (*NOT_SERVED, ProblemError))):  # fwd reports mistakes
            return attend(add_page_axis(k), add_page_axis(v), pages=pages)
    return attend(k, v, cu_seqlens_k=cu_seqlens_k, max_seqlen_k=max_seqlen_k)


# fmt: off
def flash_attn_varlen_fp8_pertensor_func(
    q: Any, k: Any, v: Any, q_descale: Any, k_descale: Any, v_descale: Any, cu_seqlens_q: Any, cu_seqlens_k: Any,
    max_seqlen_q: int, max_seqlen_k: int, min_seqlen_q: int = 0, logits_soft_cap: float = 0.0, causal: bool = False,
    window_size: tuple[int, ...] = (-1, -1, 0), softmax_scale: float | None = None, sink_ptr: Any = None,
    **own_options: Any,
) -> Any:
    # fmt: on
    """Return O in bf16, of Q, K and V in fp8 with a scale each. Otherwise as :func:`flash_attn_varlen_func`."""
    return flash_attn_varlen_func(
        q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, min_seqlen_q, softmax_scale=softmax_scale,
        logits_soft_cap=logits_soft_cap, causal=causal, window_size=window_size, sink_ptr=sink_ptr,
        descales=descales_of((q_descale, k_descale, v_descale), None), **own_options,
    )  # fmt: skip


# fmt: off
def unified_attention(
    q: Any, k: Any, v: Any, out: Any, cu_seqlens_q: Any, max_seqlen_q: int, seqused_k: Any, max_seqlen_k: int,
    softmax_scale: float, causal: bool, window_size: tuple[int, ...], block_table: Any, softcap: float, q_descale: Any,
    k_descale: Any, v_descale: Any, q_scales: Any = None, alibi_slopes: Any = None, output_scale: Any = None,
    qq_bias: Any = None, sinks: Any = None, shuffled_kv_cache: bool = False, skip_reduce: bool = False,
    backend: str | None = None, **own_options: Any,
) -> Any:
    # fmt: on
    """Attend from queries to the pages of a block table, in prefill and decode. Return ``out``.

    K and V are [page, token, head, dim], or vectorized with ``shuffled_kv_cache``. The mask is causal. Kernels that
    split the keys, and kernels of large heads, take Q in 16 bits. So an fp8 Q of at most 64 queries a sequence, or of a
    head dim over 256, is widened to the dtype of ``out`` if a kernel serves that. Any other fp8 Q is widened if no
    kernel serves it in fp8. With ``batch_invariant`` the number of queries has no influence. ``backend``, a choice of
    aiter's kernels, changes nothing. Scales of K and V in 16 bits must be 1, which is checked for arrays of the host.

    Raises:
        ProblemError: ``causal`` is false, or a scale of O or of blocks, a bias of pairs of queries or ``skip_reduce``
            is given.
        An error of ckpm.base.errors: see :func:`ckpm.attention.call.fmha`.
    """
    del backend
    demand_arrays(q=q, k=k, v=v)
    demand_type("max_seqlen_q", max_seqlen_q, int, "the queries of the longest sequence")
    refuse("unified_attention", {
        "q_scales": q_scales, "output_scale": output_scale, "qq_bias": qq_bias, "skip_reduce": skip_reduce,
        "causal=False": not causal,
    })  # fmt: skip
    pages = Pages(
        indices=block_table, seqlens_k=as_int32(seqused_k), longest=max_seqlen_k,
        kv_layout="vectorized" if shuffled_kv_cache else "linear",
    )  # fmt: skip
    attend = functools.partial(
        _attend_pages, k=k, v=v, pages=pages, cu_seqlens_q=cu_seqlens_q, max_seqlen_q=max_seqlen_q,
        scale=demand_scale(softmax_scale), soft_cap=softcap, alibi_slopes=alibi_slopes, sink_logits=sinks, out=out,
        **_mask(causal, window_size, 0), **own_options,
    )  # fmt: skip
    invariant = _dispatcher(own_options, q).batch_invariant or own_options.get("batch_invariant")
    few = (not invariant and max_seqlen_q <= MOST_QUERIES) or q.shape[-1] > _MOST_FP8_DIMS
    scales = q_descale, k_descale, v_descale
    if "dtype" in own_options or not can_widen(q, out):
        return attend(q=q, scales=scales)
    return _widen_first_or_last(attend, q, scales, out, first=few)


# fmt: off
def paged_attention_v1(
    out: Any, workspace_buffer: Any, query: Any, key_cache: Any, value_cache: Any, scale: float, block_tables: Any,
    cu_query_lens: Any, context_lens: Any, max_context_len: int, alibi_slopes: Any, kv_cache_dtype: str,
    kv_cache_layout: str, logits_soft_cap: float, k_scale: Any, v_scale: Any, fp8_out_scale: Any = None,
    partition_size: int = 256, mtp: int = 1, sliding_window: int = 0, **own_options: Any,
) -> Any:
    # fmt: on
    """Attend from one query a sequence to the pages of a block table. Return ``out``.

    A query sees ``sliding_window`` keys including its own; 0 stands for all. Scales of K and V in 16 bits must be 1,
    which is checked for arrays of the host. Workspaces, partitions and ``cu_query_lens`` change nothing.

    Raises:
        ProblemError: several queries a sequence, a scale of O, or a cache in e5m2.
        An error of ckpm.base.errors: see :func:`ckpm.attention.call.fmha`.
    """
    del workspace_buffer, cu_query_lens, partition_size
    demand_arrays(3, query=query, key_cache=key_cache, value_cache=value_cache)
    demand_type("kv_cache_dtype", kv_cache_dtype, str, "a word, such as 'auto'")
    demand_type("sliding_window", sliding_window, int, "a number of keys")
    refuse("paged_attention_v1", {
        "fp8_out_scale": fp8_out_scale, "mtp": mtp != 1, "cache in e5m2": "e5m2" in kv_cache_dtype,
    })  # fmt: skip
    pages = Pages(indices=block_tables, seqlens_k=as_int32(context_lens), longest=max_context_len)
    return _attend_last(
        query, key_cache, value_cache, kv_cache_layout, pages, (k_scale, v_scale), out=out, scale=demand_scale(scale),
        soft_cap=logits_soft_cap, alibi_slopes=alibi_slopes, window=(max(sliding_window, 0) - 1, 0), **own_options,
    )  # fmt: skip


# fmt: off
def paged_attention_ragged(
    out: Any, workspace_buffer: Any, query: Any, key_cache: Any, value_cache: Any, scale: float, kv_indptr: Any,
    kv_page_indices: Any, kv_last_page_lens: Any, block_size: int, max_num_partitions: int, alibi_slopes: Any,
    kv_cache_dtype: str, kv_cache_layout: str, logits_soft_cap: float, k_scale: Any, v_scale: Any,
    fp8_out_scale: Any = None, partition_size: int = 256, mtp: int = 1, q_scale: Any = None, **own_options: Any,
) -> Any:
    # fmt: on
    """Attend from one query a sequence to a list of pages. Otherwise as :func:`paged_attention_v1`."""
    del workspace_buffer, max_num_partitions, partition_size
    demand_arrays(3, query=query, key_cache=key_cache, value_cache=value_cache)
    demand_type("kv_cache_dtype", kv_cache_dtype, str, "a word, such as 'auto'")
    refuse("paged_attention_ragged", {
        "fp8_out_scale": fp8_out_scale, "mtp": mtp != 1, "q_scale": q_scale, "cache in e5m2": "e5m2" in kv_cache_dtype,
    })  # fmt: skip
    pages = listed_pages(kv_page_indices, kv_indptr, kv_last_page_lens, block_size)
    return _attend_last(
        query, key_cache, value_cache, kv_cache_layout, pages, (k_scale, v_scale), out=out, scale=demand_scale(scale),
        soft_cap=logits_soft_cap, alibi_slopes=alibi_slopes, window=(-1, 0), **own_options,
    )  # fmt: skip


def _attend_last(
    q: Any, k: Any, v: Any, kv_cache_layout: str, pages: Pages, scales: tuple[Any, Any], **options: Any
) -> Any:
    """O of one query a sequence, over pages of [page, token, head, dim] (NHD) or [page, head, token, dim]."""
    demand_layout("kv_cache_layout", kv_cache_layout)
    if kv_cache_layout == "HND":
        k, v = swap_axes(k, 1, 2), swap_axes(v, 1, 2)
    sums = count_up(q.shape[0] + 1, q)
    return _attend_pages(
        q, (None, *scales), k=k, v=v, pages=pages, cu_seqlens_q=sums, max_seqlen_q=1, mask="bottom_right",
        **options,
    )  # fmt: skip


def _widen_first_or_last(
    attend: Callable[..., Any], q: Any, scales: tuple[Any, Any, Any], out: Any, *, first: bool
) -> Any:
    """O of an fp8 Q, or of Q widened to the dtype of ``out``.

    With ``first`` the widened Q is tried before Q itself, otherwise after it. If no kernel serves either, raise the
    refusal of Q itself.
    """
    if first:
        with contextlib.suppress(*NOT_SERVED):
            return attend(q=widen(q, scales[0], out), scales=(None, *scales[1:]))
    try:
        return attend(q=q, scales=scales)
    except NOT_SERVED as refused:
        if not first:
            with contextlib.suppress(*NOT_SERVED):
                return attend(q=widen(q, scales[0], out), scales=(None, *scales[1:]))
        raise refused


def _attend_pages(q: Any, scales: tuple[Any, Any, Any], *, k: Any, v: Any, pages: Pages, **options: Any) -> Any:
    """O of queries over pages in fp8 with a scale each, or in 16 bits with scales of 1."""
    return fmha(q, k, v, pages=pages, descales=cache_descales(k, scales), **options).o


def _dispatcher(own_options: Mapping[str, Any], q: Any) -> Dispatcher:
    """The dispatcher of a call: the caller's, or the default."""
    return chosen(own_options.get("dispatcher"), q)


def _mask(causal: bool, window_size: tuple[int, ...], sink_size: int) -> dict[str, Any]:
    """Options of aiter's mask. Some of its functions have the number of sinks as a third number of the window."""
    demand_type("window_size", window_size, tuple | list, "(left, right), or with the number of sinks")
    if len(window_size) not in (2, 3):
        raise ArgumentError(f"window_size has {len(window_size)} values: give (left, right).", kind="type")
    left, right, *sinks = window_size
    return {**mask_options(causal, left, right), "sink_size": sink_size or sum(sinks)}


def _results(done: Attention, lse: bool, random_values: bool) -> Any:
    more = [done.lse] if lse else []
    more += [done.random_values] if random_values else []
    return (done.o, *more) if more else done.o
