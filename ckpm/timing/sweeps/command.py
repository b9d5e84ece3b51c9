"""``ckpm sweep run CONFIG``: compile a configuration's kernels, run each on each shape that it serves.

``ckpm sweep best FILE...``: list the best kernel of each problem, from the results of all shards of a run.
"""

from __future__ import annotations

import argparse
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.table import Table

from ckpm.attention.launch.device import Device, choose
from ckpm.attention.tuning import Measurement, TuningDatabase
from ckpm.base.console import console, make_table
from ckpm.base.display import show
from ckpm.base.errors import CheckFailedError, InconclusiveError
from ckpm.base.files import write_atomically
from ckpm.base.jobs import job_count
from ckpm.base.outputs import demand_place, refuse_inputs
from ckpm.base.processes import build_lock
from ckpm.matrix.problems.testing import from_shape
from ckpm.timing.sweeps.cases import SweepCase
from ckpm.timing.sweeps.results import BestKernel, SweepResults, as_csv, best, merge_results, value_of
from ckpm.timing.sweeps.running import SweepProgress, libraries_of, open_bench, resume, run_library, sort_out
from ckpm.timing.sweeps.sweep_request import SweepRequest, add_options, asked_for

log = logging.getLogger(__name__)
_SHOWN = 10  # of wrong numbers and reasons


def add_benchmark_options(parser: argparse.ArgumentParser) -> None:
    add_options(parser)
    parser.add_argument("--compile-only", action="store_true", help="compile and run nothing")
    parser.add_argument(
        "--jobs", "-j", type=int, default=None, help="parallel compilers (default: by processors, memory)"
    )
    parser.add_argument(
        "--work", type=Path, default=Path("build/benchmark"), help="libraries and results (default: %(default)s)"
    )
    _add_outputs(parser)
    parser.add_argument("--tuning", type=Path, default=None, metavar="FILE", help="add to this tuning database, too")
    parser.set_defaults(run=run)


def add_best_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "results", type=Path, nargs="+", metavar="FILE", help="results of all shards of one run, from --json or --work"
    )
    _add_outputs(parser)
    parser.set_defaults(run=run_best)


def _add_outputs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--csv", type=Path, default=None, metavar="FILE", help="write the rows as CSV")
    parser.add_argument("--json", type=Path, default=None, metavar="FILE", help="write rows and metadata as JSON")


def run(args: argparse.Namespace) -> int:
    """Compile and run all cases, and write and print the results.

    All cases are run, even if a kernel faults or its numbers differ from the reference. That is an error at the end.
    """
    for output in filter(None, (args.csv, args.json)):
        refuse_inputs(output, [args.config, *args.filter_file])
        demand_place(output)
    sweep = asked_for(args)
    file = args.work / f"{args.config.stem}-{sweep.arch}-{sweep.tree.name}-{args.category or 'one'}{_shard(args)}.json"
    demand_place(file)
    log.info(f"{len(sweep.keys)} kernels, {len(sweep.cases)} cases of kernel and shape")
    if not sweep.cases and not args.compile_only:
        raise InconclusiveError(
            f"none of the {len(sweep.keys)} kernels serves a shape of {args.category}.", kind="nothing-measured"
        )
    with build_lock(args.work / file.stem / ".lock"):  # of two runs, the second finds the results of the first
        progress = SweepProgress(resume(file, sweep), file)
        device = None if args.compile_only else choose(args.device, sweep.arch)  # before hours of compiling
        built = libraries_of(sweep, args.toolchain, args.work / file.stem, job_count(args.jobs))
        if device is None:
            return 0
        _run_all(args, sweep, built, progress, device)
    results = progress.results
    _write(args, results)
    if args.tuning:
        show(f"{args.tuning}: {tune(args.tuning, results, sweep.cases)} problems")
    _show(results, file)
    _judge(results)
    return 0


def _shard(args: argparse.Namespace) -> str:
    return "" if args.shard == "1/1" else f"-{args.shard.replace('/', 'of')}"


