"""``python -m reports html|summary|table|merge``: write reports of an output folder."""

from __future__ import annotations

import argparse
import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ckpm.base.display import show
from ckpm.base.files import writing
from ckpm.base.outputs import forget_output, refuse_inputs, write_output
from ckpm.reports.errors import NothingToReportError
from ckpm.reports.junit.merge import demand_passed, merge
from ckpm.reports.page.html import write_html
from ckpm.reports.page.inputs import Inputs, files_of, gather
from ckpm.reports.page.markdown import markdown
from ckpm.reports.page.measurements import write_measurements
from ckpm.reports.page.overall import demand_pass, overall


def add_html_options(html: argparse.ArgumentParser) -> None:
    _input(html)
    html.add_argument("--output", type=Path, default=Path("build/report.html"), metavar="FILE", help=_DEFAULT)
    html.set_defaults(run=_html, html=None)


def add_summary_options(summary: argparse.ArgumentParser) -> None:
    _input(summary)
    summary.add_argument("--output", type=Path, default=None, metavar="FILE", help="write it there, too")
    summary.add_argument("--html", type=Path, default=None, metavar="FILE", help="write the HTML report there, too")
    summary.set_defaults(run=_summary)


def add_table_options(table: argparse.ArgumentParser) -> None:
    _input(table)
    table.add_argument(
        "--output",
        type=Path,
        required=True,
        metavar="FILE",
        help="ends with .csv or .json; in CSV a text that a spreadsheet would run as a formula (it begins with =, +, "
        "-, @, tab or carriage return, and is not a number) has an apostrophe before it",
    )
    table.set_defaults(run=_table)


def add_merge_options(shards: argparse.ArgumentParser) -> None:
    shards.add_argument("shards", type=Path, nargs="+", metavar="SHARD", help="a shard's JUnit XML")
    shards.add_argument("--output", type=Path, required=True, metavar="FILE", help="the XML file to write")
    shards.set_defaults(run=_merge)


_DEFAULT = "(default: %(default)s)"


def _input(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--input", type=Path, default=Path("build"), metavar="DIR", help=_DEFAULT)


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Pause garbage collection: a report's million objects live to the end, and scanning them takes a fifth of the
    time.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _make_way(args: argparse.Namespace) -> None:
    """Remove the reports of an earlier run, so that they are not read if this run fails.

    Raises OverwriteError: a report would replace one of its inputs. OutputError.
    """
    for output in filter(None, (args.output, args.html)):
        refuse_inputs(output, files_of(args.input))
        forget_output(output)


def _html(args: argparse.Namespace) -> None:
    """Write the HTML report.

    Raises as :func:`gather`, :func:`write_html`; NotPassedError after the report is written.
    """
    _make_way(args)
    with _collector_paused():
        inputs = gather(args.input)
        verdict = overall(inputs)
        write_html(inputs, verdict, args.output)
    show(f"{verdict.headline}\nreport: {args.output}")
    demand_pass(verdict)


def _summary(args: argparse.Namespace) -> None:
    """Print the summary. Raises as :func:`gather`; DiskFullError, OutputError; NotPassedError after that."""
    _make_way(args)
    with _collector_paused():
        inputs = gather(args.input)
        verdict = overall(inputs)
        text = markdown(inputs, verdict)
        show(text, end="")
        if args.output:
            write_output(args.output, text.encode())
        if args.html:
            write_html(inputs, verdict, args.html)
    if place := os.environ.get("GITHUB_STEP_SUMMARY"):
        with writing(Path(place)), Path(place).open("a", encoding="utf-8") as stream:  # steps of a job share the file
            stream.write(text)
    demand_pass(verdict)


def _table(args: argparse.Namespace) -> None:
    """Write the table. Raises as :func:`gather`, :func:`write_measurements`; NothingToReportError without a row."""
    refuse_inputs(args.output, files_of(args.input))
    inputs: Inputs = gather(args.input)
    count = write_measurements(inputs, args.output)
    show(f"{count} rows: {args.output}")
    if count == 0:
        raise NothingToReportError(
            f"{args.input}: no case that ran on a kernel. Run a suite first: nox -s test-large-kv"
        )


def _merge(args: argparse.Namespace) -> None:
    """Merge shards. Raises ShardError, DiskFullError, OutputError; FailedCasesError after the file is written."""
    forget_output(args.output)
    demand_passed(merge(args.shards, args.output), args.output)
    show(f"{len(args.shards)} shards: {args.output}")
