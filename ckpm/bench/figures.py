"""Measured figures and their table, and measured processes."""

from __future__ import annotations

import platform
import resource
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ckpm.base import jobs
from ckpm.base.errors import InconclusiveError
from ckpm.base.processes import own_environment, python_command


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured figure. ``met`` is None without a target; ``of_target`` is the measured number over the target's."""

    what: str
    measured: str
    target: str = "reported"
    met: bool | None = None
    of_target: float | None = None


def judge_most(what: str, measured: str, target: str, *shares: float) -> Figure:
    """A figure whose numbers are to stay below those of its target; ``shares`` are its numbers over the target's."""
    return Figure(what, measured, target, max(shares) < 1, max(shares))


def judge_least(what: str, measured: str, target: str, share: float) -> Figure:
    """A figure whose number is to reach its target's."""
    return Figure(what, measured, target, share >= 1, share)


@dataclass(frozen=True, slots=True)
class Spent:
    """A process: seconds of wall time and of all processors, and its standard output."""

    wall: float
    processors: float
    output: str

    def __str__(self) -> str:
        return f"{self.wall:.0f} s, {self.processors:.0f} processor seconds"


def python(*arguments: str, cache: str | None = None) -> Spent:
    """Run Python, with a cache folder of its own if one is given."""
    return spent(python_command(*arguments), {} if cache is None else {"CKPM_CACHE": cache})


def spent(command: Sequence[str], environment: Mapping[str, str]) -> Spent:
    """Run and measure a command; a failure is an InconclusiveError."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, env=own_environment(environment), capture_output=True, text=True, check=False)
    wall, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        raise InconclusiveError(f"{' '.join(command)} failed: {done.stdout[-2000:]}{done.stderr[-2000:]}", kind="bench")
    return Spent(wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout)


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