def _run_all(
    args: argparse.Namespace, sweep: SweepRequest, built: list[Path], progress: SweepProgress, device: Device
) -> None:
    """Run the cases that have no result yet."""
    most = args.most_instructions if device.kind == "emulator" else None
    if before := len(progress.done()):
        log.info(f"{before} cases are done already")
    left = sort_out(sweep.cases, progress, most=most)
    try:
        for path in built if left else []:
            run_library(open_bench(path, device, sweep), left, sweep, progress, verify=args.verify)
    finally:
        progress.write()


def _write(args: argparse.Namespace, results: SweepResults) -> None:
    if args.csv:
        write_atomically(args.csv, as_csv(results.rows))
    if args.json:
        results.write(args.json)


def _show(results: SweepResults, file: Path | None) -> None:
    answers = best(results.rows)
    if answers:
        console().print(table(answers))
    for why, count in Counter(results.left_out.values()).most_common(_SHOWN):
        show(f"left out, {count}: {why}")
    counts = summary(results, answers)
    show(", ".join(f"{count} {name}" for name, count in counts.items()) + (f": {file}" if file else ""))


def _judge(results: SweepResults) -> None:
    """Refuse results with failed cases, or without rows."""
    if lines := results.failing:
        more = [f"and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
        raise CheckFailedError("\n".join([f"{len(lines)} cases failed:", *lines[:_SHOWN], *more]), kind="wrong-numbers")
    if not results.rows:
        raise InconclusiveError(
            f"none of the {results.cases} cases could be run; the reasons are above. Choose other kernels or shapes.",
            kind="nothing-measured",
        )


def run_best(args: argparse.Namespace) -> int:
    """Write and print the best kernels of a run's results."""
    for output in filter(None, (args.csv, args.json)):
        refuse_inputs(output, args.results)
        demand_place(output)
    results = merge_results(args.results)
    _write(args, results)
    _show(results, None)
    return 0


def table(rows: Sequence[BestKernel]) -> Table:
    """A line for each problem. First is the problem whose default kernel is slowest compared with the best kernel."""
    shown = make_table(("problem", "mode", "best kernel"), ("value", "unit", "of", "default slower by"), fold=True)
    for row in sorted(rows, key=lambda row: -row.behind):
        figures = (f"{row.value:.6g}", row.unit, str(row.compared), f"{100 * row.behind:.1f} %")
        shown.add_row(row.problem, row.mode, row.kernel, *figures)
    return shown


def tune(file: Path, results: SweepResults, cases: Sequence[SweepCase]) -> int:
    """Put the results into a tuning database, problem by problem, and return the number of problems."""
    base, by_identity = TuningDatabase(file), {case.identity: case for case in cases}
    problems: dict[str, tuple[SweepCase, list[Measurement]]] = {}
    for row in results.rows:
        case, value = by_identity.get((str(row["problem_name"]), str(row["kernel"]))), value_of(row)
        if case is None or value is None or row.get("agrees") is False:
            continue
        measured = Measurement(kernel=case.key.name, value=value[1], unit=value[0], library=str(row["library"] or ""))
        problems.setdefault(f"{case.shape!r} {case.key.family}", (case, []))[1].append(measured)
    for case, measurements in problems.values():
        problem = from_shape(case.shape, case.key.family, results.request["arch"])
        base.add(problem, results.request["device"], measurements)
    return len(problems)


def summary(results: SweepResults, answers: Sequence[BestKernel]) -> Mapping[str, int]:
    """Counts by name, for the last line of the output."""
    return {
        "kernels": results.kernels,
        "cases": results.cases,
        "ran": len(results.rows),
        "left out": len(results.left_out),
        "differ": sum(row.get("agrees") is False for row in results.rows),
        "of these known defects": sum(bool(row.get("known_defect")) for row in results.rows),
        "defaults that are best": sum(answer.behind == 0 for answer in answers),
    }
