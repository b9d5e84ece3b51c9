"""The tables of docs/reference/conformance.md: stored outcomes of all suites, the emulator's own among them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ckpm.base.errors import UsageError
from conformance import stored
from conformance.stored import Suite

OUTCOMES = Path(__file__).with_name("outcomes")
THEIRS = "theirs: "  # begins the account of a wrong test whose cause is in the tested code
BEGIN, END = "<!-- {}: python -m tests.programs.conformance table -->", "<!-- {} ends -->"
_CHECKED = ("suite", "arch", "tests under all checks", "reported by none", "a defect of theirs", "false refusals")
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
            lacking = "; ".join(f"{len(names)}: {what}" for what, names in ran.unsupported.items()) or "0"
            defects = sum(len(names) for why, names in ran.wrong.items() if why.startswith(THEIRS))
            wrong = sum(map(len, ran.wrong.values())) - defects
            passed = ran.tests - len(ran.outcomes())
            cells = (suite.suite, suite.toolchain, arch, ran.tests, passed, lacking, defects, wrong)
            rows.append(f"| {' | '.join(map(str, cells))} |")
    return rows


def refusals(stored_suites: Sequence[Suite]) -> list[str]:
    """The lines of a table of the suites that ran under all checks: who is right where a check reports a test."""
    rows = [f"| {' | '.join(_CHECKED)} |", "| --- | --- | ---: | ---: | ---: | ---: |"]
    for suite in stored_suites:
        for arch, ran in suite.archs.items():
            if (checked := ran.checked) is None:
                continue
            run = checked.tests - sum(map(len, checked.unsupported.values()))
            reported = sum(map(len, checked.wrong.values()))
            defects = sum(len(names) for why, names in checked.wrong.items() if why.startswith(THEIRS))
            cells = (suite.suite, arch, run, run - reported, defects, reported - defects)
            rows.append(f"| {' | '.join(map(str, cells))} |")
    return rows


def with_table(page: str, name: str, lines: Sequence[str]) -> str:
    """Replace the part of a page between the marks of a table by the lines of the table."""
    begin_mark, end_mark = BEGIN.format(name), END.format(name)
    head, begin, rest = page.partition(begin_mark)
    _, end, tail = rest.partition(end_mark)
    if not begin or not end:
        raise UsageError(f"there is no '{begin_mark}' before a '{end_mark}': write both where the table belongs.")
    return "\n".join((f"{head}{begin}", *lines, f"{end}{tail}"))
