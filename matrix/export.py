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

from matrix.base.errors import RowError
from matrix.keys import KEY_FIELDS, TILE_FIELDS, Key, Tile

COLUMNS = tuple(
    column for name in KEY_FIELDS for column in ([f"tile.{part}" for part in TILE_FIELDS] if name == "tile" else [name])
)


def to_json(rows: Iterable[Mapping[str, Any]]) -> str:
    """A JSON list with one row a line, so that a difference of two lists reads well."""
    lines = [json.dumps(row) for row in rows]
    return "[\n" + ",\n".join(lines) + "\n]\n" if lines else "[]\n"


def to_csv(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """CSV with a header; None is empty, booleans are ``true`` and ``false`` as in JSON."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_cell(row[column]) for column in columns] for row in rows)
    return text.getvalue()


def key_from_row(row: Mapping[str, Any]) -> Key:
    """The key that a row of an export describes: the inverse of ``Key.row()``, also after a way through CSV.

    Raises:
        RowError: a column is missing or holds a value that its field can't have.
    """
    parts = {name: _value(row, f"tile.{name}", kind) for name, kind in _TILE_KINDS.items()}
    values = {name: _value(row, name, kind, name in _OPTIONAL) for name, kind in _KEY_KINDS.items() if name != "tile"}
    return Key(tile=Tile(**parts), **values)


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value


def _value(row: Mapping[str, Any], column: str, kind: Any, optional: bool = False) -> Any:
    if column not in row:
        raise RowError(f"column '{column}' is missing; a row needs {', '.join(COLUMNS)}")
    value, kinds = row[column], typing.get_args(kind) or (kind,)
    if types.NoneType in kinds and value in (None, ""):
        return None
    if bool in kinds and (isinstance(value, bool) or value in ("true", "false")):
        return value in (True, "true")
    if int in kinds and re.fullmatch("-?[0-9]{1,9}", str(value)):
        return int(value)
    if str in kinds and isinstance(value, str) and (value or optional):
        return value
    names = " or ".join("empty" if one is types.NoneType else one.__name__ for one in kinds)
    raise RowError(f"column '{column}' must be {names}, not {value!r}")


_OPTIONAL = {field.name for field in dataclasses.fields(Key) if field.default == ""}
_KEY_KINDS = typing.get_type_hints(Key)
_TILE_KINDS = typing.get_type_hints(Tile)
