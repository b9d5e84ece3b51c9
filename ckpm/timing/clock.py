"""The clock of a GPU at its power cap, fitted to published launches with known loop cycles and TFLOP/s.

The busier the matrix units, the lower the clock: GHz = constant / share ** exponent, at most the product's peak.
Published MFMA shares are of loops. Some 2 to 5 % of those launches are outside of the loop (OUTSIDE).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ckpm.timing.model import Machine, machines
from ckpm.timing.published import PublishedFigure, published_figures

OUTSIDE = 0.035
BOARDS = 0.14  # relative, ours: how far the clocks of boards may differ (references.yaml); not the model's error
LAUNCH_SECONDS = 2.7e-6  # of many short kernels one after another: bitonic sort, 2.5 to 2.9 us (mgpusim's MI300A times)
_MATRIX_CYCLES = 4096  # of two tiles of 64 keys, 256 queries and head dim 128, as in the table
_FITTED = ("MI355X", 16)  # its rows give the exponent; shares of the others differ too little


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """A GPU's clock by the matrix units' share. ``residual`` is the largest relative error of the fit on its rows."""

    constant: float
    exponent: float
    peak: float
    residual: float

    def ghz(self, share: float) -> float:
        return min(self.peak, self.constant * math.pow(share, -self.exponent))


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A published launch: the matrix units' share of its loop, and the clock that its TFLOP/s mean."""

    share: float
    ghz: float


def points(
    figures: Iterable[PublishedFigure], machines_by_arch: Mapping[str, Machine]
) -> dict[tuple[str, int], list[Point]]:
    """Calibrating launches by GPU and width of element."""
    rows = {(figure.kernel, figure.label, figure.metric): figure for figure in figures if figure.role == "calibrate"}
    points_by_gpu: dict[tuple[str, int], list[Point]] = {}
    for (kernel, label, metric), figure in rows.items():
        if metric != "tflops":
            continue
        cycles, share = rows.get((kernel, label, "cycles")), rows.get((kernel, label, "share"))
        busy = share.value / 100 if share else _MATRIX_CYCLES / cycles.value if cycles else 0
        if busy:
            machine = machines_by_arch[figure.arch]
            peak = machine.matrix_flops * machine.compute_units * (16 // figure.bits) / 1e3  # TFLOP/s at 1 GHz
            ghz = figure.value / (peak * busy * (1 - OUTSIDE))
            points_by_gpu.setdefault((figure.gpu, figure.bits), []).append(Point(share=busy, ghz=ghz))
    return points_by_gpu


def fit_clocks(
    figures: Iterable[PublishedFigure], machines_by_arch: Mapping[str, Machine]
) -> dict[tuple[str, int], Clock]:
    """Clocks by GPU and width: least squares of the logarithms, with one exponent for all."""
    points_by_gpu = points(figures, machines_by_arch)
    exponent = -_slope([(math.log(point.share), math.log(point.ghz)) for point in points_by_gpu[_FITTED]])
    peaks = {machine.product: machine.clock_mhz / 1e3 for machine in machines_by_arch.values()}
    clocks = {}
    for (gpu, bits), some in points_by_gpu.items():
        constant = math.exp(sum(math.log(point.ghz * point.share**exponent) for point in some) / len(some))
        residual = max(abs(point.ghz * point.share**exponent / constant - 1) for point in some)
        clocks[gpu, bits] = Clock(constant=constant, exponent=exponent, peak=peaks[gpu], residual=residual)
    return clocks


@functools.cache
def clock_of(product: str, bits: int) -> Clock:
    """The clock of a product, fitted to the table of published figures."""
    return fit_clocks(published_figures(), machines())[product, bits]


def _slope(values: list[tuple[float, float]]) -> float:
    x, y = (sum(pair[i] for pair in values) / len(values) for i in (0, 1))
    return sum((pair[0] - x) * (pair[1] - y) for pair in values) / sum((pair[0] - x) ** 2 for pair in values)
