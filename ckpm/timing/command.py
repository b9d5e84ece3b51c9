"""``ckpm timing model``: model the longest workgroup, or a chosen one, of the gates' problems."""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import functools
from pathlib import Path

from ckpm.base.display import show
from ckpm.base.errors import MeasureError, UsageError
from ckpm.matrix.problems.performance import performance_problems
from ckpm.matrix.problems.serving import missing_kernel
from ckpm.timing.measure import EVERY, add_measured_options, kernel_name, named_kernels, on_library
from ckpm.timing.record import Timed, Timings


def add_options(parser: argparse.ArgumentParser) -> None:
    add_measured_options(parser)
    parser.add_argument("--problem", default=EVERY, metavar="GLOB", help="problems of such a name alone")
    parser.add_argument(
        "--workgroup", type=_count, default=None, metavar="N", help="this one, and run no other (default: the longest)"
    )
    parser.add_argument(
        "--resident",
        type=functools.partial(_count, least=1),
        default=None,
        metavar="N",
        help="copies on a compute unit (default: as occupancy and grid allow)",
    )
    parser.add_argument("--full-gpu", action="store_true", help="copies as occupancy allows, however small the grid")
    parser.add_argument(
        "--sensitivity", action="store_true", help="also with a fifth less and a fifth more of each doubtful figure"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Model a library's problems and write the timings."""
    return on_library(args, lambda library, arch: _write(args, library, arch))


def _write(args: argparse.Namespace, library: Path, arch: str) -> int:
    timings = model(library, arch, args)
    timings.write(args.output)
    for name, why in timings.left_out.items():
        show(f"left out: {name}: {why}")
    for timed in timings.problems:
        show(summary(timed))
    show(f"{len(timings.problems)} problems of tier {args.tier} modelled on {arch}: {args.output}")
    return 0


def summary(timed: Timed) -> str:
    """Cycles of a workgroup, and the share of each phase with its largest stall."""
    shares = []
    for phase in timed.phases():
        cause, most = max(phase.stalls.items(), key=lambda stall: stall[1])
        shares.append(f"{phase.phase} {phase.cycles:.1%}" + (f" ({cause} {most:.1%})" if most else ""))
    return f"{timed.problem}: {timed.cycles} cycles; phases with their largest stalls: {', '.join(shares)}"


def model(library: Path, arch: str, args: argparse.Namespace) -> Timings:
    """Run and replay a workgroup of every problem of the tier that the library serves."""
    # only here: other commands do without NumPy and the emulator
    from ckpm.timing import modelling

    modelled = modelling.open_library(library, arch, foreign=args.library is not None)
    keys = named_kernels(modelled.keys, args.kernel)
    part = modelling.ModelRequest(
        workgroup=args.workgroup, resident=args.resident, full_gpu=args.full_gpu, sensitivity=args.sensitivity
    )
    timed, left_out = [], {}
    problems = [
        problem for problem in performance_problems(args.tier) if fnmatch.fnmatchcase(problem.name, args.problem)
    ]
    if not problems:
        raise UsageError(f"--problem: no problem of tier {args.tier} fits '{args.problem}'.")
    for problem in problems:
        outcome = missing_kernel(keys, problem) or modelled.model(
            problem, kernel_name(keys, problem, args.kernel), part
        )
        if isinstance(outcome, str):
            left_out[problem.name] = outcome
        else:
            timed.append(outcome)
    if not timed:
        raise MeasureError(f"{library}: it serves none of the {len(problems)} problems. Build more: --tier full.")
    return Timings(provenance=modelled.provenance(args.tier), problems=tuple(timed), left_out=left_out)


def _count(text: str, least: int = 0) -> int:
    with contextlib.suppress(ValueError):
        if (number := int(text)) >= least:
            return number
    raise argparse.ArgumentTypeError(f"{text}: give {least} or more")
