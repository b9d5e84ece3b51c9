"""``python -m tests.mutants --seed N --count M``: plant defects in a built library's kernels and see what sees them.

The seed is printed; the same seed, count and library plant the same. Exit code 0 if the static checks or a smoke case
of their kernel saw as many of the mutants as tests/mutants/floors.yaml asks for.
"""

from __future__ import annotations

import argparse
import secrets
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from kernels.base import settings
from kernels.base.console import console, say
from kernels.base.jobs import processors
from matrix.base.entry import exit_code
from matrix.base.errors import UsageError
from matrix.changes.history import commit_of
from matrix.dialects import check_arch, check_upstream
from matrix.options import DEFAULT_ARCH, Parser, add_library_options
from matrix.problems.case import SUITES
from tests.gpu import suites
from tests.gpu.errors import MutantsSurvivedError
from tests.mutants import trial, workers
from tests.mutants.drawing import KINDS, draw
from tests.mutants.floors import missed, read_floors
from tests.mutants.trial import CRASH, HANG, STATIC, Setup, Tried

_EVERY_SECONDS = 20.0
_ROOT = Path(__file__).resolve().parents[2]


def parser() -> argparse.ArgumentParser:
    root = Parser(prog="python -m tests.mutants", description=__doc__)
    root.add_argument(
        "--seed", default=None, metavar="N", help="of the draw, or `commit`: that of HEAD (default: a new one)"
    )
    root.add_argument("--count", type=int, default=60, help="of mutants (default: %(default)s)")
    root.add_argument("--arch", default=DEFAULT_ARCH, help="(default: %(default)s)")
    add_library_options(root)
    root.add_argument("--work", type=Path, default=Path(), metavar="DIR", help="folder with build/ (default: here)")
    root.add_argument("--jobs", type=int, default=None, help="processes (default: one a processor)")
    return root


def main(argv: Sequence[str] | None = None) -> int:
    def command() -> int:
        run(parser().parse_args(argv), console())
        return 0

    return exit_code(command)


def run(args: argparse.Namespace, out: Console) -> None:
    """Raises UsageError, NotBuiltError, WorkerStartError, CasesFailedError, MutantsSurvivedError, TableError."""
    if args.count < 1 or (args.jobs is not None and args.jobs < 1):
        raise UsageError("--count and --jobs must be at least 1")
    seed, floors = _seed(args.seed), read_floors()
    upstream = settings.upstream(args.upstream, settings.ck_root())
    if upstream != "checkout":
        check_upstream(upstream)
    library = suites.locate(args.work.absolute(), check_arch(args.arch).name, upstream)
    say(out, f"{args.count} mutants of {library.library}, seed {seed}")
    drawn = draw(trial.kernels_of(library, args.arch), seed, args.count)
    setup = Setup(library=library.library, arch=args.arch)
    fates = workers.results(setup, drawn.mutants, args.jobs or processors())
    tried = list(_finished(out, fates, len(drawn.mutants)))
    _show(out, tried)
    _show_left_out(out, drawn.left_out)
    seen = sum(bool(one.killed_by) for one in tried)
    say(out, f"{seen} of {len(tried)} mutants were seen, seed {seed}")
    if below := missed(tried, floors):
        raise MutantsSurvivedError(
            f"too few of the planted defects were seen: {'; '.join(below)} (tests/mutants/floors.yaml). The survivors "
            f"are listed above; the same are planted with --seed {seed} --count {args.count}"
        )


def _seed(chosen: str | None) -> int:
    """Raises UsageError, and what commit_of raises where this is no checkout."""
    if chosen is None:
        return secrets.randbelow(1 << 32)
    if chosen == "commit":
        return int(commit_of(_ROOT, "HEAD")[:8], 16)
    if not chosen.isascii() or not chosen.isdecimal():
        raise UsageError(f"--seed is a number or `commit`, not '{chosen}'")
    return int(chosen)


def _finished(out: Console, fates: Iterable[Tried], of: int) -> Iterator[Tried]:
    """Results as they come, with a line now and then."""
    said = time.monotonic()
    for count, fate in enumerate(fates, 1):
        yield fate
        if time.monotonic() - said > _EVERY_SECONDS or count == of:
            said = time.monotonic()
            say(out, f"[{count}/{of}]")


def _show(out: Console, tried: Sequence[Tried]) -> None:
    """By kind: planted, seen by what, survived. Then each survivor."""
    columns = (STATIC, *SUITES, CRASH, HANG)
    table = Table(box=None, pad_edge=False)
    for column in ("kind", "planted", *columns, "survived"):
        table.add_column(column, justify="left" if column == "kind" else "right", no_wrap=True)
    for kind in (*KINDS, "all"):
        mine = [one for one in tried if kind in (one.mutant.kind, "all")]
        if mine:
            by = Counter(one.killed_by for one in mine)
            table.add_row(kind, str(len(mine)), *(str(by[column]) for column in columns), str(by[""]))
    out.print(table)
    for one in tried:
        if not one.killed_by:
            mutant = one.mutant
            say(out, f"survived {one.cases} cases: {mutant.kind}  {mutant.text}  {mutant.kernel}: {one.how}")


def _show_left_out(out: Console, left_out: Mapping[str, int]) -> None:
    for rule, count in sorted(left_out.items(), key=lambda one: -one[1]):
        say(out, f"left out as equivalent, {rule}: {count}")


if __name__ == "__main__":
    sys.exit(main())
