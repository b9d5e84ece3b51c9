"""Stored outcomes of other projects' test suites on the emulated device, and the differences of a run.

A suite's file in outcomes/ contains its name, source and command. For each arch it contains the number of tests, the
unsupported tests by the missing function, and the wrong tests by their account. All others passed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from ckpm.base.tablefile import Record, read_table

OUTCOMES = Path(__file__).with_name("outcomes")
PASSED, UNSUPPORTED, WRONG = "passed", "unsupported", "wrong"
THEIRS = "theirs: "  # begins the account of a wrong test whose cause is in the tested code
_HEAD = ("suite", "toolchain", "arch", "tests", "passed", "unsupported", "their defect", "wrong")


class Ran(Record, frozen=True, omit_defaults=True):
    """The outcomes on one arch: unsupported tests by the missing function, wrong tests by their account."""

    tests: int
    unsupported: dict[str, list[str]] = msgspec.field(default_factory=dict)
    wrong: dict[str, list[str]] = msgspec.field(default_factory=dict)

    def outcomes(self) -> dict[str, str]:
        """The outcomes of the tests that did not pass, by name."""
        kinds = {UNSUPPORTED: self.unsupported, WRONG: self.wrong}
        return {name: kind for kind, by_reason in kinds.items() for names in by_reason.values() for name in names}


class Suite(Record, frozen=True):
    """``source`` is the project and its version. ``command`` runs the suite."""

    name: str = msgspec.field(name="suite")
    source: str
    toolchain: str
    command: str
    archs: dict[str, Ran]


def read(file: Path) -> Suite:
    return read_table(file, Suite).record


def suites(folder: Path = OUTCOMES) -> tuple[Suite, ...]:
    """All stored suites, sorted by name."""
    return tuple(sorted(map(read, folder.glob("*.yaml")), key=lambda suite: suite.name))


def differences(stored: Ran, seen: Mapping[str, tuple[str, str]]) -> list[str]:
    """Compare a run (outcome and detail by test) with the stored list. Return a line for each difference.

    A test that passes and was stored as unsupported is a difference, too.
    """
    missing = {name: what for what, names in stored.unsupported.items() for name in names}
    expected = stored.outcomes()
    lines = [f"{len(seen)} tests ran, {stored.tests} are stored"] if len(seen) != stored.tests else []
    for name, (outcome, detail) in seen.items():
        before = expected.get(name, PASSED)
        if outcome == PASSED and before != PASSED:
            lines.append(f"{name}: passes now, stored as {before}: take it off the list")
        elif outcome == UNSUPPORTED and missing.get(name) != detail:
            lines.append(f"{name}: unsupported: {detail}; stored: {missing.get(name, before)}")
        elif outcome == WRONG != before:
            lines.append(f"{name}: {outcome}: {detail}")
    return [
        *lines,
        *(f"{name}: stored as {before}, did not run" for name, before in expected.items() if name not in seen),
    ]


def table(stored_suites: Sequence[Suite]) -> list[str]:
    """The lines of a Markdown table, a row for each suite and arch. Defects of the tested code are counted apart."""
    rows = [f"| {' | '.join(_HEAD)} |", "| --- | --- | --- | ---: | ---: | --- | ---: | ---: |"]
    for suite in stored_suites:
        for arch, ran in suite.archs.items():
            lacking = "; ".join(f"{len(names)}: {what}" for what, names in ran.unsupported.items()) or "0"
            defects = sum(len(names) for why, names in ran.wrong.items() if why.startswith(THEIRS))
            wrong = sum(map(len, ran.wrong.values())) - defects
            passed = ran.tests - len(ran.outcomes())
            cells = (suite.name, suite.toolchain, arch, ran.tests, passed, lacking, defects, wrong)
            rows.append(f"| {' | '.join(map(str, cells))} |")
    return rows
