"""The command line of workflows/: ``python -m workflows --help`` lists the commands."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from ckpm.base.display import show
from ckpm.base.entry import exit_code
from ckpm.matrix.options import Parser
from ckpm.reports.cli import parser as reports_parser
from ckpm.workflows import collect, render, runner


def parser() -> argparse.ArgumentParser:
    root = Parser(prog="python -m workflows", description="GitHub's workflows of this project.")
    commands = root.add_subparsers(dest="command", required=True, metavar="COMMAND")
    rendering = commands.add_parser("render", help="write the files of .github/workflows from their templates")
    mode = rendering.add_mutually_exclusive_group(required=True)
    mode.add_argument("--write", action="store_true", help="write them")
    mode.add_argument("--check", action="store_true", help="fail if a file differs")
    rendering.set_defaults(run=_render)
    collecting = commands.add_parser("collect", help="join the results of a workflow's jobs for one report")
    collecting.add_argument("--plan", type=Path, required=True, metavar="FILE", help="the plan of the jobs")
    collecting.add_argument("--artifacts", type=Path, required=True, metavar="DIR", help="a folder for each artifact")
    collecting.add_argument("--output", type=Path, default=Path("build"), metavar="DIR", help="(default: %(default)s)")
    collecting.set_defaults(run=_collect)
    running = commands.add_parser("run", help="run the jobs of a workflow on this machine, each in a clone of HEAD")
    running.add_argument("name", metavar="NAME", help=", ".join(render.names()))
    running.add_argument("--since", default="main", metavar="REV", help="base of the pull request (default: main)")
    running.add_argument("--only", action="append", default=[], metavar="GLOB", help="jobs by name; repeat it")
    running.add_argument("--work", type=Path, default=Path("build/workflow"), help="(default: %(default)s)")
    running.set_defaults(run=lambda args: runner.run(args.name, args.since, tuple(args.only), args.work))
    return root


def _render(args: argparse.Namespace) -> None:
    if args.write:
        for file in render.write():
            show(str(file))
    else:
        render.check()


def _collect(args: argparse.Namespace) -> None:
    """Join the results, and write the report even if a result is missing."""
    try:
        collect.collect(args.plan, args.artifacts, args.output)
    finally:
        if any(args.output.glob("*/*/manifest.json")):
            files = (args.output, "--output", args.output / "report.md", "--html", args.output / "report.html")
            report = reports_parser().parse_args(["summary", "--input", *map(str, files)])
            report.run(report)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code. Prints ``error: ...`` for failures that a user can fix."""

    def command() -> int:
        args = parser().parse_args(argv)
        args.run(args)
        return 0

    return exit_code(command)
