"""``ckpm timing score``: the timing model beside published measurements, and its errors by group."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from ckpm.base.console import console, make_table
from ckpm.base.errors import CheckFailedError
from ckpm.base.outputs import demand_place
from ckpm.base.rocm_choice import add_rocm_options
from ckpm.timing.published import UNITS, published_figures, published_pairs
from ckpm.timing.score import GROUPS, SCORE, TIERS, TITLES, Score, ScoreRow, read_accepted, score_model, vary

OUTPUT = Path("build") / SCORE
_KINDS = {**UNITS, "ratio": ""}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--tier", default="full", choices=TIERS, help="smoke: without CK's kernels, which have to be compiled"
    )
    add_rocm_options(parser, "toolchain")
    parser.add_argument(
        "--work", type=Path, default=Path("build/score"), metavar="DIR", help="where to build (default: %(default)s)"
    )
    parser.add_argument(
        "--sensitivity", action="store_true", help="also with a fifth less and more of each doubtful number"
    )
    parser.add_argument("--output", type=Path, default=OUTPUT, metavar="FILE", help="(default: %(default)s)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Score the model, write the file and print the table."""
    from ckpm.timing.launches import CK_WHERE  # only here: other commands do without the emulator
    from ckpm.timing.tables import library

    demand_place(args.output)
    figures, bounds = published_figures(), read_accepted(args.tier)
    ck = None
    if "fwd" in TIERS[args.tier]:
        ck = library(args.toolchain, args.work, upstream="aiter", family="fwd", where=CK_WHERE)
    pairs = published_pairs()
    score = score_model(figures, pairs, args.tier, ck)
    if args.sensitivity:
        score = dataclasses.replace(score, sensitivity=vary(figures, pairs, args.tier, ck))
    score.write(args.output)
    show(score, console())
    if lines := score.worse(bounds):
        raise CheckFailedError(
            f"the timing model is farther from published measurements than accepted: {'; '.join(lines)}. "
            "Find the change that did it. If it is meant, edit reports/timing/accepted.yaml and say why."
        )
    return 0


def show(score: Score, out: Console) -> None:
    """Print rows by group, the rows that are not modelled with their reasons, the clocks and the figures."""
    for group in score.groups:
        rows = [row for row in score.rows if row.group == group and row.modelled is not None]
        out.print(_rows(f"{group}: {TITLES[group]}", rows))
    missing = [row for row in score.rows if row.modelled is None]
    out.print(f"Not modelled: {len(missing)} rows")
    for (kernel, metric, reason), labels in _by_reason(missing).items():
        out.print(f"- {kernel}, {metric}: {reason} ({len(labels)})")
    for name, clock in score.clocks.items():
        out.print(
            f"Clock of {name}: {clock.constant:.3f} GHz / share ** {clock.exponent:.2f}, at most {clock.peak:g}; "
            f"farthest calibrating row {clock.residual:.1%}"
        )
    if score.sensitivity:
        out.print(_sensitivity(score))
    out.print(_errors(score))


def _by_reason(rows: Sequence[ScoreRow]) -> dict[tuple[str, str, str], list[str]]:
    labels: dict[tuple[str, str, str], list[str]] = {}
    for row in rows:
        labels.setdefault((f"{row.kernel} ({row.gpu})", row.metric, row.reason), []).append(row.label)
    return labels


def _rows(title: str, rows: Sequence[ScoreRow]) -> Table:
    columns = ("published", "modelled", "offsets", "error", "MFMA share", "GHz")
    table = make_table(("kernel", "row", "GPU", "role"), columns, title)
    for row in rows:
        spread = "" if row.least is None or row.least == row.most else f"{row.least:.4g} to {row.most:.4g}"
        unit = _KINDS[row.metric]
        table.add_row(
            row.kernel,
            row.label,
            row.gpu,
            row.role,
            f"{row.published:.4g} {unit}",
            f"{row.modelled:.4g}",
            spread,
            f"{row.error:+.1%}",
            "" if row.matrix_share is None else f"{row.matrix_share:.1%}",
            "" if row.ghz is None else f"{row.ghz:.2f}",
        )
    return table


def _sensitivity(score: Score) -> Table:
    """Errors with a fifth less and a fifth more of each doubtful number, where they differ."""
    table = make_table(("number",), (*GROUPS, *GROUPS), "A fifth less and more of each doubtful number")
    for name, sides in score.sensitivity.items():
        cells = [f"{group.error:.1%}" for side in sides for group in side.values()]
        table.add_row(name, *cells)
    return table


def _errors(score: Score) -> Table:
    columns = ("rows", "error", "rank correlation", "log error", "right side of 1")
    title = f"Timing model, tier {score.tier}: errors of rows that calibrate nothing"
    table = make_table(("group",), columns, title)
    for name, group in score.groups.items():
        figures = (
            f"{group.error:.1%}",
            f"{group.rank:.3f}",
            f"{group.log_error:.3f}",
            f"{group.signs:.1%}" if name == "C" else "",
        )
        table.add_row(f"{name}: {TITLES[name]}", str(group.rows), *figures)
    return table
