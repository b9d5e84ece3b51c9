"""``python -m kernels bench``: the figures this project promises, as ratios measured in one run on one machine.

Absolute seconds are printed for orientation; targets in seconds were set for two processors. The figures about large
build graphs use a stub in the compiler's place (a copy of the source), because compiling thousands of kernels takes
hours: what they measure is the graph, not the compiler. The table says so.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from ckpm.base import settings
from ckpm.base.console import PlainConsole, say
from ckpm.base.files import write_atomically
from ckpm.base.outputs import demand_place
from ckpm.bench import build as bench_build
from ckpm.bench import cold, on_demand
from ckpm.bench import matrix as bench_matrix
from ckpm.bench.figures import Figure, table
from ckpm.kernels.code.toolchains import CHOICES, detect
from ckpm.kernels.upstream.trees import locate


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--upstream", default="aiter", help="the packaged upstream to compare with (default: aiter)")
    parser.add_argument("--toolchain", default="auto", choices=CHOICES, help="(default: auto)")
    parser.add_argument("--output", type=Path, default=None, help="also write the table to this file")


def run(args: argparse.Namespace, modelled: Callable[[str, Path], Sequence[Figure]]) -> int:
    """Measure everything and print the table; a missed target is named there and decides nothing (gates do that).

    ``modelled`` gives the timing model's figures for a toolchain, building in a folder.
    """
    from ckpm.bench import emulated  # only here: other commands do without NumPy and the emulator

    console = PlainConsole()
    if args.output:
        demand_place(args.output)
    cache = settings.cache_folder()
    tree = locate(args.upstream, cache=cache)
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="ckpm-bench-") as base:
        folder = Path(base)
        console.print("measuring enumeration")
        figures += bench_matrix.figures(tree, folder / "matrix")
        console.print("measuring rendering")
        figures += bench_build.rendering(tree, folder)
        console.print("measuring the build graph")
        figures += bench_build.graph(tree, folder)
        console.print("measuring merged units")
        figures.append(bench_build.merging(tree, detect(args.toolchain, cache=cache), folder / "merge"))
        console.print("measuring runs on the emulator")
        figures += emulated.figures(args.upstream, args.toolchain, folder / "run")
        console.print("measuring a kernel compiled on demand")
        figures += on_demand.figures(tree, args.toolchain, folder / "demand")
        console.print("modelling V3 against V2")
        figures += modelled(args.toolchain, folder / "versions")
        console.print("measuring a run without any cache")
        figures += cold.figures(args.upstream, args.toolchain, folder / "cold")
    text = table(figures)
    say(console, text)
    if args.output:
        write_atomically(args.output, text.encode())
    return 0
