"""``ckpm bench``: the figures this project promises, as ratios measured in one run on one machine.

Absolute seconds are printed for orientation; targets in seconds were set for two processors. Large build graphs are
measured with a stub as compiler, because compiling thousands of kernels takes hours. Their rows are marked: they
measure the graph, not the compiler.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from ckpm.base import settings
from ckpm.base.display import show
from ckpm.base.errors import UnknownWordError
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
    parser.add_argument(
        "--figure",
        action="append",
        default=[],
        metavar="NAME",
        help="measure the figures of this name; may be repeated",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Measure everything and print the table. A missed target is marked, and doesn't fail the command.

    The first error of a measurement is raised after the table of the others.
    """
    from ckpm.bench import dispatch, emulated  # only here: other commands do without NumPy and the emulator

    if args.output:
        demand_place(args.output)
    cache = settings.cache_folder()
    tree = locate(args.upstream, cache=cache)
    figures: list[Figure] = []
    errors: list[Exception] = []
    with tempfile.TemporaryDirectory(prefix="ckpm-bench-") as base:
        folder = Path(base)
        measurements: Mapping[str, Callable[[], list[Figure]]] = {
            "enumeration": lambda: build.compare_enumeration(tree, folder / "matrix"),
            "rendering": lambda: build.compare_rendering(tree, folder),
            "the build graph": lambda: build.measure_graph(tree, folder),
            "merged units": lambda: [build.compare_merged(tree, detect(args.toolchain, cache=cache), folder / "merge")],
            "runs on the emulator": lambda: emulated.measure(args.upstream, args.toolchain, folder / "run"),
            "calls of the dispatcher": dispatch.measure_call,
            "calls of PyTorch's operator": dispatch.measure_operator,
            "a kernel compiled on demand": lambda: dispatch.measure_on_demand(tree, args.toolchain, folder / "demand"),
            "V3 against V2 on the timing model": lambda: emulated.model_versions(args.toolchain, folder / "versions"),
            "the timing model's score": lambda: emulated.score_timing(folder / "score"),
            "a run without any cache": lambda: cold.measure(args.upstream, args.toolchain, folder / "cold"),
        }
        if unknown := [name for name in args.figure if name not in measurements]:
            raise UnknownWordError("figure", unknown[0], measurements)
        for name in args.figure or measurements:
            log.info("measuring %s", name)
            try:
                figures += measurements[name]()
            except Exception as error:  # an hour of other figures is printed before it fails the command
                log.error("%s: %s", name, error)
                figures.append(Figure(name, f"failed: {type(error).__name__}", "measured", False))
                errors.append(error)
    text = table(figures)
    show(text)
    if args.output:
        write_atomically(args.output, text.encode())
    if errors:
        raise errors[0]
    return 0
