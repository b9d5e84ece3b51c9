"""Names that the tests of matrix commands use."""

from __future__ import annotations

from collections.abc import Callable

Run = Callable[..., tuple[int, str, str]]  # what a fixture `run` gives: exit code, standard output, standard error

TILE = "b64x128x64x128x64x128_r4x1x1_r4x1x1_w16x16x16_w16x16x16"
GROUP = f"fmha_batch_prefill_d128_bf16_group_{TILE}_qr_async_vr_psskddv_nlogits_nbias_mask_lse_ndropout_nsquant"
NEWEST = (
    f"fmha_batch_prefill_d128_bf16_group_ps16_bload_{TILE}_qr_async_vr_psskddv_nlogits_nbias_mask_lse_ndropout_nqscale"
    "_nsink_vectorized_sglang"
)
ABSENT = (
    "ck-2025-11 has no batch_prefill kernel for gfx1100: batch prefill gathers pages through gfx9 buffer instructions; "
    "wave32 archs have no such pipeline\n"
)
