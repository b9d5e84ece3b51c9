"""The tuning database: what is measured is found by its problem, and a file that is none is said to be none."""

from __future__ import annotations

import contextlib
import dataclasses
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from ckpm.attention.tuning import SCHEMA, BestMeasurement, Measurement, TuningDatabase
from ckpm.base.errors import OutputError, ProblemError, RecordError
from tests.unit.attention.fakes import PREFILL


def execute(file: Path, statement: str, *parameters: Any) -> list[Any]:
    """Run a statement as another program."""
    with contextlib.closing(sqlite3.connect(file)) as other, other:
        return other.execute(statement, parameters).fetchall()


def test_best_is_least_measurement(tmp_path: Path) -> None:
    base = TuningDatabase(tmp_path / "t.db")
    base.add(PREFILL, "hip", [Measurement(kernel="a", value=3.0), Measurement(kernel="b", value=2.0, library="00ff")])
    base.add(PREFILL, "hip", [Measurement(kernel="c", value=1.0), Measurement(kernel="a", value=2.5)])
    again = TuningDatabase(tmp_path / "t.db")
    assert again.measurements(PREFILL, "hip") == (
        Measurement(kernel="c", value=1.0),
        Measurement(kernel="b", value=2.0, library="00ff"),
        Measurement(kernel="a", value=2.5),
    )
    assert again.best(PREFILL, "hip", ["a", "b"]) == BestMeasurement(kernel="b", value=2.0, unit="ms", compared=2)
    assert again.best(PREFILL, "hip", ["d"]) is None
    assert again.best(PREFILL, "emulator", ["a"]) is None


@pytest.mark.parametrize(
    "changes",
    [{"window_left": 127}, {"window_right": 9}, {"sink_size": 4}, {"total_q": 41}, {"sink_logits": True},
     {"split_keys": 128}],
)  # fmt: skip
def test_measurement_of_another_window_or_rows_is_not_taken(changes: dict[str, Any], tmp_path: Path) -> None:
    base = TuningDatabase(tmp_path / "t.db")
    masked = dataclasses.replace(PREFILL, mask="window", window_left=200)
    base.add(masked, "hip", [Measurement(kernel="a", value=3.0)])
    other = dataclasses.replace(masked, **changes)
    base.add(other, "hip", [Measurement(kernel="a", value=1.0)])
    values = [measurement.value for problem in (masked, other) for measurement in base.measurements(problem, "hip")]
    assert values == [3.0, 1.0]


@pytest.mark.parametrize("value", [float("-inf"), float("inf"), float("nan"), -1.0, 0.0, "fast", None, True])
def test_value_that_is_no_time_is_refused_and_never_wins(value: Any, tmp_path: Path) -> None:
    base = TuningDatabase(tmp_path / "t.db")
    right = Measurement(kernel="right", value=2.0)
    with pytest.raises(ProblemError, match=r"wrong has the measurement .*: a time is a finite number above 0"):
        base.add(PREFILL, "hip", [right, Measurement(kernel="wrong", value=value)])
    assert base.measurements(PREFILL, "hip") == ()  # none of a refused call


@pytest.mark.parametrize("value", [float("-inf"), -1.0, "fast", b"1"])
def test_stored_value_that_is_no_time_is_named(value: Any, tmp_path: Path) -> None:
    base = TuningDatabase(tmp_path / "t.db")
    base.add(PREFILL, "hip", [Measurement(kernel="a", value=2.0)])
    execute(tmp_path / "t.db", "UPDATE measured SET value = ?", value)
    with pytest.raises(RecordError, match=r"a has the measurement .*: a time is a finite number"):
        base.best(PREFILL, "hip", ["a"])


def test_units_are_not_mixed(tmp_path: Path) -> None:
    base = TuningDatabase(tmp_path / "t.db")
    base.add(PREFILL, "hip", [Measurement(kernel="a", value=0.1, unit="modelled ms")])
    base.add(PREFILL, "hip", [Measurement(kernel=name, value=value) for name, value in (("a", 9.0), ("b", 8.0))])
    assert base.best(PREFILL, "hip", ["a", "b"]) == BestMeasurement(kernel="b", value=8.0, unit="ms", compared=2)


def test_problems_are_told_apart_by_their_shape_and_arch(tmp_path: Path) -> None:
    base = TuningDatabase(tmp_path / "t.db")
    base.add(PREFILL, "hip", [Measurement(kernel="a", value=1.0)])
    for same in ({"dropout_seed": 5}, {"scale": 0.5}, {"pool_pages": 500}):
        assert base.measurements(dataclasses.replace(PREFILL, **same), "hip"), same
    for other in ({"seqlen_k": 71}, {"lse": True}, {"nhead_q": 8}, {"arch": "gfx942"}, {"family": "fwd_pagedkv"}):
        assert not base.measurements(dataclasses.replace(PREFILL, **other), "hip"), other


def test_locked_database_is_reported(tmp_path: Path) -> None:
    file = tmp_path / "t.db"
    TuningDatabase(file)
    holder = sqlite3.connect(file)
    holder.execute("BEGIN EXCLUSIVE")
    with pytest.raises(OutputError, match="another process holds it locked for over 0 s"):
        TuningDatabase(file, wait=0)
    holder.rollback()
    holder.close()
    TuningDatabase(file, wait=0)


def test_damaged_and_foreign_files_are_named(tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.db"
    damaged.write_bytes(b"SQLite format 3\0" + b"x" * 5000)
    with pytest.raises(RecordError, match="damaged one"):
        TuningDatabase(damaged)
    text = tmp_path / "text.db"
    text.write_text("no database at all, and longer than a header of a hundred bytes" * 4)
    with pytest.raises(RecordError, match="no tuning database"):
        TuningDatabase(text)
    foreign = tmp_path / "foreign.db"
    execute(foreign, "CREATE TABLE mine (x)")
    with pytest.raises(RecordError, match="another program wrote it"):
        TuningDatabase(foreign)
    assert execute(foreign, "SELECT name FROM sqlite_master") == [("mine",)]


def test_another_schema_is_named(tmp_path: Path) -> None:
    TuningDatabase(tmp_path / "t.db")
    execute(tmp_path / "t.db", f"PRAGMA user_version = {SCHEMA + 1}")
    with pytest.raises(RecordError, match=f"of schema {SCHEMA + 1}, this program reads {SCHEMA}"):
        TuningDatabase(tmp_path / "t.db")
