"""Measured figures and their table."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ckpm.base import jobs


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured figure. ``met`` is None without a target; ``of_target`` is the measured number over the target's."""

    what: str
    measured: str
    target: str
    met: bool | None
    of_target: float | None = None


def seconds_of(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def table(figures: Sequence[Figure]) -> str:
    """The figures as a Markdown table."""
    rows = ["| figure | measured | target | met |", "| --- | --- | --- | --- |"]
    marks = {True: "yes", False: "NO", None: "-"}
    rows += [f"| {f.what} | {f.measured} | {f.target} | {marks[f.met]} |" for f in figures]
    missed = [f for f in figures if f.met is False]
    misses = [
        f"- {f.what}: {f.measured}, target {f.target}{f' ({f.of_target:.2f} of it)' if f.of_target else ''}"
        for f in missed
    ]
    end = "\n".join(("\nMissed targets:\n", *misses, "")) if missed else "\nNo target was missed.\n"
    machine = f"{jobs.processors()} processors, {platform.machine()}, Python {platform.python_version()}"
    return f"# Bench\n\nMachine: {machine}.\n\n" + "\n".join(rows) + f"\n{end}"
