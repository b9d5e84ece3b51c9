"""Store how a suite ended, and write the table of all suites.

A test that is wrong is never stored by a command: its account, why it is a defect and of what, is written by hand.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from ckpm.base.errors import UsageError
from ckpm.base.files import write_atomically
from tests.programs.conformance.stored import UNSUPPORTED, WRONG, Ran, Suite, table

BEGIN, END = "<!-- conformance: python -m tests.programs.conformance table -->", "<!-- conformance ends -->"


def ran(seen: Mapping[str, tuple[str, str]], before: Ran | None) -> Ran:
    """What is stored of a run. Raises UsageError: a test is wrong that ``before`` has no account of."""
    known = {name: why for why, names in (before.wrong if before else {}).items() for name in names}
    unsupported, wrong = dict[str, list[str]](), dict[str, list[str]]()
    for name, (outcome, detail) in sorted(seen.items()):
        if outcome == WRONG and name not in known:
            raise UsageError(
                f"{name} is wrong ({detail}). Find out why, and list it by hand in its file, with the account."
            )
        if outcome == UNSUPPORTED:
            unsupported.setdefault(detail, []).append(name)
        elif outcome == WRONG:
            wrong.setdefault(known[name], []).append(name)
    return Ran(tests=len(seen), unsupported=unsupported, wrong=wrong)


def store(suite: Suite, file: Path) -> None:
    """Write a suite's file. Raises OutputError, DiskFullError."""
    archs = {arch: _document(one) for arch, one in suite.archs.items()}
    texts = {"suite": suite.name, "source": suite.source, "toolchain": suite.toolchain, "command": suite.command}
    write_atomically(file, yaml.safe_dump({**texts, "archs": archs}, sort_keys=False, width=120).encode())


def with_arch(suite: Suite, arch: str, one: Ran) -> Suite:
    """A suite whose outcomes on an arch are ``one``."""
    return dataclasses.replace(suite, archs={**suite.archs, arch: one})


def _document(one: Ran) -> dict[str, Any]:
    kinds = {"unsupported": one.unsupported, "wrong": one.wrong}
    listed = {kind: {why: list(names) for why, names in found.items()} for kind, found in kinds.items() if found}
    return {"tests": one.tests, **listed}


def with_table(page: str, suites: tuple[Suite, ...]) -> str:
    """A page whose part between the marks is the table of ``suites``. Raises UsageError: it has no such part."""
    head, begin, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise UsageError(f"there is no '{BEGIN}' before a '{END}': write both where the table belongs.")
    return "\n".join((f"{head}{begin}", *table(suites), f"{end}{tail}"))
