"""Every session and every command has a smoke form that something runs whole.

The form is a command of a page, which `nox -s tests -- docs` runs, a command of the plan for a change of everything, or
a test that is listed here.
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
    "test-callers": "tests/callers/test_backends.py",  # it needs clones of the callers
    "docker": "tests/docker/test_real_pulls.py",
    "release-qualification": "tests/unit/reports/release/test_release_commands.py",
}
COMMAND_TESTS = {
    "compare": "tests/unit/reports/test_gpu_gate.py",
    "show": "tests/unit/matrix/test_matrix_cli.py",
    "validate": "tests/unit/matrix/test_validate.py",
    "sweep best": "tests/unit/attention/test_benchmark.py",
    "bench": "tests/build/test_bench.py",
    "timing model": "tests/build/test_timing_model.py",
    "timing show": "tests/unit/reports/test_timing_report.py",
    "timing tables": "tests/build/test_timing_tables.py",
    "timing splits": "tests/build/test_timing_tables.py",
    "decode build": "tests/decode/test_gate.py",
    "decode compare": "tests/decode/test_guard.py",
    "images": "tests/unit/docker/test_image_building.py",
    "in-container": "tests/docker/test_emulator_image.py",
    "qualify": "tests/unit/reports/release/test_release_commands.py",
    "verify-bundle": "tests/unit/reports/release/test_release_commands.py",
    "workflows collect": "tests/fuzz/commands.py",
    "workflows head": "tests/unit/workflows/test_head.py",
    "workflows ran-on": "tests/unit/workflows/test_steps.py",
    "workflows planned": "tests/unit/workflows/test_planned.py",
    "workflows render": "tests/unit/workflows/test_render.py",
    "workflows run": "tests/unit/workflows/test_runner.py",
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
    of_sessions = {" ".join(command) for name, command in noxfile().COMMANDS.items() if name in sessions}
    lacking = [
        name
        for name in COMMANDS
        if not any(re.match(rf"{name}( |$)", command) for command in of_sessions)
        and not any(re.search(rf"\bckpm (-- )?{name}( |$|\))", line) for line in lines)
    ]
    assert lacking == [*filter(COMMAND_TESTS.__contains__, COMMANDS)]


@pytest.mark.parametrize(("name", "file"), COMMAND_TESTS.items())
def test_listed_test_calls_its_command(name: str, file: str) -> None:
    quoted = r'",\s*"'.join(name.split())
    assert re.search(rf'"{quoted}"|"{name}[ "]', (ROOT / file).read_text()), f"{file} does not call ckpm {name}"
