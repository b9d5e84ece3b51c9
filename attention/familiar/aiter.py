"""aiter's batch prefill by its own name and parameters (aiter/ops/mha.py, mha_batch_prefill_func, of summer 2026)."""

from __future__ import annotations

from typing import Any

from ckpm.attention.arrays.tables import Pages
from ckpm.attention.call import fmha
from ckpm.attention.familiar.tensors import add_page_axis, demand_scale
from ckpm.base.errors import ArgumentError


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
    """O, or (O, LSE), or (O, LSE, random bytes): LSE is natural, [head, query token].

    K and V are [token, head, dim] (pages of one token), [page, token, head, dim], or vectorized as
    attention.arrays.posing describes. The mask's corner is the bottom right. ``deterministic`` is read and changes
    nothing: the forward pass is. ``ours`` are ``dispatcher``, and ``dtype`` for arrays that don't say theirs. LSE
    under a causal mask with ALiBi is softmax's for arrays of the host, and the kernel's on the device, as aiter returns
    it (ckpm.attention.alibi).

    Raises:
        ArgumentError: some scales are there and others are not. Else as :func:`ckpm.attention.call.fmha`.
    """
    del deterministic
    flat = block_table is None
    pages = Pages(
        indices=kv_page_indices if flat else block_table,
        indptr=kv_indptr if flat else None,
        last_page_lens=kv_last_page_lens if flat else None,
        seqlens_k=None if flat else seqlen_k,
        kv_layout="vectorized" if len(k.shape) == 5 else "linear",
        longest=max_seqlen_k,
    )
    left, right, *sinks = window_size
    done = fmha(
        q, add_page_axis(k), add_page_axis(v), cu_seqlens_q=cu_seqlens_q, max_seqlen_q=max_seqlen_q, pages=pages,
        dropout=dropout_p,
        scale=demand_scale(softmax_scale), soft_cap=logits_soft_cap, alibi_slopes=alibi_slopes, lse=return_lse,
        mask="bottom_right" if causal or (left, right) != (-1, -1) else "no",
        window=(left, 0 if causal else right), sink_size=sink_size or sum(sinks), sink_logits=sink_ptr,
        descales=_descales((q_descale, k_descale, v_descale), kv_block_descale), kv_block_descale=kv_block_descale,
        random_values=return_attn_probs and dropout_p > 0, out=out, **ours,
    )  # fmt: skip
    more = [done.lse] if return_lse else []
    more += [done.random_values] if return_attn_probs else []
    return (done.o, *more) if more else done.o


def _descales(given: tuple[Any, Any, Any], of_pages: Any) -> tuple[Any, Any, Any] | None:
    """Q's scale with K's and V's or with those of pages, as aiter wants them; None without scales."""
    there = [one is not None for one in given]
    if of_pages is not None and there != [True, False, False]:
        raise ArgumentError("kv_block_descale comes with q_descale, without k_descale and v_descale.", kind="dtype")
    if of_pages is None and any(there) and not all(there):
        raise ArgumentError("q_descale, k_descale and v_descale come together.", kind="dtype")
    return given if any(there) else None
