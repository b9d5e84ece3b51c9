"""aiter's latent attention by its own names and parameters (aiter/mla.py and aiter/ops/attention.py of summer 2026)."""

from __future__ import annotations

from typing import Any

from ckpm.attention.arrays.options import read_number
from ckpm.attention.call import fmha
from ckpm.attention.callers.tensors import (
    add_page_axis,
    cache_descales,
    demand_arrays,
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
from ckpm.base.errors import ProblemError

LSE = "lse_of_ckpm"  # the attribute that mla_prefill_ps_asm_fwd leaves on a buffer for mla_reduce_v1


# fmt: off
def mla_decode_fwd(
    q: Any, kv_buffer: Any, o: Any, qo_indptr: Any, kv_indptr: Any, kv_indices: Any, kv_last_page_lens: Any,
    max_seqlen_q: int, page_size: int = 1, nhead_kv: int = 1, sm_scale: float | None = None, logit_cap: float = 0.0,
    num_kv_splits: int | None = None, num_kv_splits_indptr: Any = None, work_meta_data: Any = None,
    work_indptr: Any = None, work_info_set: Any = None, reduce_indptr: Any = None, reduce_final_map: Any = None,
    reduce_partial_map: Any = None, q_scale: Any = None, kv_scale: Any = None, intra_batch_mode: bool = False,
    return_logits: bool = False, return_lse: bool = False, g_kv_indptr: Any = None, cp_world_size: int = 1,
    cp_rank: int = 0, causal: bool = True, **own_options: Any,
) -> Any:
    # fmt: on
    """Attend from queries to a cache of latents, in which V is the beginning of K.

    Return (``o``, LSE [query token, head] or None). The cache is [page, token, 1, dim], in 16 bits or in fp8 with
    ``kv_scale``. A Q in fp8, with ``q_scale``, is widened to ``o``'s dtype. With a Q of 16 bits and fp8 latents
    ``q_scale`` is not read, as in aiter. Splits and schedules of aiter's own kernels change nothing. aiter returns
    partial results where this function returns ``o``.

    Raises:
        ProblemError: a part of a sequence's keys (context parallel), or partial results.
        An error of ckpm.base.errors: see :func:`ckpm.attention.call.fmha`.
    """
    del nhead_kv, num_kv_splits, num_kv_splits_indptr, work_meta_data, work_indptr, work_info_set, reduce_indptr
    del reduce_final_map, reduce_partial_map, intra_batch_mode, cp_rank
    demand_arrays(3, q=q, o=o)
    demand_values(4, kv_buffer=kv_buffer)
    refuse("mla_decode_fwd", {
        "g_kv_indptr": g_kv_indptr, "cp_world_size": cp_world_size != 1, "return_logits": return_logits,
    })  # fmt: skip
    if has_fp8(q):
        q, q_scale = widen(q, q_scale, o), None
    scales = None if has_fp8(kv_buffer) else q_scale, kv_scale, kv_scale
    done = fmha(
        q, kv_buffer, kv_buffer[..., : o.shape[-1]], cu_seqlens_q=qo_indptr, max_seqlen_q=max_seqlen_q,
        pages=listed_pages(kv_indices, kv_indptr, kv_last_page_lens, page_size), scale=demand_scale(sm_scale),
        soft_cap=max(read_number("logit_cap", logit_cap), 0.0), lse=return_lse, out=o,
        descales=cache_descales(kv_buffer, scales), **mask_options(causal, -1, -1), **own_options,
    )  # fmt: skip
    return o, _by_token(done.lse) if return_lse else None


def _by_token(lse: Any) -> Any:
    """LSE [query token, head], contiguous as aiter's: SGLang gathers its memory as it lies."""
    turned = swap_axes(lse, 0, 1)
    return turned.contiguous() if hasattr(turned, "contiguous") else turned


# fmt: off
def mla_prefill_fwd(
    q: Any, kv_buffer: Any, o: Any, qo_indptr: Any, kv_indptr: Any, kv_indices: Any, kv_last_page_lens: Any,
    max_seqlen_q: int, sm_scale: float | None = None, logit_cap: float = 0.0, num_kv_splits: int | None = None,
    **own_options: Any,
) -> Any:
    # fmt: on
    """Return (``o``, LSE [query token, 1, head, 1]) as :func:`mla_decode_fwd`, under a causal mask."""
    del num_kv_splits
    demand_arrays(4, kv_buffer=kv_buffer)
    o, lse = mla_decode_fwd(
        q, kv_buffer, o, qo_indptr, kv_indptr, kv_indices, kv_last_page_lens, max_seqlen_q, kv_buffer.shape[1],
        sm_scale=sm_scale, logit_cap=logit_cap, return_lse=True, **own_options,
    )  # fmt: skip
    return o, lse[:, None, :, None]


# fmt: off
def mla_prefill_ps_asm_fwd(
    Q: Any, K: Any, V: Any, qo_indptr: Any, kv_indptr: Any, kv_page_indices: Any, work_indptr: Any,  # noqa: N803
    work_info_set: Any, max_seqlen_q: int, softmax_scale: float, is_causal: bool, splitData: Any,  # noqa: N803
    splitLse: Any, output: Any,  # noqa: N803
    q_scale: Any = None, k_scale: Any = None, v_scale: Any = None, **own_options: Any,
) -> None:
    # fmt: on
    """Write O [query token, head, dim] in bf16, of Q, K and V in fp8 [token, head, dim] with a scale each.

    aiter's kernel leaves parts, and :func:`mla_reduce_v1` merges them. This function leaves no parts: O is whole, and
    its LSE is kept on ``splitLse``. The same tensor must be passed to :func:`mla_reduce_v1`. Another reduction
    overwrites O with parts that nothing wrote. Schedules change nothing.

    Raises:
        ProblemError: Q is not in fp8, or O not in bf16; or ``splitLse`` takes no attribute (a raw address, an array of
            NumPy).
        An error of ckpm.base.errors: see :func:`ckpm.attention.call.fmha`.
    """
    del work_indptr, work_info_set, splitData
    demand_arrays(3, Q=Q, K=K, V=V, output=output)
    refuse("mla_prefill_ps_asm_fwd", {
        "Q of 16 bits": not has_fp8(Q), "splitLse without attributes": not hasattr(splitLse, "__dict__"),
        "output of another dtype than bf16": str(output.dtype).rpartition(".")[2] not in ("bfloat16", "bf16"),
    })  # fmt: skip
    done = fmha(
        Q, add_page_axis(K), add_page_axis(V), cu_seqlens_q=qo_indptr, max_seqlen_q=max_seqlen_q,
        pages=listed_pages(kv_page_indices, kv_indptr, None, 1), scale=demand_scale(softmax_scale), lse=True,
        out=output, descales=descales_of((q_scale, k_scale, v_scale), None), **mask_options(is_causal, -1, -1),
        **own_options,
    )  # fmt: skip
    setattr(splitLse, LSE, done.lse)


# fmt: off
def mla_reduce_v1(
    partial_output: Any, partial_lse: Any, reduce_indptr: Any, reduce_final_map: Any, reduce_partial_map: Any,
    max_seqlen_q: Any = None, num_kv_splits: Any = None, final_output: Any = None, final_lse: Any = None,
    **own_options: Any,
) -> None:
    # fmt: on
    """Write the LSE [query token, head] that :func:`mla_prefill_ps_asm_fwd` kept. O is whole already.

    Older aiters have no ``num_kv_splits``: by position, O and LSE are then one earlier.

    Raises:
        ProblemError: the parts come from aiter's own kernel.
    """
    del partial_output, reduce_indptr, reduce_final_map, reduce_partial_map, max_seqlen_q, own_options
    if getattr(num_kv_splits, "shape", ()):
        final_lse = final_output
    if not hasattr(partial_lse, LSE):
        raise ProblemError("mla_reduce_v1 merges no parts of aiter's own kernels here.")
    lse = swap_axes(getattr(partial_lse, LSE), 0, 1)
    delattr(partial_lse, LSE)
    if final_lse is not None:
        demand_values(final_lse=final_lse)
        final_lse[...] = lse
