"""``ckpm bench``: the figures this project promises, as ratios measured in one run on one machine.

Absolute seconds are printed for orientation; targets in seconds were set for two processors. Large build graphs are
measured with a stub as compiler, because compiling thousands of kernels takes hours. Their rows are marked: they
measure the graph, not the compiler.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
from pathlib import Path

from ckpm.base import settings
from ckpm.base.display import show
from ckpm.base.files import write_atomically
from ckpm.base.outputs import demand_place
from ckpm.base.rocm_choice import add_rocm_options
from ckpm.bench import build, cold
from ckpm.bench.figures import Figure, table
from ckpm.kernels.code.toolchains import detect
from ckpm.kernels.upstream.trees import locate

log = logging.getLogger(__name__)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--upstream", default="aiter", help="the packaged upstream to compare with (default: aiter)")
    add_rocm_options(parser, "toolchain")
    parser.add_argument("--output", type=Path, default=None, help="also write the table to this file")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Measure everything and print the table. A missed target is marked, and doesn't fail the command."""
    from ckpm.bench import dispatch, emulated  # only here: other commands do without NumPy and the emulator

    if args.output:
        demand_place(args.output)
    cache = settings.cache_folder()
    tree = locate(args.upstream, cache=cache)
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="ckpm-bench-") as base:
        folder = Path(base)
        log.info("measuring enumeration")
        figures += build.compare_enumeration(tree, folder / "matrix")
        log.info("measuring rendering")
        figures += build.compare_rendering(tree, folder)
        log.info("measuring the build graph")
        figures += build.measure_graph(tree, folder)
        log.info("measuring merged units")
        figures.append(build.compare_merged(tree, detect(args.toolchain, cache=cache), folder / "merge"))
        log.info("measuring runs on the emulator")
        figures += emulated.measure(args.upstream, args.toolchain, folder / "run")
        log.info("measuring calls of the dispatcher")
        figures += dispatch.measure_call()
        figures += dispatch.measure_operator()
        log.info("measuring a kernel compiled on demand")
        figures += dispatch.measure_on_demand(tree, args.toolchain, folder / "demand")
        log.info("modelling V3 against V2")
        figures += emulated.model_versions(args.toolchain, folder / "versions")
        log.info("scoring the timing model")
        figures += emulated.score_timing(folder / "score")
        log.info("measuring a run without any cache")
        figures += cold.measure(args.upstream, args.toolchain, folder / "cold")
    text = table(figures)
    show(text)
    if args.output:
        write_atomically(args.output, text.encode())
    return 0
