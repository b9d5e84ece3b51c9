"""The command line of reports/: ``python -m reports --help`` lists the commands."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from kernels.base.console import console
from kernels.base.junit import write_junit
from kernels.base.results import Results
from kernels.build import resources
from matrix.base.display import show
from matrix.base.entry import exit_code
from matrix.options import Parser
from reports.calibration import command as calibration_command
from reports.errors import FailedCasesError
from reports.gates import compare_command, gate_command, model_command, reference_command
from reports.junit.write import summary
from reports.page import commands as report_commands
from reports.release import commands as release_commands
from reports.resources import read_manifest


def parser() -> argparse.ArgumentParser:
    root = Parser(prog="python -m reports", description="Reports from the results of checks.")
    commands = root.add_subparsers(dest="command", required=True, metavar="COMMAND")
    junit = commands.add_parser("junit", help="write results as JUnit XML and print a table")
    junit.add_argument("results", type=Path, metavar="RESULTS", help="the JSON file of a check's --output")
    junit.add_argument("--output", type=Path, required=True, metavar="FILE", help="the XML file to write")
    junit.set_defaults(run=_junit)
    listing = commands.add_parser("resources", help="print a library's kernels with their registers, LDS and scratch")
    listing.add_argument("manifest", type=Path, metavar="MANIFEST", help="build/<arch>/<upstream>/manifest.json")
    listing.set_defaults(run=_resources)
    gate_command.add_commands(commands)
    compare_command.add_commands(commands)
    model_command.add_commands(commands)
    reference_command.add_commands(commands)
    report_commands.add_commands(commands)
    release_commands.add_commands(commands)
    calibration_command.add_commands(commands)
    return root


def _junit(args: argparse.Namespace) -> None:
    """Raises RecordError, DiskFullError, OutputError; FailedCasesError after the report is written."""
    results = Results.read(args.results)
    write_junit(results, args.output)
    show(summary(results))
    if results.failing:
        raise FailedCasesError(f"{len(results.failing)} of {len(results.cases)} cases failed; see {args.output}")


def _resources(args: argparse.Namespace) -> None:
    """Raises NoManifestError, ManifestError."""
    resources.show(read_manifest(args.manifest), console())


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; its exit code. Prints ``error: ...`` for failures that a user can do something about."""

    def command() -> int:
        args = parser().parse_args(argv)
        args.run(args)
        return 0

    return exit_code(command)
