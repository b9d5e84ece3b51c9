"""Format lists of kernels, problems and counts as CSV, JSON or aligned text."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

FORMATS = ("text", "json", "csv")


def to_json(rows: Iterable[Mapping[str, Any]]) -> str:
    """A JSON list with one row a line, for readable diffs."""
    lines = [json.dumps(row) for row in rows]
    return "[\n" + ",\n".join(lines) + "\n]\n" if lines else "[]\n"


def to_csv(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """CSV with a header; None is empty, booleans are ``true`` and ``false`` as in JSON.

    A text that a spreadsheet would take for a formula begins with an apostrophe, and a carriage return, where one might
    begin a new cell, is a space: OWASP, "CSV Injection".
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_cell(row[column]) for column in columns] for row in rows)
    return text.getvalue()


def format_rows(rows: Iterable[Mapping[str, Any]], form: str, text: str = "", columns: Sequence[str] = ()) -> str:
    """Rows as JSON or CSV, or their ``text``. ``columns`` are the columns of a CSV without rows."""
    if form == "json":
        return to_json(rows)
    listed = list(rows) if form == "csv" else []
    return to_csv(list(listed[0]) if listed else columns, listed) if form == "csv" else text


def table(rows: Sequence[Mapping[str, Any]], *, left: int) -> str:
    """The rows below their names, as :func:`align` aligns them."""
    return align([list(rows[0]), *(row.values() for row in rows)], left=left)


def align(table: Iterable[Iterable[object]], *, left: int | None = None) -> str:
    """Pad columns to their widest cell. The first ``left`` (default: all) are left-aligned, others right-aligned."""
    lines = [[str(cell) for cell in line] for line in table]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = ""
    for line in lines:
        cells = [
            cell.ljust(width) if left is None or column < left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        text += "  ".join(cells).rstrip() + "\n"
    return text


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str) and value.startswith(_FORMULA) and not _NUMBER.fullmatch(value):
        value = f"'{value}"
    return value.replace("\r", " ") if isinstance(value, str) else value


_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # beginnings of a formula in Excel, LibreOffice or Google Sheets
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
