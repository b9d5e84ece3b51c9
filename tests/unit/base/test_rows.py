"""An exported row has every value of its key."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator

import pytest

from ckpm.base.rows import to_csv, to_json
from ckpm.matrix.dialects import dialect_names
from ckpm.matrix.keys import COLUMNS, Key
from tests.unit.enumerated import keys_of

TILE = "tile.bm0 tile.bn0 tile.bk0 tile.bn1 tile.bk1 tile.bk0max tile.rm0 tile.rn0 tile.rk0 tile.rm1 tile.rn1 tile.rk1"


def keys(name: str) -> list[Key]:
    return keys_of(name, "batch_prefill")


def with_every_value(keys: list[Key]) -> Iterator[Key]:
    """Keys that have every value of every column, but for the name's: each cell is read for itself."""
    seen: set[tuple[str, object]] = set()
    for key in keys:
        new = {pair for pair in key.row().items() if pair[0] != "name"} - seen
        if new:
            seen |= new
            yield key


def cell(value: object) -> str:
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


@pytest.mark.parametrize("name", dialect_names())
def test_csv_and_json_hold_every_value(name: str) -> None:
    rows = [key.row() for key in with_every_value(keys(name))]
    assert json.loads(to_json(rows)) == rows
    cells = [{column: cell(value) for column, value in row.items()} for row in rows]
    assert list(csv.DictReader(io.StringIO(to_csv(COLUMNS, rows)))) == cells


def test_columns_say_everything_about_key() -> None:
    assert " ".join(COLUMNS) == (
        f"name family dtype hdim_q hdim_v mode {TILE} tile.wm0 tile.wn0 tile.wk0 tile.wm1 tile.wn1 tile.wk1 "
        "tile.bk2 tile.bk3 tile.bk4 tile.bhdq tile.bhdv tile.rm2 tile.rn2 tile.rk2 tile.max_seq_q tile.bs tile.bsk "
        "tile.bd tile.bdv tile.occupancy tile.when tile.word pipeline vlayout pad logits bias mask mask_impl lse "
        "dropout qscale sink page_size load kv_layout kv_table skip trload paged_kv rope dpad dvpad dbias dropout_impl "
        "deterministic arch_trait"
    )
    assert list(keys("ck-2025-11")[0].row()) == list(COLUMNS)


def test_none_is_empty_and_booleans_are_words_in_csv() -> None:
    rows = list(csv.reader(io.StringIO(to_csv(COLUMNS, [keys("ck-2025-11")[0].row()]))))
    cells = dict(zip(*rows, strict=True))
    assert (cells["logits"], cells["sink"], cells["tile.occupancy"]) == ("true", "", "-1")


def test_empty_list_is_valid_json_and_csv() -> None:
    assert json.loads(to_json([])) == []
    assert to_csv(["a", "b"], []) == "a,b\n"


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r"])
def test_csv_escapes_text_that_looks_like_formula(start: str) -> None:
    (row,) = csv.reader(io.StringIO(to_csv(["a", "b"], [{"a": f"{start}cmd|'/c x'!A1", "b": 1}]).split("\n", 1)[1]))
    assert row == [f"'{start}cmd|'/c x'!A1".replace("\r", " "), "1"]


def test_numbers_and_other_texts_are_written_as_they_are() -> None:
    cells = ["-1", "+2.5", "-1e-3", ".5", "a=b", "x-y", "", -1, -2.5, None, True]
    rows = [{"a": cell, "b": "x"} for cell in cells]
    written = [row[0] for row in csv.reader(io.StringIO(to_csv(["a", "b"], rows)))]
    assert written == ["a", "-1", "+2.5", "-1e-3", ".5", "a=b", "x-y", "", "-1", "-2.5", "", "true"]


def test_carriage_return_begins_no_cell() -> None:
    # csv.writer leaves it as it is, and spreadsheets take it for the end of a row
    assert to_csv(["a"], [{"a": "x\r=1+1"}]) == "a\nx =1+1\n"
