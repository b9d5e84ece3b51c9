"""Names and edited dialects that several tests of the matrix use."""

from __future__ import annotations

import shutil
from pathlib import Path

from ckpm.matrix.dialects import TABLES, Dialect, dialect, read_dialect
from ckpm.matrix.explain import why
from ckpm.matrix.selection import Selection
from tests.unit.shared import replace_text

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


def reasons_against(name: str, kernel: str) -> list[str]:
    """Names of the rules and axes that keep a kernel out of a dialect on gfx950."""
    return [reason.name for reason in why(dialect(name), Selection(archs=("gfx950",)), kernel).reasons]


def edit_dialect(folder: Path, file: str, old: str, new: str) -> Dialect:
    """The dialect of ``file`` (DIALECT/TABLE) from a copy of all dialects in which a text is replaced."""
    shutil.copytree(TABLES / "dialects", folder, dirs_exist_ok=True)
    table = folder / f"{file}.yaml"
    table.write_text(replace_text(table.read_text(), old, new))
    return read_dialect(folder / Path(file).parent)
