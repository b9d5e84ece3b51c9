"""``ckpm bench``: the figures this project promises, as ratios measured in one run on one machine.

Absolute seconds are printed for orientation; targets in seconds were set for two processors. For large build graphs a
stub takes the compiler's place, because compiling thousands of kernels takes hours. Rows with the stub are marked: they
measure the graph, not the compiler.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from ckpm.base import settings
from ckpm.base.console import PlainConsole, say
from ckpm.base.files import write_atomically
from ckpm.base.outputs import demand_place
from ckpm.bench import build, cold
from ckpm.bench.figures import Figure, table
from ckpm.kernels.code.toolchains import CHOICES, detect
from ckpm.kernels.upstream.trees import locate


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--upstream", default="aiter", help="the packaged upstream to compare with (default: aiter)")
    parser.add_argument("--toolchain", default="auto", choices=CHOICES, help="(default: auto)")
    parser.add_argument("--output", type=Path, default=None, help="also write the table to this file")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Measure everything and print the table. A missed target is marked there and decides nothing: gates do that."""
    from ckpm.bench import dispatch, emulated  # only here: other commands do without NumPy and the emulator

    console = PlainConsole()
    if args.output:
        demand_place(args.output)
    cache = settings.cache_folder()
    tree = locate(args.upstream, cache=cache)
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="ckpm-bench-") as base:
        folder = Path(base)
        console.print("measuring enumeration")
        figures += build.compare_enumeration(tree, folder / "matrix")
        console.print("measuring rendering")
        figures += build.compare_rendering(tree, folder)
        console.print("measuring the build graph")
        figures += build.measure_graph(tree, folder)
        console.print("measuring merged units")
        figures.append(build.compare_merged(tree, detect(args.toolchain, cache=cache), folder / "merge"))
        console.print("measuring runs on the emulator")
        figures += emulated.measure(args.upstream, args.toolchain, folder / "run")
        console.print("measuring calls of the dispatcher")
        figures += dispatch.measure_call()
        console.print("measuring a kernel compiled on demand")
        figures += dispatch.measure_on_demand(tree, args.toolchain, folder / "demand")
        console.print("modelling V3 against V2")
        figures += emulated.model_versions(args.toolchain, folder / "versions")
        console.print("measuring a run without any cache")
        figures += cold.measure(args.upstream, args.toolchain, folder / "cold")
    text = table(figures)
    say(console, text)
    if args.output:
        write_atomically(args.output, text.encode())
    return 0
