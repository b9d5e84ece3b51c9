"""The HTML report: one file that needs no network. A script in it shows tables from compact JSON.

Every text is stored once and referred to by its number, because 40,000 cases name the same kernels and ledger entries.
The browser builds only the rows of the page in view.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jinja2

from ckpm import __version__
from ckpm.base import console
from ckpm.base.display import printable
from ckpm.base.files import sha256_of
from ckpm.base.outputs import write_output
from ckpm.base.paths import data
from ckpm.base.processes import revision
from ckpm.reports.page.inputs import ReportInputs
from ckpm.reports.page.overall import SYMBOLS, Overall
from ckpm.reports.page.plots import plots
from ckpm.reports.page.report_table import ReportTable
from ckpm.reports.page.sections import tables

_TEMPLATES = data("reports", "page", "templates")


def write_html(inputs: ReportInputs, verdict: Overall, file: Path) -> None:
    """Replace ``file`` in one step."""
    write_output(file, html(inputs, verdict, _now()).encode())


def _now() -> datetime:
    """The time now, or SOURCE_DATE_EPOCH in seconds since 1970 (reproducible-builds.org)."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    if re.fullmatch(r"[0-9]{1,11}", epoch):
        return datetime.fromtimestamp(int(epoch), UTC)
    return datetime.now(UTC)


def html(inputs: ReportInputs, verdict: Overall, written: datetime) -> str:
    """The document, whose tables are in one JSON text."""
    all_tables = tables(inputs)
    # without a case no fault could be there; with cases "None." is a result
    empty = [table for table in all_tables if not table.rows and not (table.id == "faults" and inputs.cases)]
    sections = [table for table in all_tables if table not in empty]
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("report.html.j2").render(
        verdict=verdict,
        symbols=SYMBOLS,
        tables=sections,
        empty=empty,
        labels=[library.label for library in inputs.libraries],
        heads=heads(inputs),
        version=f"ckpm {__version__}{revision()}",
        plots=plots(inputs),
        provenance=provenance(inputs),
        written=written.strftime("%Y-%m-%d %H:%M UTC"),
        style=(_TEMPLATES / "report.css").read_text(encoding="utf-8"),
        script=(_TEMPLATES / "report.js").read_text(encoding="utf-8"),
        data=_script_json(encode(sections)),
    )


def heads(inputs: ReportInputs) -> list[str]:
    """A line for each library: its kernels, upstream and compiler."""
    return [
        f"{library.label}: {console.number(len(library.manifest.kernels), 'kernel')} of "
        f"{library.manifest.upstream_identity.partition(' sha256:')[0]}, compiled by {library.manifest.identity}"
        for library in inputs.libraries
    ]


def encode(tables: Sequence[ReportTable]) -> Mapping[str, Any]:
    """``strings``, and for each table its columns' cells: numbers as they are, texts as numbers of strings."""
    numbers: dict[str, int] = {}

    def number(text: str) -> int:
        return numbers.setdefault(printable(text), len(numbers))

    shown = {}
    for table in tables:
        cells = []
        for at, column in enumerate(table.columns):
            of_column = [row[at] for row in table.rows]
            cells.append(of_column if column.kind == "number" else [number(str(cell)) for cell in of_column])
        shown[table.id] = {
            "columns": [{"name": column.name, "kind": column.kind} for column in table.columns],
            "cells": cells,
            "details": {str(row): [number(line) for line in lines] for row, lines in table.details.items()},
        }
    return {"strings": list(numbers), "tables": shown}


def _script_json(data: Any) -> str:
    """JSON for a script element: it contains neither ``</script>`` nor ``<!--``."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.replace("<", "\\u003c")


def provenance(inputs: ReportInputs) -> list[tuple[str, list[tuple[str, str]]]]:
    """The origin of all results: the facts of each library by name, then each gate's further facts."""
    sources = [
        (
            library.label,
            [("manifest", str(library.manifest_file))]
            + [(name.replace("_", " "), _fact(value)) for name, value in library.manifest.facts().items()]
            + [
                (f"sha256 of {name}", str(digest))
                for name, digest in library.manifest.artifacts.items()
                if "/" not in name
            ]
            + [
                (f"suite {suite}", ", ".join(f"{name} {value}" for name, value in results.facts.items()))
                for suite, results in library.suites.items()
                if results.facts
            ],
        )
        for library in inputs.libraries
    ]
    library_facts = {fact for _, facts in sources for fact in facts}
    for file, gate in inputs.gates.items():
        facts = [(name.replace("_", " "), value) for name, value in gate.provenance.items()]
        sources.append(
            (str(file), [fact for fact in facts if fact not in library_facts] or [("all facts", "as above")])
        )
    file = inputs.ledger.file  # not the folder's name, which differs between machines
    ledger = [("ledger", f"{file.name}, sha256 {sha256_of(file)}"), ("looked at on", str(inputs.today))]
    return [*sources, ("known defects", ledger)]


def _fact(value: Any) -> str:
    if isinstance(value, list) and all(isinstance(member, str) for member in value):
        value = ", ".join(value)
    return value or "none" if isinstance(value, str) else json.dumps(value, ensure_ascii=False) if value else "none"
