"""Store the outcomes of a suite, and write the table of all suites.

No command stores a wrong test: a person writes the account that explains the defect.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import yaml

from ckpm.base.errors import UsageError
from ckpm.base.files import write_atomically
from tests.programs.conformance.stored import UNSUPPORTED, WRONG, Ran, Suite

BEGIN, END = "<!-- {}: python -m tests.programs.conformance table -->", "<!-- {} ends -->"


def ran(seen: Mapping[str, tuple[str, str]], before: Ran | None) -> Ran:
    """The outcomes of a run, to be stored. A wrong test without an account in ``before`` is a UsageError."""
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


def store(suite: Suite, file: Path) -> None:
    """Write a suite's file."""
    write_atomically(file, yaml.safe_dump(msgspec.to_builtins(suite), sort_keys=False, width=120).encode())


def with_arch(suite: Suite, arch: str, outcomes: Ran) -> Suite:
    """Return a suite with these outcomes on an arch."""
    return msgspec.structs.replace(suite, archs={**suite.archs, arch: outcomes})


def with_table(page: str, name: str, lines: Sequence[str]) -> str:
    """Replace the part of a page between the marks of a table by the lines of the table."""
    begin_mark, end_mark = BEGIN.format(name), END.format(name)
    head, begin, rest = page.partition(begin_mark)
    _, end, tail = rest.partition(end_mark)
    if not begin or not end:
        raise UsageError(f"there is no '{begin_mark}' before a '{end_mark}': write both where the table belongs.")
    return "\n".join((f"{head}{begin}", *lines, f"{end}{tail}"))
