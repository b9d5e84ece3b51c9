"""What a gate says: a row for each figure it compared, a verdict over all rows, and where the figures come from.

The static, the emulated and the GPU gate all give a :class:`Gate`; it is stored as JSON, shown by the report, and
turned into an exit code by :func:`demand`.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matrix.base.files import write_atomically
from reports.errors import GateError, InconclusiveError, RegressedError

GATES = ("static", "emulated", "gpu")
# the worst first; a gate's verdict is the worst of its rows
VERDICTS = ("not comparable", "missing", "regressed", "inconclusive", "improved", "unchanged")
_SHOWN = 10  # rows that an error message names; the rest is in the file
_REMEDY = "Run the gate again: python -m reports gate --help."


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One figure of one kernel or problem. ``threshold`` says in words what was allowed."""

    gate: str  # one of GATES
    subject: str  # a kernel's name or a problem's
    metric: str
    unit: str
    baseline: float | None
    candidate: float | None
    threshold: str
    verdict: str  # one of VERDICTS
    note: str = ""

    def __str__(self) -> str:
        if self.baseline is self.candidate is None:
            return f"{self.verdict}: {self.subject}: {self.metric}: {self.note}"
        change = f"{_figure(self.baseline)} -> {_figure(self.candidate)} {self.unit}".rstrip()
        allowed = f" (allowed: {self.threshold})" if self.threshold else ""
        return f"{self.verdict}: {self.subject}: {self.metric}: {change}{allowed}{'; ' if self.note else ''}{self.note}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """A gate's rows in the order of the comparison. ``verdict`` is never ``missing``: that is not comparable."""

    verdict: str
    provenance: Mapping[str, str]  # arch, toolchain, upstream, identities, device: what was compared with what
    rows: tuple[Row, ...]

    @classmethod
    def of(cls, rows: Iterable[Row], provenance: Mapping[str, str]) -> Gate:
        """The gate of these rows. Raises GateError if there is none: nothing compared is no pass."""
        found = tuple(rows)
        if not found:
            raise GateError("the gate compared nothing: no figure in the baseline, none in the candidate.")
        return cls(verdict=worst(row.verdict for row in found), provenance=dict(provenance), rows=found)

    @property
    def failing(self) -> tuple[Row, ...]:
        """The rows that keep the gate from passing, the worst first."""
        bad = [row for row in self.rows if row.verdict not in ("improved", "unchanged")]
        return tuple(sorted(bad, key=lambda row: VERDICTS.index(row.verdict)))

    def write(self, file: Path) -> None:
        """Replace ``file`` in one step. Raises DiskFullError, OutputError; GateError for a figure that is no number."""
        try:
            text = json.dumps(dataclasses.asdict(self), indent=1, allow_nan=False)
        except ValueError as error:
            raise GateError(f"{file}: not written: a figure is NaN or infinite ({error}).") from error
        write_atomically(file, (text + "\n").encode())

    @classmethod
    def read(cls, file: Path) -> Gate:
        """A gate as :meth:`write` stored it.

        Raises:
            GateError: no such file, no JSON, a field missing or of another kind, or a verdict that its rows deny.
        """
        try:
            stored = json.loads(file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise GateError(f"{file}: no such result of a gate. {_REMEDY}") from None
        except (OSError, ValueError, RecursionError) as error:
            raise GateError(f"{file}: can't be read as a gate's result: {error}. {_REMEDY}") from error
        if not isinstance(stored, dict) or set(stored) != {"verdict", "provenance", "rows"}:
            raise GateError(f"{file}: no gate's result: verdict, provenance and rows expected. {_REMEDY}")
        provenance, rows = stored["provenance"], stored["rows"]
        if not isinstance(provenance, dict) or not all(isinstance(value, str) for value in provenance.values()):
            raise GateError(f"{file}: provenance: expected text by name. {_REMEDY}")
        if not isinstance(rows, list) or not rows:
            raise GateError(f"{file}: rows: expected a list of at least one. {_REMEDY}")
        gate = cls.of((_row(file, at, row) for at, row in enumerate(rows)), provenance)
        if gate.verdict != stored["verdict"]:
            raise GateError(f"{file}: verdict {stored['verdict']!r}, but its rows say {gate.verdict!r}. {_REMEDY}")
        return gate


def worst(verdicts: Iterable[str]) -> str:
    """The verdict over all: the first of VERDICTS that occurs, a missing figure counting as not comparable."""
    found = min(verdicts, key=VERDICTS.index)
    return "not comparable" if found == "missing" else found


def demand(gate: Gate, file: Path | None = None) -> None:
    """Return if the gate passes (unchanged or improved).

    Raises:
        GateError, RegressedError, InconclusiveError: not comparable, regressed, inconclusive; the message names the
            first rows at fault.
    """
    kinds = {"not comparable": GateError, "regressed": RegressedError, "inconclusive": InconclusiveError}
    if gate.verdict not in kinds:
        return
    bad = gate.failing
    lines = [f"  {row}" for row in bad[:_SHOWN]]
    if len(bad) > _SHOWN:
        lines.append(f"  and {len(bad) - _SHOWN} more")
    place = f"; all of them in {file}" if file else ""
    raise kinds[gate.verdict](f"{gate.verdict}: {len(bad)} of {len(gate.rows)} figures{place}\n" + "\n".join(lines))


def _figure(value: float | None) -> str:
    return "none" if value is None else f"{value:.6g}" if value % 1 else str(int(value))


_FIELDS = {field.name for field in dataclasses.fields(Row)}


def _row(file: Path, at: int, stored: Any) -> Row:
    """Raises GateError."""
    if not isinstance(stored, dict) or set(stored) != _FIELDS:
        raise GateError(f"{file}: rows[{at}]: expected the fields {', '.join(sorted(_FIELDS))}. {_REMEDY}")
    for name, value in stored.items():
        if name in ("baseline", "candidate"):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
                raise GateError(f"{file}: rows[{at}].{name}: {value!r} is no number. {_REMEDY}")
            if value is not None and not math.isfinite(value):
                raise GateError(f"{file}: rows[{at}].{name}: {value} is no finite number. {_REMEDY}")
        elif not isinstance(value, str):
            raise GateError(f"{file}: rows[{at}].{name}: {value!r} is no text. {_REMEDY}")
    if stored["gate"] not in GATES or stored["verdict"] not in VERDICTS:
        raise GateError(f"{file}: rows[{at}]: no gate {stored['gate']!r} or verdict {stored['verdict']!r}. {_REMEDY}")
    return Row(**stored)
