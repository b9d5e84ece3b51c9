"""The families of kernels that can be compiled, a line each. Other families can only be listed (matrix/)."""

from __future__ import annotations

from ckpm.kernels.families import (
    batch_prefill,
    fwd,
    fwd_appendkv,
    fwd_pagedkv,
    fwd_splitkv,
    fwd_splitkv_combine,
    fwd_v3,
)
from ckpm.kernels.families.backward import convert_dq, dot_do_o, dq_dk_dv
from ckpm.kernels.families.family import KernelFamily

FAMILIES: dict[str, KernelFamily] = {
    family.name: family
    for family in (
        batch_prefill.FAMILY,
        fwd.FAMILY,
        fwd_pagedkv.FAMILY,
        fwd_splitkv.FAMILY,
        fwd_splitkv_combine.FAMILY,
        fwd_appendkv.FAMILY,
        fwd_v3.FAMILY,
        dot_do_o.FAMILY,
        dq_dk_dv.FAMILY,
        convert_dq.FAMILY,
    )
}
