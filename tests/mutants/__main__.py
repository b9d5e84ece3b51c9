"""``python -m tests.mutants --seed N --count M``: plant defects in a built library and count those that are detected.

The seed is printed. The same seed, count and library give the same defects. Exit code 0 if the static checks and the
smoke cases detect at least FLOOR percent of those that excused.yaml does not name.
"""

from __future__ import annotations

import argparse
import dataclasses
import secrets
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from ckpm.base import settings
from ckpm.base.console import console, make_table
from ckpm.base.display import show
from ckpm.base.entry import exit_code
from ckpm.base.errors import CheckFailedError, UsageError
from ckpm.base.jobs import processors
from ckpm.kernels.changes.history import commit_of
from ckpm.matrix.dialects import check_arch, check_upstream
from ckpm.matrix.options import DEFAULT_ARCH, Parser, add_library_options, chosen_upstream
from ckpm.matrix.problems.case import SUITES
from ckpm.suites import suites
from tests.mutants import excused, trial, workers
from tests.mutants.drawing import KINDS, draw
from tests.mutants.excused import Excuses
from tests.mutants.trial import COUNTS, CRASH, HANG, STATIC, Setup, Trial

SURVIVED, EXCUSED = "survived", "excused"  # columns of survivors
_EVERY_SECONDS = 20.0
_ROOT = Path(__file__).resolve().parents[2]
# Percent. Measured on gfx950's aiter smoke library: 25 of 26 (seed 2712), 43 of 52 (seed 1), 46 of 52 (seed 2).
FLOOR = 65


def parser() -> argparse.ArgumentParser:
    root = Parser(prog="python -m tests.mutants", description=__doc__)
    root.add_argument(
        "--seed", default=None, metavar="N", help="a number, or `commit`: from the hash of HEAD (default: a new one)"
    )
    root.add_argument("--count", type=int, default=60, help="number of mutants (default: %(default)s)")
    root.add_argument("--arch", default=DEFAULT_ARCH, help="(default: %(default)s)")
    add_library_options(root)
    root.add_argument("--work", type=Path, default=Path(), metavar="DIR", help="folder with build/ (default: here)")
    root.add_argument("--jobs", type=int, default=None, help="processes (default: one a processor)")
    return root


def main(argv: Sequence[str] | None = None) -> int:
    def command() -> int:
        run(parser().parse_args(argv))
        return 0

    return exit_code(command)


def run(args: argparse.Namespace) -> None:
    if args.count < 1 or (args.jobs is not None and args.jobs < 1):
        raise UsageError("--count and --jobs must be at least 1")
    seed = _seed(args.seed)
    upstream = chosen_upstream(args.upstream, settings.ck_root())
    if upstream != "checkout":
        check_upstream(upstream)
    library = suites.locate(args.work.absolute(), check_arch(args.arch).name, upstream)
    show(f"{args.count} mutants of {library.library}, seed {seed}")
    kernels = trial.kernels_of(library, args.arch)
    codes = {name: excused.code_digest(kernel) for name, kernel in kernels.items()}
    excuses = excused.read()
    show_void(excuses, codes)
    mutants = draw(kernels, seed, args.count)
    setup = Setup(library=library.library, arch=args.arch)
    results = workers.results(setup, mutants, args.jobs or processors())
    trials = list(_report_progress(results, len(mutants)))
    trials = [_excuse(each, excuses, codes[each.mutant.kernel]) for each in trials]
    _show(trials, codes)
    detected = sum(bool(each.killed_by) for each in trials)
    without_effect = sum(each.excused for each in trials)
    show(f"{detected} of {len(trials)} mutants were detected, {without_effect} survivors are excused, seed {seed}")
    check_floor(detected, len(trials) - without_effect, f"--seed {seed} --count {args.count}")


def _excuse(tried: Trial, excuses: Excuses, code: str) -> Trial:
    """Return the trial with its excuse. Raises CheckFailedError: the mutant is excused and was detected."""
    excuse = excused.find(excuses, tried.mutant, code)
    if excuse is not None and tried.killed_by:
        raise CheckFailedError(
            f"{excused.FILE}: {excuse.kernel} {excuse.change} is excused, but {tried.killed_by} detects it: "
            f"{tried.how}. Remove the entry.",
            kind="excused",
        )
    return tried if excuse is None else dataclasses.replace(tried, excused=True, how=excuse.why)


def show_void(excuses: Excuses, codes: Mapping[str, str]) -> None:
    """Print the excuses of built kernels whose code is another than the one that was read."""
    for excuse in excuses.values():
        if codes.get(excuse.kernel, excuse.code) != excuse.code:
            show(f"{excused.FILE}: {excuse.kernel} {excuse.change} is void: the code is now {codes[excuse.kernel]}")


def check_floor(detected: int, planted: int, again: str) -> None:
    if 100 * detected < FLOOR * planted:
        raise CheckFailedError(
            f"{detected} of {planted} planted defects were detected, {FLOOR} % are required, without those that are "
            f"excused. The survivors are listed above. To plant the same again: {again}",
            kind="mutants",
        )


def _seed(chosen: str | None) -> int:
    if chosen is None:
        return secrets.randbelow(1 << 32)
    if chosen == "commit":
        return int(commit_of(_ROOT, "HEAD")[:8], 16)
    if not chosen.isascii() or not chosen.isdecimal():
        raise UsageError(f"--seed must be a number or `commit`, not '{chosen}'")
    return int(chosen)


def _report_progress(trials: Iterable[Trial], total: int) -> Iterator[Trial]:
    """Pass on the trials, and print their count every 20 seconds."""
    printed = time.monotonic()
    for count, each in enumerate(trials, 1):
        yield each
        if time.monotonic() - printed > _EVERY_SECONDS or count == total:
            printed = time.monotonic()
            show(f"[{count}/{total}]", flush=True)


def _show(trials: Sequence[Trial], codes: Mapping[str, str]) -> None:
    """Print a table by kind, then each survivor that is not excused, with the digits of its kernel's code."""
    columns = (STATIC, *SUITES, COUNTS, CRASH, HANG, SURVIVED, EXCUSED)
    table = make_table(("kind",), ("planted", *columns))
    for kind in (*KINDS, "all"):
        of_kind = [each for each in trials if kind in (each.mutant.kind, "all")]
        if of_kind:
            counts = Counter(each.killed_by or (EXCUSED if each.excused else SURVIVED) for each in of_kind)
            table.add_row(kind, str(len(of_kind)), *(str(counts[column]) for column in columns))
    console().print(table)
    for each in trials:
        if not each.killed_by and not each.excused:
            mutant = each.mutant
            kernel = f"{mutant.kernel} (code {codes[mutant.kernel]})"
            show(f"survived {each.cases} cases: {mutant.kind}  {mutant.text}  {kernel}: {each.how}")


if __name__ == "__main__":
    sys.exit(main())
