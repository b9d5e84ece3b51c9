"""``python -m tests.programs.conformance``: run a suite of another project and compare it with its stored outcomes.

run hipcub|ck-gtests --root FOLDER --arch A [--tier full] [--only NAME] [--accept]
run rocm-examples --root FOLDER --clone FOLDER --arch A [--only NAME] [--accept]

AITER's code objects: objects --arch A [--family F] [--only NAME] [--accept]

table [--check]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from ckpm.base.entry import exit_code
from ckpm.base.errors import UsageError
from ckpm.base.files import write_atomically
from ckpm.base.tablefile import Record, read_table
from tests.callers.backends.cases import results
from tests.programs.conformance import acceptance, ck_gtests, gtests, rocm_examples
from tests.programs.conformance.stored import OUTCOMES, PASSED, UNSUPPORTED, WRONG, differences, read, suites, table

HERE = Path(__file__).parent
PAGE = HERE.parents[2] / "docs/reference/conformance.md"
GTESTS = ("hipcub", "ck-gtests")
EXAMPLES = "rocm-examples"


class Programs(Record, frozen=True):
    """Programs of googletest. ``smoke`` and ``full`` are filters of tests; ``never`` has tests and why none is started.

    The programs are in ``folder`` below a root, or are compiled from files with flags.
    """

    suite: str
    smoke: str
    full: str
    programs: list[str] | dict[str, dict[str, list[str]]]
    folder: str = ""
    never: dict[str, str] = msgspec.field(default_factory=dict)


def programs(suite: str) -> Programs:
    """The programs of a suite's table."""
    return read_table(HERE / f"{suite}.yaml", Programs).record


def parser() -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser(prog="python -m tests.programs.conformance", allow_abbrev=False)
    commands = arguments.add_subparsers(required=True)
    run = commands.add_parser("run", allow_abbrev=False, help="run a suite and compare it with its stored outcomes")
    run.add_argument("name", choices=(*GTESTS, EXAMPLES))
    run.add_argument("--root", type=Path, default=Path("/"), help="where its distribution is installed (default: /)")
    run.add_argument("--clone", type=Path, help=f"of {EXAMPLES}: ROCm's examples, below --root")
    run.add_argument("--arch", required=True, help="of the emulated device")
    run.add_argument(
        "--tier", choices=("smoke", "full"), default="smoke", help="default: %(default)s; only it is stored"
    )
    run.add_argument("--only", metavar="PROGRAM", help="one program; nothing is compared")
    run.add_argument("--accept", action="store_true", help="store the outcomes of the run")
    run.set_defaults(function=run_suite)
    objects = commands.add_parser("objects", allow_abbrev=False, help="run AITER's code objects, as `run` does")
    objects.add_argument("--arch", required=True, choices=("gfx942", "gfx950"), help="of the emulated device")
    objects.add_argument("--family", help="one folder of the package (default: all)")
    objects.add_argument("--only", metavar="PART", help="names that contain this; nothing is compared")
    objects.add_argument("--accept", action="store_true", help="store the outcomes of the run")
    objects.set_defaults(function=run_objects)
    table = commands.add_parser("table", allow_abbrev=False, help="write all stored outcomes into their page")
    table.add_argument("--check", action="store_true", help="write nothing; fail if it would change")
    table.set_defaults(function=write_table)
    return arguments


def run_suite(args: argparse.Namespace) -> int:
    """Run a suite. Return 1 if it differs from the stored outcomes."""
    if args.accept and (args.only or args.tier != "smoke"):
        raise UsageError("--accept stores the whole smoke tier: leave --only and --tier away.")
    seen = _examples(args) if args.name == EXAMPLES else _gtests(args)
    if args.only or args.tier != "smoke":
        return int(any(outcome not in (PASSED, UNSUPPORTED) for outcome, _ in seen.values()))
    return _compare_with_stored(args.name, args.arch, seen, accept=args.accept)


