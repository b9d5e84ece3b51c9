"""The command line of workflows/: ``python -m workflows --help`` lists the commands."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from matrix.base.display import show
from matrix.base.entry import exit_code
from matrix.options import Parser
from reports.cli import parser as reports_parser
from workflows import collect, render, run_command


def parser() -> argparse.ArgumentParser:
    root = Parser(prog="python -m workflows", description="GitHub's workflows of this project.")
    commands = root.add_subparsers(dest="command", required=True, metavar="COMMAND")
    rendering = commands.add_parser("render", help="the files of .github/workflows from their templates")
    mode = rendering.add_mutually_exclusive_group(required=True)
    mode.add_argument("--write", action="store_true", help="write them")
    mode.add_argument("--check", action="store_true", help="complain if one differs")
    rendering.set_defaults(run=_render)
    collecting = commands.add_parser("collect", help="what the jobs of a workflow left, as one report's input")
    collecting.add_argument("--plan", type=Path, required=True, metavar="FILE", help="the plan of the jobs")
    collecting.add_argument("--artifacts", type=Path, required=True, metavar="DIR", help="a folder for each artifact")
    collecting.add_argument("--output", type=Path, default=Path("build"), metavar="DIR", help="(default: %(default)s)")
    collecting.set_defaults(run=_collect)
    running = commands.add_parser("run", help="the jobs of a workflow on this machine, each in a clone")
    run_command.add_options(running)
    running.set_defaults(run=run_command.run)
    return root


def _render(args: argparse.Namespace) -> None:
    if args.write:
        for file in render.write():
            show(str(file))
    else:
        render.check()


def _collect(args: argparse.Namespace) -> None:
    """Raises what collecting and the report raise. What the jobs left is reported even when something is missing."""
    try:
        collect.collect(args.plan, args.artifacts, args.output)
    finally:
        if any(args.output.glob("*/*/manifest.json")):
            words = (
                "--input",
                args.output,
                "--output",
                args.output / "report.md",
                "--html",
                args.output / "report.html",
            )
            report = reports_parser().parse_args(["summary", *map(str, words)])
            report.run(report)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; its exit code. Prints ``error: ...`` for failures that a user can mend."""

    def command() -> int:
        args = parser().parse_args(argv)
        args.run(args)
        return 0

    return exit_code(command)
