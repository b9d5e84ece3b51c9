"""``ckpm timing show``: cycles of workgroups, the matrix units' share, and why waves did not issue."""

from __future__ import annotations

import argparse
from pathlib import Path

import rich.table
from rich.console import Console

from ckpm.base.console import console, make_table
from ckpm.reports.gates.model_command import pairs_of
from ckpm.reports.gates.versions import has_versions, published_rows
from ckpm.reports.page.report_table import Cell, ReportTable
from ckpm.reports.page.timing_tables import phases, timing, versions
from ckpm.timing.machine import numbers
from ckpm.timing.record import Timings

_SUITE = "performance/"


def add_options(options: argparse.ArgumentParser) -> None:
    options.add_argument("timings", type=Path, metavar="FILE", help="of ckpm timing model")
    options.add_argument("--against", type=Path, default=None, metavar="FILE", help="compare with another library's")
    options.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Show one file, or compare two."""
    timings = Timings.read(args.timings)
    if args.against is not None:
        show_against(timings, Timings.read(args.against), console())
        return
    show(timings, console())


def show(timings: Timings, out: Console) -> None:
    """Print the report's tables: cycles and shares, stalls by phase and cause, V3 against V2; and doubtful figures."""
    files = [(f"{timings.provenance['upstream']} on {timings.provenance['arch']}", timings)]
    compared = published_rows([timings], ()) if has_versions(timings) else ()
    for table in (timing(files), phases(files), versions(compared)):
        _print(table, out)
    if any(problem.sensitivity for problem in timings.problems):
        out.print(_sensitivity(timings))


def _print(table: ReportTable, out: Console) -> None:
    """Print a table for each value of its first column of choices. Kernels' names and empty columns are left out."""
    split = next(at for at, column in enumerate(table.columns) if column.kind == "choice")
    for value in dict.fromkeys(row[split] for row in table.rows):
        rows = [row for row in table.rows if row[split] == value]
        printed = make_table((), title=f"{table.title}: {value}")
        shown = []
        for at, column in enumerate(table.columns):
            if at != split and column.kind != "kernel" and any(row[at] not in (None, "") for row in rows):
                printed.add_column(
                    column.name, justify="right" if column.kind == "number" else "left", overflow="fold",
                    no_wrap=column.kind not in ("number", "prose"),
                )  # fmt: skip
                shown.append(at)
        for row in rows:
            printed.add_row(*(_text(row[at]) for at in shown))
        out.print(printed)
    for folded in table.folded:
        out.print(f"{folded.title}:", *(f"- {line}" for line in folded.lines), sep="\n")


def _text(cell: Cell) -> str:
    """A cell as text, without the suite of a problem."""
    return "" if cell is None else str(round(cell, 2)) if isinstance(cell, float) else str(cell).removeprefix(_SUITE)


def _sensitivity(timings: Timings) -> rich.table.Table:
    """Changes of the cycles over all problems with a fifth less and a fifth more of each doubtful figure."""
    machine_numbers = numbers(timings.provenance["arch"])
    columns = ("value", "less, least", "most", "more, least", "most")
    table = make_table(("problem",), columns, "Doubtful figures: change of the cycles")
    for name in dict.fromkeys(name for problem in timings.problems for name in problem.sensitivity):
        changes = [
            [
                problem.sensitivity[name][at] / problem.cycles - 1
                for problem in timings.problems
                if name in problem.sensitivity
            ]
            for at in (0, 1)
        ]
        cells = [f"{pick(side):+.1%}" for side in changes for pick in (min, max)]
        table.add_row(name, str(machine_numbers[name].value) if name in machine_numbers else "?", *cells)
    return table


def show_against(timings: Timings, other: Timings, out: Console) -> None:
    """Print a row for each problem of both: cycles of a workgroup and of a pass, and the matrix units' share."""
    shared, arch = pairs_of(timings, other), timings.provenance["arch"]
    named = f"{timings.provenance['upstream']} against {other.provenance['upstream']}"
    columns = ("of one workgroup", "", "of a pass", "", "loop", "other")
    table = make_table(("problem",), columns, f"{named} on {arch}, on the timing model")
    for first, second in shared:
        pairs = (
            (first.cycles / first.resident, second.cycles / second.resident),
            (first.pass_cycles, second.pass_cycles),
        )
        cells = [cell for candidate, baseline in pairs for cell in (f"{candidate:.0f}", _change(candidate, baseline))]
        table.add_row(first.problem.partition("/")[2], *cells, f"{first.loop_share:.1%}", f"{second.loop_share:.1%}")
    out.print(table)
    out.print("Cycles of the engine clock, and their change. loop, other: the matrix units' share in the hot loops.")


def _change(candidate: float, baseline: float) -> str:
    return f"{candidate / baseline - 1:+.2%}" if baseline else ""
