"""Valid files of the fuzz session are still valid: a changed format shows here."""

from __future__ import annotations

from pathlib import Path

from tests.fuzz.commands import commands, prepare
from tests.fuzz.running import VALID, Case, run_cases


def test_commands_with_valid_files_succeed(tmp_path: Path) -> None:
    prepare(tmp_path)
    findings = list(run_cases([Case(command, VALID) for command in commands()], 0, tmp_path))
    assert [(finding.case.command.name, finding.what) for finding in findings] == []
