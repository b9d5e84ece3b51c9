"""`ckpm workflows planned`: the order of commands, the bound of time, failures, clones without the proven commit."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from ckpm.base.errors import CheckFailedError, UsageError
from ckpm.base.paths import PROJECT
from ckpm.kernels.changes import plan
from ckpm.kernels.changes.rules import Effect, rules
from ckpm.workflows import planned
from tests.unit.shared import Run, git

EVERYTHING = plan._plan("", {"x": Effect(reason="all", everything=True)}, (), {}, rules())


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A repository whose proven commit is HEAD~1, without a change of files since."""
    folder = tmp_path / "clone"
    git(tmp_path, "init", "-q", str(folder))
    git(folder, "commit", "-q", "--allow-empty", "-m", "proven")
    (folder / ".ci").mkdir()
    (folder / planned.PROVEN).write_text(git(folder, "rev-parse", "HEAD") + "\nwhy\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "names it")
    return folder


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The commands that began; none is run, and all pass."""
    commands: list[str] = []

    def begin(wanted: Mapping[str, int], end: float) -> tuple[list[str], list[str]]:
        commands.extend(wanted)
        return [], []

    monkeypatch.setattr(planned, "run_commands", begin)
    return commands


def test_proven_commit_is_of_this_history() -> None:
    """A rebased commit would make every later run of the gate fail."""
    if git(PROJECT, "rev-parse", "--is-shallow-repository") == "true":
        pytest.skip("a shallow clone has no history")
    git(PROJECT, "merge-base", "--is-ancestor", (PROJECT / planned.PROVEN).read_text().split()[0], "HEAD")


def test_order_is_runs_checks_builds_short_before_long() -> None:
    commands = planned.order_commands(EVERYTHING)
    runs, checks = len(EVERYTHING.runs), len(rules().checks) - 5  # lint, docs, workflows, unit, compiled ran before
    assert {*list(commands)[:runs]} == {run.command for run in EVERYTHING.runs}
    assert {*list(commands)[runs + checks :]} == {build.command for build in EVERYTHING.builds}
    middle = list(commands.items())[runs : runs + checks]
    assert [minutes for _, minutes in middle] == sorted(minutes for _, minutes in middle)
    assert ("nox -s parity", rules().checks["parity"].minutes) in middle
    assert not any("lint" in command or "tests/unit " in command for command in commands)


def test_run_without_change_runs_nothing(
    clone: Path, begun: list[str], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planned, "PROJECT", clone)
    code, out, _ = run("workflows", "planned", "--minutes", "1")
    assert (code, begun) == (0, [])
    assert out.startswith("planned: 0 commands for 1 files changed since ")


def test_run_of_change_runs_its_plan(clone: Path, begun: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    (clone / "docs").mkdir()
    (clone / "docs/page.md").write_text("new\n")
    planned.run(clone, 60)
    assert begun == ["nox -s tests -- docs"]
    assert f".ci/proven can name {git(clone, 'rev-parse', 'HEAD').strip()}" in capsys.readouterr().out


def test_run_in_shallow_clone_builds_smoke_tier_and_says_so(
    clone: Path, begun: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{clone}", "shallow")
    planned.run(tmp_path / "shallow", 60)
    assert begun == ["nox -s build-gfx950 test-large-kv perf-gate"]
    printed = capsys.readouterr().out
    assert "this clone is shallow" in printed
    assert "a smoke build is all that runs" in printed
    assert "can name" not in printed


def test_run_with_unknown_proven_commit_fails(clone: Path, begun: list[str]) -> None:
    (clone / planned.PROVEN).write_text("1234567\n")
    with pytest.raises(UsageError, match="1234567: there is no such commit here"):
        planned.run(clone, 60)


def test_run_fails_for_failed_command_and_names_those_left_out(
    clone: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(planned, "order_commands", lambda plan: {"exit 3": 1, "touch x": 99, "true": 1})
    with pytest.raises(CheckFailedError, match="failed: exit 3: exit code 3"):
        planned.run(clone, 5)
    assert "left out: touch x: 99 min planned, " in capsys.readouterr().out


def test_run_commands_leaves_out_what_the_machine_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    command = rules().checks["image"].command
    failed, left_out = planned.run_commands({command: 1}, time.monotonic() + 100)
    assert (failed, left_out) == ([], [f"{command}: no docker, podman, buildah in PATH"])


def test_endless_command_is_left_out_and_leaves_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command and a group of its own ignore SIGTERM, as SCons does for a while."""
    monkeypatch.setattr(planned, "_PATIENCE", 0.5)
    stubborn = (
        f"trap '' TERM; set -m; (trap '' TERM; echo $BASHPID > {tmp_path}/pid; sleep 1000; sleep 1000) & wait; wait"
    )
    started = time.monotonic()
    failed, left_out = planned.run_commands({stubborn: 0}, time.monotonic() + 5)
    assert (failed, left_out) == ([], [f"{stubborn}: did not end in 0 min"])
    assert time.monotonic() - started < 60
    status = Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}/status")
    assert not status.exists() or "State:\tZ" in status.read_text()
