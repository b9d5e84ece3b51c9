"""Kernel lists as CSV and JSON, and keys read back from their rows."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import re
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ckpm.base.errors import InputError
from ckpm.matrix.keys import KEY_FIELDS, TILE_FIELDS, Key, Tile

COLUMNS = tuple(
    column for name in KEY_FIELDS for column in ([f"tile.{part}" for part in TILE_FIELDS] if name == "tile" else [name])
)


def to_json(rows: Iterable[Mapping[str, Any]]) -> str:
    """A JSON list with one row a line, so that a difference of two lists reads well."""
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


def key_from_row(row: Mapping[str, Any]) -> Key:
    """The key that a row of an export describes: the inverse of ``Key.row()``, also after a way through CSV.

    Raises:
        InputError: a column is missing or holds a value that its field can't have.
    """
    parts = {name: _value(row, f"tile.{name}", kinds) for name, kinds in _TILE_KINDS.items()}
    values = {name: _value(row, name, kinds, name in _OPTIONAL) for name, kinds in _KEY_KINDS.items()}
    return Key(tile=Tile(**parts), **values)


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str) and value.startswith(_FORMULA) and not _NUMBER.fullmatch(value):
        value = f"'{value}"
    return value.replace("\r", " ") if isinstance(value, str) else value


def _value(row: Mapping[str, Any], column: str, kinds: tuple[type, ...], optional: bool = False) -> Any:
    if column not in row:
        raise InputError(f"column '{column}' is missing; a row needs {', '.join(COLUMNS)}", kind="row")
    value = row[column]
    if types.NoneType in kinds and value in (None, ""):
        return None
    if bool in kinds and (isinstance(value, bool) or value in ("true", "false")):
        return value in (True, "true")
    if int in kinds and _INTEGER.fullmatch(str(value)):
        return int(value)
    if str in kinds and isinstance(value, str) and (value or optional):
        return value
    names = " or ".join("empty" if one is types.NoneType else one.__name__ for one in kinds)
    raise InputError(f"column '{column}' must be {names}, not {value!r}", kind="row")


_OPTIONAL = {field.name for field in dataclasses.fields(Key) if field.default == ""}
_INTEGER = re.compile("-?[0-9]{1,9}")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what begins one in Excel, LibreOffice or Google Sheets
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def _kinds(record: type) -> dict[str, tuple[type, ...]]:
    """The types that the fields of a record may have, except a tile, whose fields have columns of their own."""
    hints = typing.get_type_hints(record)
    return {name: typing.get_args(hint) or (hint,) for name, hint in hints.items() if hint is not Tile}


_KEY_KINDS = _kinds(Key)
_TILE_KINDS = _kinds(Tile)
