"""The figures of bench of V3 against V2 on the timing model: a few rows of the tables of CK's pull request 6054.

Of launches that are resident at once, whose cycles are those of the longest workgroup. All rows: kernels timing-tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ckpm.attention.timing.record import Timings
from ckpm.attention.timing.tables import PUBLISHED, model
from ckpm.bench.figures import Figure

# Queries and keys, 6 heads on one, causal -> the pull request's own ratio (its TFLOP/s: reports/gates/references.yaml)
_SCALES: Mapping[str, tuple[str, Mapping[str, float]]] = {
    "tensor": ("one scale a tensor, pages of 1", {"1k": 1.11, "4k": 1.31, "8k": 1.39}),
    "page": ("block scales, pages of 1,024", {"1k": 1.06, "4k": 1.22, "8k": 1.31}),
}


def figures(toolchain: str, folder: Path) -> list[Figure]:
    """Build V2 and V3 below ``folder`` and model them. Raises as :func:`ckpm.attention.timing.tables.model`."""
    timings = model(f"{PUBLISHED[:-1]}*-q[148]k", toolchain, folder)
    return [_figure(timings, scale) for scale in _SCALES]


def _figure(timings: Timings, scale: str) -> Figure:
    what, published = _SCALES[scale]
    ratios = {length: _ratio(timings, f"{PUBLISHED[:-1]}{scale}-q{length}") for length in published}
    return Figure(
        f"timing model: V3 as fast as so many of V2, fp8, causal, {what}: {', '.join(ratios)} queries and keys",
        ", ".join(f"{ratio:.2f}" for ratio in ratios.values()),
        f">= {', '.join(f'{ratio:.2f}' for ratio in published.values())} (published)",
        all(ratios[length] >= ratio for length, ratio in published.items()),
    )


def _ratio(timings: Timings, problem: str) -> float:
    """Cycles of V2 over those of V3: in this order both rows of a problem are V3, V2."""
    v3, v2 = (one.cycles for one in timings.problems if one.problem == problem)
    return v2 / v3
