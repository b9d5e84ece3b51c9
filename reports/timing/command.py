"""``ckpm timing show``: cycles of workgroups, the matrix units' share, and why waves did not issue."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from ckpm.attention.timing.machine import cannot_see, numbers
from ckpm.attention.timing.record import CAUSES, PHASES, PhaseShare, Timed, Timings
from ckpm.base.console import console, make_table
from ckpm.reports.gates.model_command import pairs_of
from ckpm.reports.timing.versions import (
    PublishedRow,
    has_versions,
    launch,
    published_rows,
    show_published,
    show_range,
    version_of,
)


def add_options(timing: argparse.ArgumentParser) -> None:
    timing.add_argument("timings", type=Path, metavar="FILE", help="of ckpm timing model")
    timing.add_argument("--against", type=Path, default=None, metavar="FILE", help="compare with another library's")
    timing.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Show one file, or compare two. Raises RecordError, InconclusiveError, TableError."""
    timings = Timings.read(args.timings)
    if args.against is not None:
        show_against(timings, Timings.read(args.against), console())
        return
    show(timings, console())


def show(timings: Timings, out: Console) -> None:
    """Print a row for each problem: cycles and shares, stalls by cause, and doubtful figures."""
    named = f"{timings.provenance['upstream']} on {timings.provenance['arch']}"
    out.print(_cycles(f"{named}: a workgroup on the timing model", timings.problems))
    out.print(_stalls(f"{named}: cycles of all waves in the hot loop, by what they did", timings.problems))
    if (launches := _launches(timings)).row_count:
        out.print(launches)
    for title, phases in _phases(timings):
        out.print(_table_of_phases(title, phases))
    if has_versions(timings):
        rows = published_rows([timings], ())
        for about in dict.fromkeys(row.about for row in rows):
            out.print(_versions(about, [row for row in rows if row.about == about]))
    if any(one.sensitivity for one in timings.problems):
        out.print(_sensitivity(timings))
    out.print("Stalls:")
    for cause, text in CAUSES.items():
        out.print(f"- {cause}: {text}")
    out.print("Phases, the parts between one s_barrier or s_setprio and the next:")
    for phase, text in PHASES.items():
        out.print(f"- {phase}: {text}")
    out.print("The model can't see:")
    for line in cannot_see():
        out.print(f"- {line}")


