"""Results of checks as plain data: what a run writes, and what reports/ turns into JUnit XML and tables.

It lies here and not in reports/ because kernels/ writes it and reports/ may know kernels/, not the reverse.
"""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernels.errors import ResultsError
from matrix.base.outputs import write_output

OUTCOMES = ("passed", "failed", "error", "skipped")
LIBRARY_SHA256 = "library sha256"  # a fact of results: of the library that was run
_FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One checked thing.

    ``message`` is one line (what failed, or why it was skipped; '' if it passed), ``text`` everything worth reading:
    the difference of a failure, or what was compared and which known differences were accepted.
    """

    suite: str
    classname: str
    name: str
    outcome: str
    message: str = ""
    text: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Results:
    """``facts`` is what all cases share: the device they ran on, the library, the day; empty if nobody told."""

    cases: tuple[Case, ...]
    facts: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def failing(self) -> tuple[Case, ...]:
        """Cases that failed or could not be checked."""
        return tuple(case for case in self.cases if case.outcome in ("failed", "error"))

    def counts(self) -> Mapping[str, int]:
        """How many cases have each outcome; every outcome is listed."""
        found = Counter(case.outcome for case in self.cases)
        return {outcome: found[outcome] for outcome in OUTCOMES}

    def to_json(self) -> str:
        facts = {"facts": dict(self.facts)} if self.facts else {}
        document = {"format": _FORMAT, **facts, "cases": [dataclasses.asdict(case) for case in self.cases]}
        return json.dumps(document, indent=1, ensure_ascii=False) + "\n"

    def write(self, file: Path) -> None:
        """Replace ``file`` in one step. Raises DiskFullError, OutputError."""
        write_output(file, self.to_json().encode())


def read_results(file: Path) -> Results:
    """Raises ResultsError: the file can't be read or is no results file; the message names the field."""
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ResultsError(f"{file}: can't be read as results: {error}. Run the check again with --output.") from error
    if not isinstance(document, dict) or document.get("format") != _FORMAT:
        raise ResultsError(f"{file}: no results of format {_FORMAT}. Run the check again with this version.")
    cases = document.get("cases")
    if not isinstance(cases, list):
        raise ResultsError(f"{file}: cases: expected a list.")
    facts = document.get("facts", {})
    if not isinstance(facts, dict) or not all(isinstance(value, str) for value in facts.values()):
        raise ResultsError(f"{file}: facts: expected an object of texts.")
    return Results(tuple(_case(file, f"cases[{at}]", row) for at, row in enumerate(cases)), facts)


def _case(file: Path, where: str, row: Any) -> Case:
    if not isinstance(row, dict):
        raise ResultsError(f"{file}: {where}: expected an object.")
    for field in dataclasses.fields(Case):
        value = row.get(field.name)
        expected = (int, float) if field.name == "seconds" else str
        if not isinstance(value, expected):
            raise ResultsError(f"{file}: {where}.{field.name}: expected {field.type}, found {value!r}.")
    if unknown := sorted(set(row) - {field.name for field in dataclasses.fields(Case)}):
        raise ResultsError(f"{file}: {where}.{unknown[0]}: no such field.")
    if row["outcome"] not in OUTCOMES:
        raise ResultsError(f"{file}: {where}.outcome: '{row['outcome']}' is none of {', '.join(OUTCOMES)}.")
    return Case(**row)
