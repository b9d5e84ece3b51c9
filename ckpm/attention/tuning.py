"""Measured times of kernels, by problem, in an SQLite file. Order ``measured`` chooses by them.

A problem is filed by its arch and its shape of the testing matrix, which decides the kernels that serve it. Rows,
window, sinks and splits are filed as well, because a kernel's time depends on them. A measurement is filed also by the
kind of device: the emulator's counts and modelled times are not a GPU's times. Several processes may write at once.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ckpm.base.errors import OutputError, ProblemError, RecordError, demand_type
from ckpm.base.files import write_error
from ckpm.matrix.problems.problem import Problem
from ckpm.matrix.problems.testing import to_shape

SCHEMA = 2
_MARK = 0x636B706D  # PRAGMA application_id: "ckpm"
_WAIT = 5.0  # seconds for another process's lock
_TABLE = """
CREATE TABLE measured (
  problem TEXT NOT NULL, arch TEXT NOT NULL, device TEXT NOT NULL, kernel TEXT NOT NULL,
  value REAL NOT NULL, unit TEXT NOT NULL, library TEXT NOT NULL,
  PRIMARY KEY (problem, arch, device, kernel, unit)
)"""
_UNFILED = ("name", "direction", "tier")
_FILED = ("family", "rows_q", "window_left", "window_right", "sink_size", "sink_logits", "splits", "split_keys")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """A time of a kernel on a problem: less is better. ``unit`` such as ms, modelled ms; ``library`` is its sha256."""

    kernel: str
    value: float
    unit: str = "ms"
    library: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BestMeasurement:
    """The least of ``compared`` kernels' measurements in one unit."""

    kernel: str
    value: float
    unit: str
    compared: int


def filed_as(problem: Problem) -> str:
    """The words under which a problem's measurements are kept."""
    shape = dataclasses.asdict(to_shape(problem))
    fields = {name: value for name, value in shape.items() if name not in _UNFILED}
    return json.dumps(fields | {name: getattr(problem, name) for name in _FILED}, sort_keys=True)


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf


class TuningDatabase:
    """A database that is opened for each call, so that any thread may use it.

    Another process may hold it locked for up to ``wait`` seconds.
    """

    def __init__(self, file: str | os.PathLike[str], wait: float = _WAIT) -> None:
        demand_type("the file", file, str | os.PathLike, "its path")
        self.file, self._wait = Path(file), wait
        with self._connect():
            pass

    def add(self, problem: Problem, device: str, measurements: Sequence[Measurement]) -> None:
        """Keep all measurements or none. They replace earlier ones of the same kernel, problem and unit."""
        for measurement in measurements:
            if not _is_time(measurement.value):
                raise ProblemError(
                    f"{measurement.kernel} has the measurement {measurement.value!r}: a time is a finite number "
                    "above 0.",
                    kind="tuning",
                )
        rows = [
            (
                filed_as(problem),
                problem.arch,
                device,
                measurement.kernel,
                measurement.value,
                measurement.unit,
                measurement.library,
            )
            for measurement in measurements
        ]
        with self._connect() as base:
            base.executemany("INSERT OR REPLACE INTO measured VALUES (?, ?, ?, ?, ?, ?, ?)", rows)

    def measurements(self, problem: Problem, device: str) -> tuple[Measurement, ...]:
        """All measurements of a problem, the least first."""
        with self._connect() as base:
            rows = base.execute(
                "SELECT kernel, value, unit, library FROM measured WHERE problem = ? AND arch = ? AND device = ? "
                "ORDER BY unit, value, kernel",
                (filed_as(problem), problem.arch, device),
            ).fetchall()
        if wrong := [row for row in rows if not _is_time(row[1])]:
            kernel, value, *_ = wrong[0]
            raise RecordError(
                f"{self.file}: {kernel} has the measurement {value!r}: a time is a finite number above 0. Remove the "
                "file, and measure again.",
                kind="tuning",
            )
        return tuple(Measurement(kernel=k, value=v, unit=u, library=s) for k, v, u, s in rows)

    def best(self, problem: Problem, device: str, kernels: Sequence[str]) -> BestMeasurement | None:
        """The fastest of these kernels in the unit that most of them were measured in; None without any."""
        rows = [measurement for measurement in self.measurements(problem, device) if measurement.kernel in set(kernels)]
        if not rows:
            return None
        units = [measurement.unit for measurement in rows]
        unit = max(dict.fromkeys(units), key=units.count)
        alike = [measurement for measurement in rows if measurement.unit == unit]
        least = min(alike, key=lambda measurement: measurement.value)
        return BestMeasurement(kernel=least.kernel, value=least.value, unit=unit, compared=len(alike))

    @contextlib.contextmanager
    def _connect(self) -> Iterator[sqlite3.Connection]:
        """Open a transaction, which is kept if the block ends well."""
        try:
            base = sqlite3.connect(self.file, timeout=self._wait)
        except sqlite3.Error as error:
            raise self._convert_error(error) from error
        try:
            with base:
                base.execute("BEGIN IMMEDIATE")
                self._check(base)
                yield base
        except sqlite3.Error as error:
            raise self._convert_error(error) from error
        finally:
            base.close()

    def _check(self, base: sqlite3.Connection) -> None:
        """Make the table of a new file, or check the schema of an old one."""
        (mark,), (version,) = (base.execute(f"PRAGMA {name}").fetchone() for name in ("application_id", "user_version"))
        if not mark and not base.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            base.execute(f"PRAGMA application_id = {_MARK}")
            base.execute(f"PRAGMA user_version = {SCHEMA}")
            base.execute(_TABLE)
        elif mark != _MARK:
            raise RecordError(
                f"{self.file}: no tuning database: another program wrote it. Name another file.", kind="tuning"
            )
        elif version != SCHEMA:
            raise RecordError(
                f"{self.file}: a tuning database of schema {version}, this program reads {SCHEMA}. Name another file, "
                "and measure again.",
                kind="tuning-version",
            )

    def _convert_error(self, error: sqlite3.Error) -> Exception:
        """The project's error for an error of SQLite."""
        code = (getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return OutputError(
                f"{self.file}: another process holds it locked for over {self._wait:g} s. Wait for it, or end it.",
                kind="tuning-locked",
            )
        if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
            return write_error(self.file, OSError(None, str(error)))
        return RecordError(
            f"{self.file}: no tuning database, or a damaged one: {error}. Remove it, and measure again.", kind="tuning"
        )
