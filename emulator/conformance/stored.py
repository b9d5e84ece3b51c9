"""Stored outcomes of other projects' test suites on the emulated device, and the differences of a run.

A suite's file in outcomes/ contains its name, source and command. For each arch it contains the number of tests, the
unsupported tests by the missing function, and the wrong tests by their account. All others passed. A run under all
checks contains its day and the names of the checks, too: checks that are written later did not run.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from ckpm_emulator.errors import UsageError
from ckpm_emulator.standalone import ALLOWED, CHECKS

OUTCOMES = Path(__file__).with_name("outcomes")
PASSED, UNSUPPORTED, WRONG = "passed", "unsupported", "wrong"
Outcome = tuple[str, str]  # of a test, and what is missing or wrong


@dataclass(frozen=True, kw_only=True)
class Ran:
    """The outcomes on one arch: unsupported tests by the missing function, wrong tests by their account.

    ``checked`` has the outcomes under all checks, where a test that a check reports is wrong.
    """

    tests: int
    unsupported: Mapping[str, list[str]] = field(default_factory=dict)
    wrong: Mapping[str, list[str]] = field(default_factory=dict)
    checked: Ran | None = None
    day: str = ""
    checks: str = ""  # names with blanks in between

    def outcomes(self) -> dict[str, str]:
        """The outcomes of the tests that did not pass, by name."""
        kinds = {UNSUPPORTED: self.unsupported, WRONG: self.wrong}
        return {name: kind for kind, by_reason in kinds.items() for names in by_reason.values() for name in names}


@dataclass(frozen=True, kw_only=True)
class Suite:
    """``suite`` is its name, ``source`` the project and its version. ``command`` runs the suite."""

    suite: str
    source: str
    toolchain: str
    command: str
    archs: Mapping[str, Ran]


def read(file: Path) -> Suite:
    """The suite of a file."""
    document = yaml.safe_load(file.read_text())
    return Suite(**{**document, "archs": {arch: _read_ran(fields) for arch, fields in document["archs"].items()}})


def _read_ran(fields: Mapping[str, Any]) -> Ran:
    checked = fields.get("checked")
    return Ran(**{**fields, "checked": checked and _read_ran(checked)})


def store(file: Path, arch: str, seen: Mapping[str, Outcome], *, checked: bool = False) -> None:
    """Replace an arch's outcomes in a suite's file, or those under all checks, by those of a run.

    Raises UsageError: a test is wrong, and the file has no account of it, which a person writes.
    """
    suite = read(file)
    before = suite.archs.get(arch) or Ran(tests=0)
    if checked:
        day, checks = datetime.datetime.now(datetime.UTC).date().isoformat(), " ".join(sorted({*CHECKS} - {*ALLOWED}))
        outcomes = dataclasses.replace(
            before, checked=dataclasses.replace(_ran(seen, before.checked), day=day, checks=checks)
        )
    else:
        outcomes = dataclasses.replace(_ran(seen, before), checked=before.checked)
    archs = {name: _fields(ran) for name, ran in {**suite.archs, arch: outcomes}.items()}
    document = {**dataclasses.asdict(suite), "archs": archs}
    draft = file.with_suffix(".draft")
    draft.write_text(yaml.safe_dump(document, sort_keys=False, width=120))
    draft.replace(file)


def _fields(ran: Ran) -> dict[str, Any]:
    """The fields of a file, without empty ones."""
    named = {name: getattr(ran, name) for name in ("day", "checks", UNSUPPORTED, WRONG)}
    named["checked"] = ran.checked and _fields(ran.checked)
    return {"tests": ran.tests, **{name: value for name, value in named.items() if value}}


def _ran(seen: Mapping[str, Outcome], before: Ran | None) -> Ran:
    accounts = {name: why for why, names in (before.wrong if before else {}).items() for name in names}
    unsupported, wrong = dict[str, list[str]](), dict[str, list[str]]()
    for name, (outcome, detail) in sorted(seen.items()):
        if outcome == WRONG and name not in accounts:
            raise UsageError(
                f"{name} is wrong ({detail}). Find out why, and list it by hand in its file, with the account."
            )
        if outcome == UNSUPPORTED:
            unsupported.setdefault(detail, []).append(name)
        elif outcome == WRONG:
            wrong.setdefault(accounts[name], []).append(name)
    return Ran(tests=len(seen), unsupported=unsupported, wrong=wrong)


def compare(file: Path, arch: str, seen: Mapping[str, Outcome], *, accept: bool, checked: bool = False) -> int:
    """Store a run, or print its differences from the stored outcomes and return 1 if there are any.

    ``checked``: it is a run under all checks.
    """
    if accept:
        store(file, arch, seen, checked=checked)
        return 0
    stored = read(file).archs.get(arch)
    if stored and checked:
        stored = stored.checked
    if stored is None:
        raise UsageError(f"nothing is stored in {file.name} of {arch}: store this run with --accept.")
    lines = differences(stored, seen)
    print("\n".join(lines) or "as stored", flush=True)
    return int(bool(lines))


def differences(stored: Ran, seen: Mapping[str, Outcome]) -> list[str]:
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
