"""The command line of reports/: ``python -m reports --help`` lists the commands.

A command imports its modules when it is called, so that no command waits for the imports of others.
"""

from __future__ import annotations

import argparse
from collections.abc import Collection, Sequence
from pathlib import Path

from ckpm.base.command_table import Commands, add_commands, run_command
from ckpm.base.display import show
from ckpm.matrix.options import Parser


def _junit(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("results", type=Path, metavar="RESULTS", help="the JSON file of a check's --output")
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="the XML file to write")
    parser.set_defaults(run=_run_junit)


def _run_junit(args: argparse.Namespace) -> None:
    """Write JUnit. Raises RecordError, DiskFullError, OutputError; FailedCasesError after the report is written."""
    from ckpm.base.junit import write_junit
    from ckpm.base.results import Results
    from ckpm.reports.errors import FailedCasesError
    from ckpm.reports.junit.write import summary

    results = Results.read(args.results)
    write_junit(results, args.output)
    show(summary(results))
    if results.failing:
        raise FailedCasesError(f"{len(results.failing)} of {len(results.cases)} cases failed; see {args.output}")


def _resources(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("manifest", type=Path, metavar="MANIFEST", help="build/<arch>/<upstream>/manifest.json")
    parser.set_defaults(run=_run_resources)


def _run_resources(args: argparse.Namespace) -> None:
    """Raises NoManifestError, ManifestError."""
    from ckpm.base.console import console
    from ckpm.kernels.library import resources
    from ckpm.reports.resources import read_manifest

    resources.show(read_manifest(args.manifest), console())


def _gate(parser: argparse.ArgumentParser) -> None:
    from ckpm.reports.gates import gate_command

    gate_command.add_gate_options(parser)


def _accept(parser: argparse.ArgumentParser) -> None:
    from ckpm.reports.gates import gate_command

    gate_command.add_accept_options(parser)


def _history(parser: argparse.ArgumentParser) -> None:
    from ckpm.reports.gates import gate_command

    gate_command.add_history_options(parser)


def _compare(parser: argparse.ArgumentParser) -> None:
    from ckpm.reports.gates import compare_command
    from ckpm.reports.timing.versions import remarks

    compare_command.add_options(parser, remarks)


def _model(parser: argparse.ArgumentParser) -> None:
    from ckpm.reports.gates import model_command

    model_command.add_options(parser)


def _timing(parser: argparse.ArgumentParser) -> None:
    from ckpm.reports.timing import command

    command.add_options(parser)


def _references(parser: argparse.ArgumentParser) -> None:
    from ckpm.reports.gates import reference_command

    reference_command.add_options(parser)


def _html(parser: argparse.ArgumentParser) -> None:
    from ckpm.reports.page import commands

    commands.add_html_options(parser)


def _summary(parser: argparse.ArgumentParser) -> None:
    from ckpm.reports.page import commands

    commands.add_summary_options(parser)


def _table(parser: argparse.ArgumentParser) -> None:
    from ckpm.reports.page import commands

    commands.add_table_options(parser)


def _merge(parser: argparse.ArgumentParser) -> None:
    from ckpm.reports.page import commands

    commands.add_merge_options(parser)


def _qualify(parser: argparse.ArgumentParser) -> None:
    from ckpm.reports.release import commands

    commands.add_qualify_options(parser)


def _verify_bundle(parser: argparse.ArgumentParser) -> None:
    from ckpm.reports.release import commands

    commands.add_verify_options(parser)


COMMANDS: Commands = {
    "junit": ("write results as JUnit XML and print a table", _junit),
    "resources": ("print a library's kernels with their registers, LDS and scratch", _resources),
    "gate": ("compare a built library with the accepted baseline", _gate),
    "accept": ("make a built library's figures the baseline", _accept),
    "history": ("list when and why accepted figures changed", _history),
    "compare": ("time two libraries on one device and judge the second", _compare),
    "model": ("show the modelled cycles and the roofline of measured counts", _model),
    "timing": ("show modelled cycles of workgroups, and why their waves stall", _timing),
    "references": ("list published figures that measured ones are shown beside", _references),
    "html": ("write all results as one HTML file", _html),
    "summary": ("print a summary in Markdown; also to GITHUB_STEP_SUMMARY if set", _summary),
    "table": ("write results with the tile engine's columns as CSV or JSON", _table),
    "merge": ("join the JUnit files of shards", _merge),
    "qualify": ("run every stage of a release, judge it, and write its bundle", _qualify),
    "verify-bundle": ("check that a bundle is the released one; offline", _verify_bundle),
}


def parser(words: Collection[str] = tuple(COMMANDS)) -> argparse.ArgumentParser:
    """The parser of every command, with the options of the commands among ``words``."""
    root = Parser(prog="python -m reports", description="Reports from the results of checks.")
    return add_commands(root, COMMANDS, words)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; its exit code. Prints ``error: ...`` for failures that a user can fix."""
    return run_command(parser, argv)
