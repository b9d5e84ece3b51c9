"""``python -m tests.mutants --seed N --count M``: plant defects in a built library's kernels and see what sees them.

The seed is printed; the same seed, count and library plant the same. Exit code 0 if at least ``--floor`` of the mutants
were seen by the static checks or by a smoke case of their kernel.
"""

from __future__ import annotations

import argparse
import multiprocessing
import secrets
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

from rich.console import Console
from rich.table import Table

from kernels.base import settings
from kernels.base.console import console, say
from kernels.base.jobs import processors
from matrix.base.entry import exit_code
from matrix.base.errors import UsageError
from matrix.dialects import check_arch, check_upstream
from matrix.options import DEFAULT_ARCH, Parser
from matrix.problems.problem import SUITES
from tests.gpu import suites
from tests.gpu.errors import MutantsSurvivedError, WorkerStartError
from tests.mutants import trial
from tests.mutants.planting import KINDS
from tests.mutants.trial import STATIC, Setup, Tried

_EVERY_SECONDS = 20.0


def parser() -> argparse.ArgumentParser:
    root = Parser(prog="python -m tests.mutants", description=__doc__)
    root.add_argument("--seed", type=int, default=None, help="of the draw (default: a new one, which is printed)")
    root.add_argument("--count", type=int, default=60, help="of mutants (default: %(default)s)")
    root.add_argument("--floor", type=float, default=0.0, help="the least share that is seen (default: %(default)s)")
    root.add_argument("--arch", default=DEFAULT_ARCH, help="(default: %(default)s)")
    root.add_argument("--upstream", default=None, help="of the library, as with the suites")
    root.add_argument("--work", type=Path, default=Path(), metavar="DIR", help="folder with build/ (default: here)")
    root.add_argument("--jobs", type=int, default=None, help="processes (default: one a processor)")
    return root


def main(argv: Sequence[str] | None = None) -> int:
    def command() -> int:
        run(parser().parse_args(argv), console())
        return 0

    return exit_code(command)


def run(args: argparse.Namespace, out: Console) -> None:
    """Raises UsageError, NotBuiltError, WorkerStartError, CasesFailedError, MutantsSurvivedError."""
    if args.count < 1 or not 0 <= args.floor <= 1 or (args.jobs or 1) < 1:
        raise UsageError("--count and --jobs must be at least 1, and --floor from 0 to 1")
    seed = secrets.randbelow(1 << 32) if args.seed is None else args.seed
    upstream = settings.upstream(args.upstream, settings.ck_root())
    if upstream != "checkout":
        check_upstream(upstream)
    library = suites.locate(args.work.absolute(), check_arch(args.arch).name, upstream)
    say(out, f"{args.count} mutants of {library.library}, seed {seed}")
    mutants = trial.draw(trial.kernels_of(library, args.arch), seed, args.count)
    setup = Setup(library=library.library, arch=args.arch)
    jobs = args.jobs or processors()
    # not forked: a fork would lose the threads of an emulated device
    context = multiprocessing.get_context("spawn")
    try:
        with ProcessPoolExecutor(jobs, context, trial.start, (setup,)) as pool:
            tried = list(_finished(out, [pool.submit(trial.tried_here, one) for one in mutants]))
    except BrokenProcessPool as error:
        raise WorkerStartError(f"a process that runs mutants ended: {error} Its last words are above.") from error
    _show(out, tried)
    seen = sum(bool(one.killed_by) for one in tried)
    say(out, f"{seen} of {len(tried)} mutants were seen, seed {seed}")
    if seen < args.floor * len(tried):
        raise MutantsSurvivedError(
            f"{seen} of {len(tried)} planted defects were seen, and {args.floor:.0%} are asked for. The survivors are "
            f"listed above; the same are planted with --seed {seed} --count {args.count}"
        )


def _finished(out: Console, futures: Sequence[Future[Tried]]) -> Iterator[Tried]:
    """Results as they come, with a line now and then."""
    said = time.monotonic()
    for count, future in enumerate(as_completed(futures), 1):
        yield future.result()
        if time.monotonic() - said > _EVERY_SECONDS or count == len(futures):
            said = time.monotonic()
            say(out, f"[{count}/{len(futures)}]")


def _show(out: Console, tried: Sequence[Tried]) -> None:
    """By kind: planted, seen by what, survived. Then each survivor."""
    columns = (STATIC, *SUITES)
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
            say(out, f"survived {one.cases} cases: {one.mutant.kind}  {one.mutant.text}  {one.mutant.kernel}")


if __name__ == "__main__":
    sys.exit(main())
