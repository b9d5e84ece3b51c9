"""A benchmark's results as a file: written after each case, so that a run that was ended goes on where it was.

``asked`` is everything that decides about the results; a file of another question is never gone on with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ckpm.attention.sweeps.stored.columns import COLUMNS, Cell, Row
from ckpm.base.errors import RecordError
from ckpm.base.files import write_atomically
from ckpm.base.records import Source, Value, as_text

FORMAT = 1
_REMEDY = "Run the benchmark again, with another --work or without this file."
_WHOLE = "1/1"
FAULT = "fault: "  # begins the reason of a case that was left out because its launch faulted


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """``rows`` are what ran, ``left_out`` what did not: problem and kernel -> why. ``cases``: how many there are."""

    asked: Mapping[str, str]
    kernels: int
    cases: int
    rows: Sequence[Row] = ()
    left_out: Mapping[tuple[str, str], str] = field(default_factory=dict)

    @property
    def finished(self) -> bool:
        return len(self.rows) + len(self.left_out) == self.cases

    @property
    def failing(self) -> tuple[str, ...]:
        """Launches that faulted, then kernels whose numbers differ without an entry of the ledger."""
        faults = [f"{name}: {kernel}: {why}" for (name, kernel), why in self.left_out.items() if why.startswith(FAULT)]
        wrong = [
            f"{row['problem_name']}: {row['kernel']}: differs from the reference" for row in self.rows if _is_wrong(row)
        ]
        return (*faults, *wrong)

    def metadata(self) -> dict[str, Any]:
        """The tile engine's fields, then ours."""
        return {
            "arch": self.asked["arch"],
            "category": self.asked["category"],
            "total_kernels": self.kernels,
            "shapes_benchmarked": len({row["problem_name"] for row in self.rows}),
            "total_measurements": len(self.rows),
            "total_cases": self.cases,
            "finished": self.finished,
        }

    def text(self) -> bytes:
        left_out = [
            {"problem_name": problem, "kernel": kernel, "reason": why}
            for (problem, kernel), why in self.left_out.items()
        ]
        return as_text(
            {
                "format": FORMAT,
                "metadata": self.metadata(),
                "asked": dict(self.asked),
                "results": [dict(row) for row in self.rows],
                "left_out": left_out,
            }
        )

    def write(self, file: Path) -> None:
        """Replace ``file`` in one step. Raises DiskFullError, OutputError."""
        write_atomically(file, self.text())

    @classmethod
    def read(cls, file: Path) -> Results:
        """Read a file. Raises RecordError, with the field: it can't be read, or is not a file of results."""
        document = Source(file, "results of a benchmark", _REMEDY, RecordError).read()
        if not isinstance(document.value, dict) or document.value.get("format") != FORMAT:
            raise document.source.fail(f"no results of format {FORMAT}")
        metadata = document.get("metadata")
        return cls(
            asked=document.get("asked").texts(),
            kernels=metadata.get("total_kernels").count(),
            cases=metadata.get("total_cases").count(),
            rows=tuple(map(_row, document.get("results").items())),
            left_out=dict(map(_left_out, document.get("left_out").items())),
        )


def _is_wrong(row: Row) -> bool:
    return row.get("agrees") is False and not row.get("known_defect")


def _row(value: Value) -> Row:
    value.allow(COLUMNS)
    for name in ("problem_name", "kernel"):
        value.get(name).nonempty_text()
    row: dict[str, Cell] = {}
    for name, one in value.members().items():
        if not isinstance(one.value, str | int | float | bool | None):
            raise one.fail("expected text, a number, true, false or null")
        row[name] = one.value
    return row


def _left_out(value: Value) -> tuple[tuple[str, str], str]:
    value.allow(("problem_name", "kernel", "reason"))
    return (value.get("problem_name").nonempty_text(), value.get("kernel").nonempty_text()), value.get(
        "reason"
    ).nonempty_text()


def merge_results(files: Sequence[Path]) -> Results:
    """The shards of one run together.

    Raises:
        RecordError: one can't be read, is unfinished, is of another run, comes twice or is missing.
    """
    parts = [Results.read(file) for file in files]
    first, count = parts[0], int(parts[0].asked["shard"].partition("/")[2])
    shards: dict[str, Path] = {}
    for file, part in zip(files, parts, strict=True):
        differing = [name for name in first.asked if name != "shard" and part.asked.get(name) != first.asked[name]]
        if differing:
            raise RecordError(f"{file}: of another run than {files[0]}: {differing[0]} differs.", kind="benchmark")
        if not part.finished:
            raise RecordError(f"{file}: unfinished: run its benchmark again, which then goes on.", kind="benchmark")
        if part.asked["shard"] in shards:
            raise RecordError(
                f"{file}: shard {part.asked['shard']} is {shards[part.asked['shard']]}, too.", kind="benchmark"
            )
        shards[part.asked["shard"]] = file
    if missing := [f"{at}/{count}" for at in range(1, count + 1) if f"{at}/{count}" not in shards]:
        raise RecordError(f"{files[0]}: the results of shard {', '.join(missing)} are missing.", kind="benchmark")
    return Results(
        asked={**first.asked, "shard": _WHOLE},
        kernels=sum(part.kernels for part in parts),
        cases=sum(part.cases for part in parts),
        rows=tuple(row for part in parts for row in part.rows),
        left_out={key: why for part in parts for key, why in part.left_out.items()},
    )
