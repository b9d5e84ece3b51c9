"""``python -m conformance``: run a suite of another project and compare it with its stored outcomes.

hipcub --root FOLDER --arch A [--tier full] [--only NAME] [--accept]

rocm-examples --root FOLDER --clone FOLDER --arch A [--only NAME] [--accept]

iree, tinygrad, flydsl --clone FOLDER --python FILE --arch A [--root FOLDER] [--only NAME] [--accept]

checks --arch A [--only PROGRAM] [--accept]: correct programs of this project

With ``--checks all`` a suite runs under all checks.
"""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from ckpm_emulator.entry import exit_code
from ckpm_emulator.errors import UsageError
from conformance import checks, foreign, gtests, rocm_examples
from conformance.stored import OUTCOMES, Outcome

HIPCUB, EXAMPLES, CHECKS = "hipcub", "rocm-examples", "checks"


def parser() -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser(prog="python -m conformance", allow_abbrev=False)
    suites = arguments.add_subparsers(required=True)
    gtests.add_options(suites.add_parser(HIPCUB, allow_abbrev=False), run_hipcub)
    examples = suites.add_parser(EXAMPLES, allow_abbrev=False)
    examples.add_argument("--clone", type=Path, help="ROCm's examples, below --root")
    gtests.add_options(examples, run_examples)
    gtests.add_options(suites.add_parser(CHECKS, allow_abbrev=False), run_checks)
    for suite in foreign.SUITES:
        arguments_of_suite = suites.add_parser(suite, allow_abbrev=False)
        foreign.add_options(arguments_of_suite)
        gtests.add_options(arguments_of_suite, functools.partial(run_foreign, suite))
    return arguments


def run_hipcub(args: argparse.Namespace) -> int:
    """Run hipCUB's tests. Return 1 if they differ from the stored outcomes."""
    programs = gtests.read_programs(Path(__file__).with_name(f"{HIPCUB}.yaml"))
    root = args.root.absolute()

    def start(name: str) -> gtests.Start:
        file = root / programs.folder / name
        if not file.is_file():
            raise UsageError(f"{file} is not there: install the package of the suite's table below --root.")
        return gtests.starter(file, args, root)

    return gtests.finish(args, OUTCOMES / f"{HIPCUB}.yaml", lambda: gtests.run(args, programs, start))


def run_examples(args: argparse.Namespace) -> int:
    """Run ROCm's examples. Return 1 if they differ from the stored outcomes."""
    return gtests.finish(args, OUTCOMES / f"{EXAMPLES}.yaml", lambda: _examples(args))


def run_foreign(suite: str, args: argparse.Namespace) -> int:
    """Run tests of another project's Python package. Return 1 if they differ from the stored outcomes."""
    chosen = foreign.SUITES[suite]
    never = {**chosen.never, **(chosen.large if args.checks else {})}
    programs = gtests.Programs(suite=suite, smoke="*", full="*", programs=chosen.programs(), never=never)

    def start(name: str) -> gtests.Start:
        return chosen.start(name, args)

    return gtests.finish(args, OUTCOMES / f"{suite}.yaml", lambda: gtests.run(args, programs, start))


def run_checks(args: argparse.Namespace) -> int:
    """Run correct programs under all checks. Return 1 if they differ from the stored outcomes."""
    return gtests.finish(args, OUTCOMES / f"{CHECKS}.yaml", lambda: gtests.print_each(checks.outcomes(args)))


def _examples(args: argparse.Namespace) -> Mapping[str, Outcome]:
    """Run examples and print their outcomes. Return the outcomes by name."""
    root, clone = args.root.absolute(), args.clone and args.clone.absolute()
    if clone is None or not clone.is_relative_to(root):
        raise UsageError(f"{EXAMPLES} needs --clone: a clone of them below --root, whose hipcc compiles it.")
    examples = rocm_examples.examples(args.arch, args.checks)
    chosen = [example for example in examples if args.only in (None, example.name)]
    if not chosen:
        raise UsageError(f"no example {args.only or ''} of {args.arch}: rocm_examples.yaml lists them.")
    return gtests.print_each((example.name, rocm_examples.outcome(example, args, root, clone)) for example in chosen)


def main(argv: Sequence[str] | None = None) -> int:
    args = parser().parse_args(argv)
    return exit_code(lambda: int(args.function(args)))


if __name__ == "__main__":
    sys.exit(main())
