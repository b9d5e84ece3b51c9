"""Figures of enumerating: whole processes that print every name, against the upstream's own codegen."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from ckpm.base.errors import BenchError
from ckpm.bench.figures import Figure, timed
from ckpm.kernels.library.request import PROJECT
from ckpm.kernels.upstream import codegen_runner
from ckpm.kernels.upstream.trees import Tree
from ckpm.matrix.dialects import APIS, archs

NEWEST = "rocm-libraries-2026"


@dataclass(frozen=True, slots=True)
class _Run:
    """A whole process: wall seconds, peak resident bytes, lines printed."""

    seconds: float
    peak_bytes: int
    lines: int


def _list(folder: Path, *options: str) -> _Run:
    """``python -m matrix list`` with all families; its best of three runs."""
    runs = []
    for _ in range(3):
        with (folder / "names.txt").open("wb") as output:
            started = time.perf_counter()
            command = [sys.executable, "-m", "ckpm.matrix", "list", "--family", "all", *options]
            process = subprocess.Popen(command, cwd=PROJECT, stdout=output, stderr=subprocess.DEVNULL)
            _, status, usage = os.wait4(process.pid, 0)
            seconds = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            raise BenchError(f"{' '.join(command)} ended with {process.returncode}.")
        lines = (folder / "names.txt").read_bytes().count(b"\n")
        runs.append(_Run(seconds, usage.ru_maxrss * 1024, lines))
    return min(runs, key=lambda run: run.seconds)


def figures(tree: Tree, folder: Path) -> list[Figure]:
    """All nine families on gfx950, receipt 0, both mask sets; beside the packaged upstream; a filter over all archs."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for mask, seconds in (("simplified", 1.0), ("generic", 1.5)):
        run = _list(folder, "--dialect", NEWEST, "--mask", mask)
        rows.append(
            Figure(
                f"list {run.lines:,} kernels of nine families ({NEWEST}, {mask} masks), whole process",
                f"{run.seconds:.2f} s, {run.peak_bytes / 1e6:.0f} MB",
                f"< {seconds} s, < 200 MB",
                run.seconds < seconds and run.peak_bytes < 200e6,
            )
        )
    ours = _list(folder, "--dialect", tree.dialect)
    listed: list[int] = []
    theirs = timed(
        lambda: listed.append(len(codegen_runner.list_names(tree, "gfx950", ",".join(APIS), 0, "simplified")))
    )
    if listed != [ours.lines]:
        raise BenchError(f"{tree.name} lists {listed} kernels, the matrix {ours.lines}; 'kernels parity' says more.")
    ratio = theirs / ours.seconds
    rows.append(
        Figure(
            f"list {ours.lines:,} kernels of {tree.name}, against its own codegen, whole processes",
            f"{ours.seconds:.2f} s against {theirs:.1f} s: {ratio:.0f} times faster",
            ">= 10 times",
            ratio >= 10,
        )
    )
    every = _list(folder, "--dialect", NEWEST, "--arch", ",".join(archs()), "--filter", "*_d128_*")
    rows.append(
        Figure(
            f"list --filter over all archs and families ({every.lines:,} kernels), whole process",
            f"{every.seconds:.2f} s",
            "< 3 s",
            every.seconds < 3,
        )
    )
    return rows
