"""``ckpm report``: write reports of an output folder."""

from __future__ import annotations

import argparse
import gc
import os
from collections.abc import Sequence
from pathlib import Path

from ckpm.base.display import show
from ckpm.base.errors import CheckFailedError, InconclusiveError, UsageError
from ckpm.base.files import append, name_write_errors
from ckpm.base.junit import write_junit
from ckpm.base.outputs import forget_output, refuse_inputs, write_output
from ckpm.base.results import Results
from ckpm.kernels.library import resources
from ckpm.reports.junit import demand_passed, merge, summary
from ckpm.reports.page.html import write_html
from ckpm.reports.page.inputs import ReportInputs, files_of, gather
from ckpm.reports.page.markdown import markdown
from ckpm.reports.page.measurements import write_measurements
from ckpm.reports.page.overall import demand_pass, overall
from ckpm.reports.resources import read_manifest


def add_options(report: argparse.ArgumentParser) -> None:
    report.add_argument("--input", type=Path, default=Path("build"), metavar="DIR", help="(default: %(default)s)")
    report.add_argument("--output", type=Path, default=None, metavar="FILE", help="write the Markdown there, too")
    report.add_argument("--html", type=Path, default=None, metavar="FILE", help="write the HTML report there, too")
    report.add_argument(
        "--table",
        type=Path,
        metavar="FILE",
        help="write one row for each case to a .csv or .json file instead; in CSV an apostrophe precedes a text that "
        "a spreadsheet would run as a formula (it begins with =, +, -, @, tab or carriage return, and is not a number)",
    )
    report.add_argument("--junit", type=Path, metavar="FILE", help="save results as JUnit in --output instead")
    report.add_argument("--manifest", type=Path, metavar="FILE", help="print a library's kernels and registers instead")
    report.add_argument("--merge", type=Path, nargs="+", metavar="SHARD", help="join JUnit files into --output instead")
    report.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Write what the options name: tables, merged shards, or the reports of all results."""
    if args.merge or args.junit:
        if args.output is None:
            raise UsageError("--merge and --junit need --output FILE.")
        if args.merge:
            _merge(args.merge, args.output)
        else:
            _write_junit(args.junit, args.output)
    elif args.manifest:
        resources.show(read_manifest(args.manifest))
    elif args.table:
        _table(args)
    else:
        write_summary(args.input, args.output, args.html)


def write_summary(folder: Path, output: Path | None, html: Path | None) -> None:
    """Print all results of a folder as Markdown, and write them to the files. Delete older reports first."""
    for file in filter(None, (output, html)):
        refuse_inputs(file, files_of(folder))
        forget_output(file)
    gc.disable()  # a report's million objects live to the end; looking at them takes a fifth of the time
    try:
        inputs = gather(folder)
        verdict = overall(inputs)
        text = markdown(inputs, verdict)
        show(text, end="")
        if output:
            write_output(output, text.encode())
        if html:
            write_html(inputs, verdict, html)
    finally:
        gc.enable()
    if summary_file := os.environ.get("GITHUB_STEP_SUMMARY"):
        with name_write_errors(Path(summary_file)):
            append(Path(summary_file), text)  # steps of a job share the file
    pages = [page for page in (output, html) if page]
    if verdict.verdict == "passed":
        show("".join(f"report: {page}\n" for page in pages), end="")
    demand_pass(verdict, pages)


def _table(args: argparse.Namespace) -> None:
    """Write a table with a row for each case."""
    refuse_inputs(args.table, files_of(args.input))
    inputs: ReportInputs = gather(args.input)
    count = write_measurements(inputs, args.table)
    show(f"{count} rows: {args.table}")
    if count == 0:
        raise InconclusiveError(
            f"{args.input}: no case that ran on a kernel. Run a suite first: ckpm test --suite large-kv",
            kind="nothing-to-report",
        )
    if inputs.uncounted:
        lines = [f"{uncounted.file}: not counted: {uncounted.reason}" for uncounted in inputs.uncounted]
        raise CheckFailedError("\n".join(lines), kind="stale")


def _merge(shards: Sequence[Path], output: Path) -> None:
    """Join JUnit files, then raise CheckFailedError if a case failed."""
    forget_output(output)
    demand_passed(merge(shards, output), output)
    show(f"{len(shards)} shards: {output}")


def _write_junit(file: Path, output: Path) -> None:
    """Write results as JUnit, then raise CheckFailedError if a case failed."""
    results = Results.read(file)
    write_junit(results, output)
    show(summary(results))
    if results.failing:
        raise CheckFailedError(
            f"{len(results.failing)} of {len(results.cases)} cases failed; see {output}", kind="cases"
        )
