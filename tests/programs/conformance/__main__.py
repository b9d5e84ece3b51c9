"""``python -m tests.programs.conformance``: run a suite that needs CK or ckpm, and compare it with its stored outcomes.

ck-gtests --root FOLDER --arch A [--tier full] [--only NAME] [--accept]

ck-examples, ck-attention, ck-smoke-script --arch A [--only NAME] [--accept]

library --arch A [--only CASE] [--accept]: the cases of batch-prefill that the built library of ckpm runs, over HIP

AITER's code objects: objects --arch A [--family F] [--only NAME] [--accept]

table [--check]

With ``--checks all`` these run under all checks. The emulator's own suites are run by ``python -m conformance``.
"""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from ckpm.base.entry import exit_code
from ckpm.base.errors import UsageError
from ckpm.base.files import write_atomically
from ckpm.kernels.code.emulated import translated_errors
from conformance import gtests
from conformance.stored import WRONG, Outcome, compare
from tests.callers.backends.cases import results
from tests.programs import example_program
from tests.programs.conformance import ck_examples, ck_gtests, libraries, smoke_script
from tests.programs.conformance.ck_tree import ARCH
from tests.programs.conformance.tables import OUTCOMES, refusals, suites, table, with_table

HERE = Path(__file__).parent
PAGE = HERE.parents[2] / "docs/reference/conformance.md"
GTESTS, LIBRARY = "ck-gtests", "library"
Verdicts = Mapping[str, Callable[..., ck_examples.Verdict | example_program.Verdict]]  # by the name of a run


def _attention(runs: Mapping[str, example_program.Configuration]) -> Verdicts:
    shared = " -num_splits="  # the options from here on are the same in all lines of the script
    return {name.partition(shared)[0]: functools.partial(example_program.verdict, run) for name, run in runs.items()}


CK: dict[str, Callable[[], Verdicts]] = {
    "ck-examples": lambda: {
        name: functools.partial(ck_examples.verdict, run) for name, run in ck_examples.runs().items()
    },
    "ck-attention": lambda: _attention(example_program.configurations()),
    "ck-smoke-script": lambda: _attention(smoke_script.runnable()),
}


def parser() -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser(prog="python -m tests.programs.conformance", allow_abbrev=False)
    commands = arguments.add_subparsers(required=True)
    gtests.add_options(commands.add_parser(GTESTS, allow_abbrev=False, help="run CK's tests"), run_gtests)
    for suite in CK:
        gtests.add_options(commands.add_parser(suite, allow_abbrev=False), functools.partial(run_ck, suite))
    gtests.add_options(commands.add_parser(LIBRARY, allow_abbrev=False), run_library)
    objects = commands.add_parser("objects", allow_abbrev=False, help="run AITER's code objects")
    objects.add_argument("--arch", required=True, choices=("gfx942", "gfx950"), help="of the emulated device")
    objects.add_argument("--family", help="one folder of the package (default: all)")
    objects.add_argument("--only", metavar="PART", help="names that contain this; nothing is compared")
    objects.add_argument("--accept", action="store_true", help="store the outcomes of the run")
    objects.set_defaults(function=run_objects)
    table = commands.add_parser("table", allow_abbrev=False, help="write all stored outcomes into their page")
    table.add_argument("--check", action="store_true", help="write nothing; fail if it would change")
    table.set_defaults(function=write_table)
    return arguments


def run_gtests(args: argparse.Namespace) -> int:
    """Run CK's programs of googletest. Return 1 if they differ from the stored outcomes."""
    programs = gtests.read_programs(HERE / f"{GTESTS}.yaml")
    assert isinstance(programs.programs, dict)
    rows = programs.programs

    def start(name: str) -> gtests.Start:
        if name not in rows:
            raise UsageError(f"no program {name}: {GTESTS}.yaml lists them.")
        return gtests.starter(ck_gtests.executable(name, rows[name], args.root.absolute()), args, Path("/"))

    return gtests.finish(args, OUTCOMES / f"{GTESTS}.yaml", lambda: gtests.run(args, programs, start))


def run_ck(suite: str, args: argparse.Namespace) -> int:
    """Run CK's own programs. Return 1 if they differ from the stored outcomes."""
    if args.arch != ARCH:
        raise UsageError(f"CK's programs are compiled for {ARCH}, not for {args.arch}.")

    def outcomes() -> Iterator[tuple[str, Outcome]]:
        for name, verdict in CK[suite]().items():
            if args.only in (None, name):
                ended = verdict(checks=args.checks)
                yield name, gtests.judge("OK" if ended.valid else None, ended.output)

    return gtests.finish(args, OUTCOMES / f"{suite}.yaml", lambda: gtests.print_each(outcomes()))


def run_library(args: argparse.Namespace) -> int:
    """Run cases of ckpm's built library. Return 1 if they differ from the stored outcomes."""
    return gtests.finish(args, OUTCOMES / f"{LIBRARY}.yaml", lambda: gtests.print_each(libraries.outcomes(args)))


def run_objects(args: argparse.Namespace) -> int:
    """Run AITER's code objects. Return 1 if they differ from the stored outcomes."""
    from tests.programs.objects import running  # only here: it compiles the emulator's core

    failed = 0
    for family in [args.family] if args.family else running.FAMILIES:
        seen = dict[str, Outcome]()
        for name, outcome in running.outcomes(family, args.arch, args.only or ""):
            seen[name] = outcome
            print(f"{name}: {': '.join(filter(None, outcome))}", flush=True)
        if args.only:
            failed |= any(outcome == WRONG for outcome, _ in seen.values())
        elif seen:
            failed |= compare(OUTCOMES / f"aiter-{family}.yaml", args.arch, seen, accept=args.accept)
    return int(failed)


def with_tables(page: str) -> str:
    """Replace the tables of the page by those of the stored outcomes."""
    page = with_table(page, "conformance", table(suites()))
    page = with_table(page, "refusals", refusals(suites()))
    return with_table(page, "backends", results())


def write_table(args: argparse.Namespace) -> int:
    """Write the table into its page, or with --check return 1 if it has changed."""
    before = PAGE.read_text()
    after = with_tables(before)
    if args.check:
        if before != after:
            print(f"{PAGE.name}: the table has changed; run: python -m tests.programs.conformance table")
        return int(before != after)
    write_atomically(PAGE, after.encode())
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    args = parser().parse_args(argv)

    def call() -> int:
        with translated_errors():
            return int(args.function(args))

    return exit_code(call)


if __name__ == "__main__":
    sys.exit(main())
