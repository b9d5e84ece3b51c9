"""Waivers: a person's acceptance of known defects for a release, with a last day.

waivers:
  table-read-past-end:            # an entry of matrix/ledger.yaml or of matrix/tables/defects.yaml
    accepted_by: Name <address>
    accepted_on: 2026-11-22
    until: 2027-01-31             # the last day
    reason: why the release may go out with it
"""

from __future__ import annotations

import datetime
import difflib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from ckpm.base.errors import CheckFailedError
from ckpm.base.tablefile import Record, Text, read_table


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiver:
    """An acceptance of the defect ``name``: person, day, last day and reason. ``place`` is its file:line."""

    name: str
    place: str
    accepted_by: str
    accepted_on: datetime.date
    until: datetime.date
    reason: str


class _Row(Record, frozen=True):
    accepted_by: Text
    accepted_on: datetime.date
    until: datetime.date
    reason: Text


class WaiverTable(Record, frozen=True):
    """The record of a file of waivers."""

    waivers: dict[str, _Row]


def read_waivers(file: Path, known: Collection[str] | None = None) -> Mapping[str, Waiver]:
    """Read waivers by name of the defect. ``known`` are valid names; None takes any, for bundles of older tables.

    Raises:
        TableError: with file, line and field: an unknown field or defect, an empty text, a wrong date.
    """
    table = read_table(file, WaiverTable)
    waivers = {}
    for name, row in table.record.waivers.items():
        item = table.at("waivers", name)
        if known is not None and name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean '{close[0]}'?" if close else "."
            raise item.fail(f"no known defect has this name{hint} Waivers are for entries of the ledger; remove this")
        if row.until < row.accepted_on:
            raise item.get("until").fail(f"is before {row.accepted_on}, the day of the acceptance")
        waivers[name] = Waiver(name=name, place=f"{item.file.name}:{item.line}", **msgspec.structs.asdict(row))
    return waivers


def demand_accepted(defects: Mapping[str, int], waivers: Mapping[str, Waiver], today: datetime.date | None) -> None:
    """Raise CheckFailedError for a defect without a waiver on that day. Values are numbers of cases or kernels.

    Without a day any waiver will do: a bundle was judged on its own day.
    """
    lines = []
    for name, count in sorted(defects.items()):
        waiver = waivers.get(name)
        if waiver is None:
            lines.append(f"{name} ({count}): not accepted")
        elif today and waiver.until < today:
            lines.append(f"{name} ({count}): {waiver.place}: the acceptance ended on {waiver.until}")
        elif today and waiver.accepted_on > today:
            lines.append(f"{name} ({count}): {waiver.place}: accepted only on {waiver.accepted_on}, which is to come")
    if lines:
        raise CheckFailedError(
            "known defects without a waiver for this release:\n  "
            + "\n  ".join(lines)
            + "\nSolve them, or let somebody accept each in a file for --waivers:\n"
            "waivers:\n  NAME: {accepted_by: WHO, accepted_on: DATE, until: DATE, reason: WHY}",
            kind="waiver",
        )
