"""Estimate a launch from its longest workgroup: the grid's cycles on a GPU, and published figures beside them.

A launch that is resident at once takes as long as its longest workgroup. A larger launch takes the sum of its
workgroups over the compute units. A workgroup's cycles are proportional to the keys that it sees. Memory bandwidth and
clock are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ckpm.attention.timing.record import Timed
from ckpm.matrix.problems.case import SuiteCase
from ckpm.matrix.problems.problem import mask_corner
from ckpm.reports.gates.model import Machine, machines
from ckpm.reports.gates.references import read_references
from ckpm.reports.problems import flops, known_problems


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """``published`` are figures of the same problem in TFLOP/s, by the document's variant."""

    cycles: float
    tflops: float
    published: Mapping[str, float]


def launch(one: Timed, arch: str) -> Launch | None:
    """Estimate a launch. None if problem or arch is unknown, no score is seen, or the launch is too small for
    ``resident`` copies on each compute unit.
    """
    problem, machine = known_problems().get(one.problem), machines().get(arch)
    if problem is None or machine is None or not (lengths := _lengths(problem, one.tile_rows)):
        return None
    if one.resident > -(-one.launched // machine.compute_units):
        return None
    cycles = _cycles(one, machine, sum(lengths) / len(lengths) / max(lengths))
    figures = {
        reference.variant: reference.value
        for reference in read_references()
        if reference.metric == "tflops" and reference.shape and reference.shape.is_of(problem)
    }
    return Launch(cycles=cycles, tflops=flops(problem) / (cycles / machine.clock_mhz / 1e6) / 1e12, published=figures)


def show_published(whole: Launch) -> str:
    """The published figures as text."""
    return ", ".join(f"{variant} {value:g}" for variant, value in whole.published.items())


def _cycles(one: Timed, machine: Machine, mean: float) -> float:
    """``mean``: the average workgroup's keys over the longest's."""
    return max(one.cycles, one.launched * mean * one.cycles / one.resident / machine.compute_units)


def _lengths(problem: SuiteCase, rows: int) -> list[int]:
    """Keys that each tile of queries of one head goes through."""
    lengths = []
    for q, k in zip(problem.seqlens_q, problem.seqlens_k, strict=True):
        y, x = mask_corner(problem, q, k) if problem.mask != "no" else (q + k, q + k)
        for first in range(0, q, rows):
            last = min(first + rows, q) - 1
            lengths.append(max(0, min(k, last + x) - max(0, first - y + 1)))
    return lengths if any(lengths) else []
