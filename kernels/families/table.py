"""The families that there is C++ for: a line each. What is not here has names and rules (matrix/) but no text."""

from __future__ import annotations

from kernels.families import (
    batch_prefill,
    fwd,
    fwd_appendkv,
    fwd_pagedkv,
    fwd_splitkv,
    fwd_splitkv_combine,
    fwd_v3,
)
from kernels.families.family import Family

FAMILIES: dict[str, Family] = {
    one.name: one
    for one in (
        batch_prefill.FAMILY,
        fwd.FAMILY,
        fwd_pagedkv.FAMILY,
        fwd_splitkv.FAMILY,
        fwd_splitkv_combine.FAMILY,
        fwd_appendkv.FAMILY,
        fwd_v3.FAMILY,
    )
}
