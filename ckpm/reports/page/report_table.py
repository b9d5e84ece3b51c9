"""A table of the report as plain data: its columns with their kinds, its rows, the symbols of verdicts and statuses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ckpm.base.results import KNOWN_DEFECT
from ckpm.reports.verdicts import VERDICTS

Cell = str | int | float | None
GATE_SYMBOLS = dict(zip(VERDICTS, "✗✗✗??▼↕✓", strict=True))
# of cases, the worst first; symbols, because many can't see colours
STATUSES = {"error": "!", "failed": "✗", KNOWN_DEFECT: "≈", "skipped": "○", "passed": "✓"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """``kind``: number, status (begins with a symbol), choice (few values), word, name, kernel, prose or text."""

    name: str
    kind: str = "text"


@dataclass(frozen=True, slots=True, kw_only=True)
class Folded:
    """Lines that a reader can unfold."""

    title: str
    lines: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportTable:
    """Rows with the worst first. ``details`` are further lines of a row, by the row's number."""

    id: str
    title: str
    columns: tuple[Column, ...]
    rows: Sequence[Sequence[Cell]]
    details: Mapping[int, Sequence[str]] = field(default_factory=dict)
    note: str = ""
    short: str = ""  # the title in the navigation; the title itself if there is none
    folded: tuple[Folded, ...] = ()


def columns(**kinds: str) -> tuple[Column, ...]:
    """Columns by name, with a space for each underscore, and their kinds."""
    return tuple(Column(name=name.replace("_", " "), kind=kind) for name, kind in kinds.items())


def severity(status: str) -> int:
    """The rank of a status or verdict, 0 for the worst. Figures that no gate judged come last."""
    order, word = (*STATUSES, *VERDICTS), status.partition(" ")[2]
    return order.index(word) if word in order else len(order)
