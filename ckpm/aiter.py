"""``ckpm.aiter``: aiter's functions by their own names and parameters, over this project's kernels."""

from ckpm.attention.callers.aiter import (
    flash_attn_varlen_fp8_pertensor_func,
    flash_attn_varlen_func,
    mha_batch_prefill_func,
    mla_decode_fwd,
    mla_prefill_fwd,
    mla_prefill_ps_asm_fwd,
    mla_reduce_v1,
    paged_attention_ragged,
    paged_attention_v1,
    unified_attention,
)

__all__ = [
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
]