def _compare_with_stored(name: str, arch: str, seen: Mapping[str, gtests.Outcome], *, accept: bool) -> int:
    """Store a run, or print its differences from the stored outcomes and return 1 if there are any."""
    file = OUTCOMES / f"{name}.yaml"
    suite = read(file)
    before = suite.archs.get(arch)
    if accept:
        acceptance.store(acceptance.with_arch(suite, arch, acceptance.ran(seen, before)), file)
        return 0
    if before is None:
        raise UsageError(f"nothing is stored of {name} on {arch}: store this run with --accept.")
    lines = differences(before, seen)
    print("\n".join(lines) or "as stored", flush=True)
    return int(bool(lines))


def run_objects(args: argparse.Namespace) -> int:
    """Run AITER's code objects. Return 1 if they differ from the stored outcomes."""
    from tests.programs.objects import running  # only here: it compiles the emulator's core

    failed = 0
    for family in [args.family] if args.family else running.FAMILIES:
        seen = dict[str, gtests.Outcome]()
        for name, outcome in running.outcomes(family, args.arch, args.only or ""):
            seen[name] = outcome
            print(f"{name}: {': '.join(filter(None, outcome))}", flush=True)
        if args.only:
            failed |= any(outcome == WRONG for outcome, _ in seen.values())
        elif seen:
            failed |= _compare_with_stored(f"aiter-{family}", args.arch, seen, accept=args.accept)
    return int(failed)


def _gtests(args: argparse.Namespace) -> Mapping[str, gtests.Outcome]:
    chosen = programs(args.name)
    seen = dict[str, gtests.Outcome]()
    for name in [args.only] if args.only else [*chosen.programs]:
        seen |= _outcomes(args.root.absolute(), chosen, name, args.arch, args.tier)
    return seen


def _examples(args: argparse.Namespace) -> Mapping[str, gtests.Outcome]:
    """Run examples and print their outcomes. Return the outcomes by name."""
    root, clone = args.root.absolute(), args.clone and args.clone.absolute()
    if clone is None or not clone.is_relative_to(root):
        raise UsageError(f"{EXAMPLES} needs --clone: a clone of them below --root, whose hipcc compiles it.")
    chosen = [example for example in rocm_examples.examples(args.arch) if args.only in (None, example.name)]
    if not chosen:
        raise UsageError(f"no example {args.only or ''} of {args.arch}: rocm_examples.yaml lists them.")
    seen = {}
    for example in chosen:
        seen[example.name] = rocm_examples.outcome(example, args.arch, root, clone)
        print(f"{example.name}: {': '.join(filter(None, seen[example.name]))}", flush=True)
    return seen


def _outcomes(root: Path, chosen: Programs, name: str, arch: str, tier: str) -> Mapping[str, gtests.Outcome]:
    """Run the tests of a program. Print those that did not pass, and their number. Names are program:test."""
    start = _starter(root, chosen, name, arch)
    names = gtests.tests(start, chosen.smoke if tier == "smoke" else chosen.full)
    if tier == "smoke":
        names = gtests.first_of_each(names)
    seen = dict(gtests.outcomes(start, [test for test in names if test not in chosen.never]))
    seen |= {test: (UNSUPPORTED, chosen.never[test]) for test in names if test in chosen.never}
    for test, (outcome, detail) in seen.items():
        if outcome != PASSED:
            print(f"{name}:{test}: {outcome}: {detail}", flush=True)
    print(f"{name}: {sum(outcome == PASSED for outcome, _ in seen.values())} of {len(seen)} passed", flush=True)
    return {f"{name}:{test}": outcome for test, outcome in seen.items()}


def _starter(root: Path, chosen: Programs, name: str, arch: str) -> gtests.Start:
    if isinstance(chosen.programs, dict) and (row := chosen.programs.get(name)):
        return gtests.starter(ck_gtests.executable(name, row, root), arch, Path("/"))
    file = root / chosen.folder / name
    if not file.is_file():
        raise UsageError(f"{file} is not there: install the package of the suite's table below --root.")
    return gtests.starter(file, arch, root)


def with_tables(page: str) -> str:
    """Replace the tables of the page by those of the stored outcomes."""
    page = acceptance.with_table(page, "conformance", table(suites()))
    return acceptance.with_table(page, "backends", results())


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
    return exit_code(lambda: int(args.function(args)))


if __name__ == "__main__":
    sys.exit(main())