def _cycles(title: str, problems: Sequence[Timed]) -> Table:
    columns = ("waves", "copies", "cycles", "of one", "passes", "of a pass", "matrix", "matrix, loop")
    table = make_table(("problem",), columns, title)
    for one in problems:
        table.add_row(
            one.problem.partition("/")[2],
            str(len(one.waves) // one.resident),
            str(one.resident),
            str(one.cycles),
            f"{one.cycles / one.resident:.0f}",
            str(max(wave.passes for wave in one.waves)),
            f"{one.pass_cycles:.0f}",
            f"{one.matrix_share:.1%}",
            f"{one.loop_share:.1%}",
        )
    return table


def _stalls(title: str, problems: Sequence[Timed]) -> Table:
    table = make_table(("problem",), ("issued", *(cause.replace("_", "\n", 1) for cause in CAUSES)), title)
    for one in problems:
        shares = one.stalls(loop=True)
        if one.pass_cycles:
            issued = 1 - sum(shares.values())
            table.add_row(one.problem.partition("/")[2], *(f"{share:.1%}" for share in (issued, *shares.values())))
    return table


def _launches(timings: Timings) -> Table:
    """Table of whole launches: cycles, TFLOP/s that they mean at the clock of published launches, published figures."""
    columns = ("workgroups", "cycles", "GHz", "expected TFLOP/s", "range", "published, other code")
    table = make_table(("problem",), columns, "The launch on a GPU")
    for one in timings.problems:
        if estimated := launch(one, timings.provenance["arch"], timings.problems):
            table.add_row(
                one.problem.partition("/")[2],
                str(one.launched),
                f"{estimated.cycles:.0f}",
                f"{estimated.ghz:.2f}",
                f"{estimated.expected:.0f}",
                show_range(estimated),
                show_published(estimated),
            )
    return table


def _phases(timings: Timings) -> Iterator[tuple[str, Sequence[PhaseShare]]]:
    """Phases of the first problem of each kernel; problems of one kernel differ little."""
    for one in {one.kernel: one for one in reversed(timings.problems)}.values():
        yield f"{one.problem.partition('/')[2]} on {version_of(one)}: phases of its waves", one.phases()


def _table_of_phases(title: str, phases: Sequence[PhaseShare]) -> Table:
    causes = (cause.replace("_", "\n") for cause in CAUSES)
    table = make_table(("phase",), ("parts", "of the\nwaves", "matrix", "issued", *causes), title)
    for one in phases:
        shares = (one.cycles, one.matrix, one.issued, *one.stalls.values())
        table.add_row(one.phase, str(one.parts), *(f"{share:.1%}" for share in shares))
    return table


def _versions(about: str, rows: Sequence[PublishedRow]) -> Table:
    """One of the documents' tables: V3 over V2 as modelled and as published."""
    table = Table(title=about, box=None, title_justify="left", pad_edge=False)
    texts = ("row", "error", "assumed")
    counted = ("V2 cycles", "V3 cycles", "V2 loop", "V3 loop", "V3/V2, cycles", "published, TFLOP/s")
    for column in (texts[0], *counted, *texts[1:]):
        table.add_column(column, justify="left" if column in texts else "right")
    for row in rows:
        figures = [""] * 5
        if pair := row.modelled:
            both = (pair.v2, pair.v3)
            figures = [
                *(f"{one.cycles:.0f}" for one in both),
                *(f"{one.loop:.1%}" for one in both),
                f"{pair.ratio:.2f}",
            ]
        table.add_row(row.label, *figures, f"{row.published.ratio:.2f}", row.error_text(row.modelled), row.assumed)
    return table


def _sensitivity(timings: Timings) -> Table:
    """Changes of the cycles over all problems with a fifth less and a fifth more of each doubtful figure."""
    known = numbers(timings.provenance["arch"])
    columns = ("value", "less, least", "most", "more, least", "most")
    table = make_table(("problem",), columns, "Doubtful figures: change of the cycles")
    for name in dict.fromkeys(name for one in timings.problems for name in one.sensitivity):
        changes = [
            [one.sensitivity[name][at] / one.cycles - 1 for one in timings.problems if name in one.sensitivity]
            for at in (0, 1)
        ]
        cells = [f"{pick(side):+.1%}" for side in changes for pick in (min, max)]
        table.add_row(name, str(known[name].value) if name in known else "?", *cells)
    return table


def show_against(timings: Timings, other: Timings, out: Console) -> None:
    """Print a row for each problem of both: cycles of a workgroup and of a pass, and the matrix units' share.

    Raises:
        InconclusiveError: different archs, or no common problem.
    """
    shared, arch = pairs_of(timings, other), timings.provenance["arch"]
    named = f"{timings.provenance['upstream']} against {other.provenance['upstream']}"
    columns = ("of one workgroup", "", "of a pass", "", "loop", "other")
    table = make_table(("problem",), columns, f"{named} on {arch}, on the timing model")
    for one, second in shared:
        pairs = ((one.cycles / one.resident, second.cycles / second.resident), (one.pass_cycles, second.pass_cycles))
        cells = [cell for ours, theirs in pairs for cell in (f"{ours:.0f}", _change(ours, theirs))]
        table.add_row(one.problem.partition("/")[2], *cells, f"{one.loop_share:.1%}", f"{second.loop_share:.1%}")
    out.print(table)
    out.print("Cycles of the engine clock, and their change. loop, other: the matrix units' share in the hot loops.")


def _change(ours: float, theirs: float) -> str:
    return f"{ours / theirs - 1:+.2%}" if theirs else ""
