"""``ckpm workflows``: render, collect and run the workflows of GitHub."""

from __future__ import annotations

import argparse
from pathlib import Path

from ckpm.base.display import show
from ckpm.reports.page import commands
from ckpm.workflows import collect, render, runner


def add_render_options(parser: argparse.ArgumentParser) -> None:
    mode = parser.add_mutually_exclusive_group(required=True)
    mode.add_argument("--write", action="store_true", help="write .github/workflows from the templates")
    mode.add_argument("--check", action="store_true", help="fail if a file differs from its template")
    parser.set_defaults(run=_render)


def add_collect_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--plan", type=Path, required=True, metavar="FILE", help="plan.json of the job `plan`")
    parser.add_argument(
        "--artifacts", type=Path, required=True, metavar="DIR", help="folder with one subfolder for each artifact"
    )
    parser.add_argument("--output", type=Path, default=Path("build"), metavar="DIR", help="(default: %(default)s)")
    parser.set_defaults(run=_collect)


def add_run_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help=f"workflow to run: {', '.join(render.names())}")
    parser.add_argument("--since", default="main", metavar="REV", help="base of the pull request (default: main)")
    parser.add_argument(
        "--only", action="append", default=[], metavar="GLOB", help="run only jobs that match; may be repeated"
    )
    parser.add_argument("--work", type=Path, default=Path("build/workflow"), help="(default: %(default)s)")
    parser.set_defaults(run=lambda args: runner.run(args.name, args.since, tuple(args.only), args.work))


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
            commands.write_summary(args.output, args.output / "report.md", args.output / "report.html")
