"""Every session and every command has a smoke form that something runs whole.

The form is a command of a page, which `nox -s tests -- docs` runs, or a command of the plan for a change of everything.
Other sessions are listed here with their test. Other commands are called by a test.
"""

from __future__ import annotations

import re

import nox.registry
import pytest

from ckpm.commands import COMMANDS
from ckpm.kernels.changes import plan
from ckpm.kernels.changes.rules import Effect, rules
from tests.docs.commands import noxfile
from tests.docs.pages import ROOT, blocks

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
SESSION_TESTS = {
    "environment": "noxfile.py",  # every session requires it
    "ckpm": "tests/unit/workflows/test_planned.py",  # `nox -s ckpm` runs any command
    "first-gpu-run": "tests/board/test_first_gpu_run.py",
    "test-callers": "tests/callers/test_backends.py",  # it needs clones of the callers
    "docker": "tests/docker/test_real_pulls.py",
    "release-qualification": "tests/unit/reports/release/test_release_commands.py",
}


@pytest.fixture(scope="module")
def lines() -> list[str]:
    """Lines of shell that are run: of pages, and of the plan for a change of everything."""
    runnable = [
        block
        for page in PAGES
        for block in blocks(page.name, page.read_text())
        if block.kind == "console" and block.is_run
    ]
    everything = plan._plan("", {"x": Effect(reason="all", everything=True)}, (), {}, rules())
    commands = (command for block in runnable for command in block.commands())
    return [*everything.commands, *(command.text for command in commands if command.exit_code == 0)]


@pytest.fixture(scope="module")
def sessions(lines: list[str]) -> set[str]:
    """The sessions that these lines run."""
    parts = [
        match
        for line in lines
        for match in re.findall(r"\b(?:nox -s|in-container --) ([a-z0-9 -]*?)(?: --|$| &)", line)
    ]
    return {name for part in parts for name in part.split()}


def test_every_session_has_a_smoke_form(sessions: set[str]) -> None:
    noxfile()
    names = {*nox.registry.get()}
    assert names - sessions == {*SESSION_TESTS}
    assert all((ROOT / file).is_file() for file in SESSION_TESTS.values())


def test_every_command_has_a_smoke_form(lines: list[str], sessions: set[str]) -> None:
    of_sessions = [" ".join(("ckpm", *command)) for name, command in noxfile().COMMANDS.items() if name in sessions]
    shell = "\n".join((*lines, *of_sessions))
    tests = "\n".join(file.read_text() for file in (ROOT / "tests").rglob("*.py"))
    lacking = []
    for name in COMMANDS:
        quoted = r'",\s*"'.join(name.split())
        called = rf'[(\[]\s*"(?:{quoted}"|{name} )|"ckpm",\s*"{quoted}"'  # as the first words of a list or of a call
        if not re.search(rf"\bckpm (-- )?{name}(\s|$|\))", shell) and not re.search(called, tests):
            lacking.append(name)
    assert lacking == []
