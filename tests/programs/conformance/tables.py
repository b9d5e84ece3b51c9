"""The tables of docs/reference/conformance.md: stored outcomes of all suites, the emulator's own among them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ckpm.base.errors import UsageError
from ckpm_emulator.standalone import ALLOWED, CHECKS
from conformance import stored
from conformance.stored import Suite

OUTCOMES = Path(__file__).with_name("outcomes")
THEIRS = "theirs: "  # begins the account of a wrong test whose cause is in the tested code
BEGIN, END = "<!-- {}: python -m tests.programs.conformance table -->", "<!-- {} ends -->"
HARMLESS = "harmless: "  # begins that of a test whose report is true, and whose results don't depend on it
_CHECKED = (
    *("suite", "arch", "on", "tests under all checks", "later checks", "reported by none"),
    *("a defect of theirs", "true and harmless", "false refusals"),
)
_HEAD = ("suite", "toolchain", "arch", "tests", "passed", "unsupported", "their defect", "wrong")


def suites() -> tuple[Suite, ...]:
    """All stored suites, sorted by name."""
    files = (file for folder in (OUTCOMES, stored.OUTCOMES) for file in folder.glob("*.yaml"))
    return tuple(sorted(map(stored.read, files), key=lambda suite: suite.suite))


def table(stored_suites: Sequence[Suite]) -> list[str]:
    """The lines of a Markdown table, a row for each suite and arch. Defects of the tested code are counted apart."""
    rows = [f"| {' | '.join(_HEAD)} |", "| --- | --- | --- | ---: | ---: | --- | ---: | ---: |"]
    for suite in stored_suites:
        for arch, ran in suite.archs.items():
            if not ran.tests:  # it ran under checks alone
                continue
            lacking = "; ".join(f"{len(names)}: {what}" for what, names in ran.unsupported.items()) or "0"
            defects = _count(ran.wrong, THEIRS)
            wrong = sum(map(len, ran.wrong.values())) - defects
            passed = ran.tests - len(ran.outcomes())
            cells = (suite.suite, suite.toolchain, arch, ran.tests, passed, lacking, defects, wrong)
            rows.append(f"| {' | '.join(map(str, cells))} |")
    return rows


def refusals(stored_suites: Sequence[Suite]) -> list[str]:
    """The lines of a table of the suites that ran under all checks: who is right where a check reports a test."""
    rows = [f"| {' | '.join(_CHECKED)} |", "| --- | --- | --- | ---: | --- | ---: | ---: | ---: | ---: |"]
    for suite in stored_suites:
        for arch, ran in suite.archs.items():
            if (checked := ran.checked) is None:
                continue
            run = checked.tests - sum(map(len, checked.unsupported.values()))
            reported = sum(map(len, checked.wrong.values()))
            defects, harmless = _count(checked.wrong, THEIRS), _count(checked.wrong, HARMLESS)
            later = ", ".join(name for name in CHECKS if name not in {*checked.checks.split(), *ALLOWED}) or "none"
            refused = reported - defects - harmless
            cells = (suite.suite, arch, checked.day, run, later, run - reported, defects, harmless, refused)
            rows.append(f"| {' | '.join(map(str, cells))} |")
    return rows


def _count(accounts: Mapping[str, Sequence[str]], kind: str) -> int:
    """The number of tests with an account that begins with ``kind``."""
    return sum(len(names) for why, names in accounts.items() if why.startswith(kind))


def with_table(page: str, name: str, lines: Sequence[str]) -> str:
    """Replace the part of a page between the marks of a table by the lines of the table."""
    begin_mark, end_mark = BEGIN.format(name), END.format(name)
    head, begin, rest = page.partition(begin_mark)
    _, end, tail = rest.partition(end_mark)
    if not begin or not end:
        raise UsageError(f"there is no '{begin_mark}' before a '{end_mark}': write both where the table belongs.")
    return "\n".join((f"{head}{begin}", *lines, f"{end}{tail}"))
