"""``ckpm model --references``: the published figures, with their documents."""

from __future__ import annotations

import argparse

from rich.console import Console
from rich.table import Table

from ckpm.base.console import console
from ckpm.reports.gates.references import Reference, read_references


def run(_: argparse.Namespace) -> None:
    """Raises TableError."""
    show(read_references(), console())


def show(references: tuple[Reference, ...], out: Console) -> None:
    """Print a table for each entry: its document, hardware, ROCm, and a row for each figure."""
    for name in dict.fromkeys(one.name for one in references):
        mine = [one for one in references if one.name == name]
        first = mine[0]
        source = first.source
        out.print(f"{name}: {first.about}", style="bold")
        table = Table(box=None, pad_edge=False)
        for column in ("figure", "of", first.metric, "unit", "compared"):
            table.add_column(column, justify="right" if column == first.metric else "left")
        for one in mine:
            compared = f"within {one.tolerance:.2g}" if one.shape else "listed only"
            table.add_row(one.label, one.variant, f"{one.value:g}", one.unit, compared)
        out.print(table)
        for text in dict.fromkeys(f"{one.label}: {one.assumed}" for one in mine if one.assumed):
            out.print(text)
        rocm = f"ROCm {source.rocm}" if source.rocm else "ROCm not stated"
        out.print(f"{source.title}\n{source.hardware}, {rocm}; {source.method}\n")
