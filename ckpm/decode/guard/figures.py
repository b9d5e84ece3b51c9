"""Figures of a compiled kernel, and the budget that it has to stay within."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from ckpm.base.tablefile import Count
from ckpm.kernels.code.code_object import kernels, occupancy
from ckpm.matrix.dialects import compute_units

# the figures by name: less is better (-1), more is better (1), or neither alone (0)
DIRECTIONS: Mapping[str, int] = {
    "vgpr": -1,
    "agpr": 0,  # a part of vgpr
    "sgpr": 0,
    "vgpr_spills": -1,
    "sgpr_spills": -1,
    "scratch_bytes": -1,
    "lds_bytes": -1,
    "waves": 1,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Figures of one kernel from its code object.

    Registers are of a lane (``vgpr`` includes ``agpr``), scratch of a lane, LDS of a workgroup. ``waves`` fit on a SIMD
    at once.
    """

    vgpr: Count
    agpr: Count
    sgpr: Count
    vgpr_spills: Count
    sgpr_spills: Count
    scratch_bytes: Count
    lds_bytes: Count
    waves: Count

    def numbers(self) -> dict[str, int]:
        return dataclasses.asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelBudget:
    """Upper limits of VGPRs, spilled VGPRs and bytes of LDS, and a lower limit of waves on a SIMD."""

    vgpr: int = 512
    vgpr_spills: int = 0
    lds_bytes: int | None = None
    waves: int = 1


def figures_of(binary: bytes, *, arch: str, warps: int, lds_bytes: int) -> Figures:
    """The figures of a code object's one kernel, launched with ``warps`` waves and ``lds_bytes`` of LDS.

    Triton's LDS is a launch parameter. It is not in the code object, and counts into the occupancy.
    """
    (kernel,) = kernels(binary)
    lds = max(kernel.lds_bytes, lds_bytes)
    waves = occupancy(
        compute_units()[arch],
        vgpr=kernel.vgpr,
        lds_bytes=lds,
        workgroup=warps * kernel.wavefront,
        wavefront=kernel.wavefront,
    )
    own = ("vgpr", "agpr", "sgpr", "vgpr_spills", "sgpr_spills", "scratch_bytes")
    return Figures(**{name: getattr(kernel, name) for name in own}, lds_bytes=lds, waves=waves)


def over_budget(figures: Figures, budget: KernelBudget) -> tuple[str, ...]:
    """Reasons why the figures break the budget; empty if they don't."""
    units = {"vgpr": "VGPRs", "vgpr_spills": "spilled VGPRs", "lds_bytes": "bytes of LDS"}
    limits = [(getattr(figures, name), unit, getattr(budget, name)) for name, unit in units.items()]
    reasons = [
        f"{value} {unit}, of which the budget allows {limit}"
        for value, unit, limit in limits
        if limit is not None and value > limit
    ]
    if figures.waves < budget.waves:
        reasons.append(f"{figures.waves} waves on a SIMD, of which the budget requires {budget.waves}")
    return tuple(reasons)
