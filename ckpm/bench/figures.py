"""Measured figures and their table."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ckpm.base import jobs


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured figure. ``met`` is None without a target."""

    what: str
    measured: str
    target: str
    met: bool | None


def seconds_of(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def table(figures: Sequence[Figure]) -> str:
    """The figures as a Markdown table."""
    rows = ["| figure | measured | target | met |", "| --- | --- | --- | --- |"]
    marks = {True: "yes", False: "NO", None: "-"}
    rows += [f"| {f.what} | {f.measured} | {f.target} | {marks[f.met]} |" for f in figures]
    machine = f"{jobs.processors()} processors, {platform.machine()}, Python {platform.python_version()}"
    return f"# Bench\n\nMachine: {machine}.\n\n" + "\n".join(rows) + "\n"
