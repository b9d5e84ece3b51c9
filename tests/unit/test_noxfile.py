"""The sessions of noxfile.py: their number, and the arguments of tests."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import nox.registry
import pytest
from nox.command import CommandFailed

from ckpm.commands import parse
from ckpm.kernels.changes.rules import rules
from ckpm.workflows import planned
from tests.docs.commands import noxfile
from tests.docs.pages import ROOT


@pytest.mark.parametrize(
    ("after_dashes", "called_with"),
    [
        ([], ["pytest", "--ignore=tests/a.py", "tests"]),
        (["-k", "saxpy"], ["pytest", "--ignore=tests/a.py", "tests", "-k", "saxpy"]),
        (["-x", "tests/a.py"], ["pytest", "-x", "tests/a.py"]),
        (["tests/a.py::test_a"], ["pytest", "tests/a.py::test_a"]),
    ],
)
def test_options_are_added_and_files_replace_folder(after_dashes: list[str], called_with: list[str]) -> None:
    assert noxfile().add_options(("pytest",), ("--ignore=tests/a.py", "tests"), after_dashes) == called_with


def test_judged_libraries_are_those_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noxfile(), "BUILT", {"gfx942", "decode"})
    assert noxfile().libraries(["--upstream", "ckpm"]) == [("--arch", "gfx942")]
    assert noxfile().libraries(["--arch=gfx950"]) == [()]
    monkeypatch.setattr(noxfile(), "BUILT", set())
    assert noxfile().libraries([]) == [()]


def test_failed_build_ends_line_of_sessions() -> None:
    config = SimpleNamespace(stop_on_first_error=False)
    session = SimpleNamespace(_runner=SimpleNamespace(global_config=config))
    with noxfile().ending_line(session):
        assert config.stop_on_first_error
    assert not config.stop_on_first_error
    with pytest.raises(CommandFailed), noxfile().ending_line(session):
        raise CommandFailed
    assert config.stop_on_first_error


@pytest.mark.parametrize(("name", "command"), [("perf-gate", "gate"), ("test-dispatch", "test")])
def test_each_built_library_is_judged_after_a_failure(name: str, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library of the next arch may be right."""
    calls: list[tuple[str, ...]] = []

    def run(*command_line: str) -> None:
        calls.append(command_line)
        if len(calls) == 1:
            raise CommandFailed(command_line[command_line.index("--arch") + 1])

    monkeypatch.setattr(noxfile(), "BUILT", {"gfx942", "gfx950"})
    monkeypatch.setattr(noxfile(), "program", lambda name: name)
    with pytest.raises(CommandFailed, match="gfx942"):
        nox.registry.get()[name].func(SimpleNamespace(name=name, posargs=[], run=run))
    judged = [(call[3], call[call.index("--arch") + 1]) for call in calls]
    assert judged == [(command, "gfx942"), (command, "gfx950")]


@pytest.fixture
def pip_calls(tmp_path: Path) -> tuple[SimpleNamespace, list[tuple[str, ...]]]:
    """A session whose pip fails on the pins nox==3, and the commands that it ran."""
    calls: list[tuple[str, ...]] = []

    def run(*command: str, **_options: object) -> None:
        calls.append(command)
        if (tmp_path / "pins.txt").read_text() == "nox==3":
            raise KeyboardInterrupt

    return SimpleNamespace(log=lambda text: None, run=run, cache_dir=tmp_path), calls


def test_requirements_are_installed_when_they_change(
    tmp_path: Path, pip_calls: tuple[SimpleNamespace, list[tuple[str, ...]]]
) -> None:
    session, calls = pip_calls
    for pin, expected in (("nox==1", 1), ("nox==1", 1), ("nox==2", 2)):
        (tmp_path / "pins.txt").write_text(pin)
        assert noxfile().install(session, tmp_path, str(tmp_path / "pins.txt")) == str(tmp_path / "bin/python")
        assert len(calls) == expected
    assert calls[-1][-2:] == ("-r", str(tmp_path / "pins.txt"))


def test_interrupted_installation_is_repeated_in_full(
    tmp_path: Path, pip_calls: tuple[SimpleNamespace, list[tuple[str, ...]]]
) -> None:
    """Also back at the pins of before. pip leaves a program as it is of which it wrote a part."""
    session, calls = pip_calls
    pins = tmp_path / "pins.txt"
    for pin, stops in (("nox==1", False), ("nox==3", True), ("nox==1", False)):
        pins.write_text(pin)
        with pytest.raises(KeyboardInterrupt) if stops else contextlib.nullcontext():
            noxfile().install(session, tmp_path, str(pins))
    assert ["--force-reinstall" in call for call in calls] == [False, False, True]


def test_environment_of_interrupted_venv_is_completed(
    tmp_path: Path, pip_calls: tuple[SimpleNamespace, list[tuple[str, ...]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    session, calls = pip_calls
    monkeypatch.setattr(noxfile(), "PROGRAMS", [tmp_path])
    (tmp_path / "pins.txt").write_text("nox==1")
    python = tmp_path / "environment-torch/bin/python"
    python.parent.mkdir(parents=True)
    python.touch()
    assert noxfile().install_extra(session, "torch") == str(python)
    assert calls[0][1:] == ("-m", "venv", str(python.parents[1]))


def test_second_run_of_nox_waits_for_installation(tmp_path: Path) -> None:
    texts: list[str] = []
    with (tmp_path / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)

        def log(text: str) -> None:
            texts.append(text)
            fcntl.flock(lock, fcntl.LOCK_UN)  # the other run ends

        with noxfile().alone(SimpleNamespace(log=log), tmp_path):
            assert texts == [f"waiting for another run of nox that changes {tmp_path}"]


def test_environment_shares_no_file_between_runs_of_nox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of paths or options in nox's cache folder is cut by one run while another one reads it."""
    shares = {"build-gfx950": ["--upstream", "ckpm"]}

    class Line(list[str]):
        def list_all_sessions(self) -> list[tuple[SimpleNamespace, bool]]:
            return [(SimpleNamespace(name=name), True) for name in self]

    session = SimpleNamespace(
        bin=str(tmp_path / "environment/bin"),
        cache_dir=tmp_path / ".cache",
        posargs=shares["build-gfx950"],
        log=lambda text: None,
        run=lambda *command, **options: json.dumps(shares),
        _runner=SimpleNamespace(manifest=Line(["environment", "build-gfx950"])),
    )
    for folder in (session.cache_dir, tmp_path / "environment"):
        folder.mkdir()
    monkeypatch.setattr(noxfile(), "OPTIONS", {})
    monkeypatch.setattr(noxfile(), "PROGRAMS", [])
    noxfile().environment.func(session)
    assert (noxfile().program("python"), noxfile().OPTIONS) == (f"{session.bin}/python", shares)
    assert [*session.cache_dir.iterdir()] == []


def test_mistyped_session_has_its_nearest_name() -> None:
    line = ["nox", "-s", "build-gfx95", "test-large-kv", "perf-gat", "-r", "x", "--", "-s", "reprt"]
    assert list(noxfile().nearest_sessions(line)) == [
        "there is no session 'build-gfx95'; did you mean 'build-gfx950'?",
        "there is no session 'perf-gat'; did you mean 'perf-gate'?",
    ]


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("unt", "there is no group or file of tests 'unt'; did you mean 'unit'?"),
        ("tests/unit/no.py::test_a", "there is no group or file of tests 'tests/unit/no.py::test_a'; groups are "),
        ("-x", ""),
        ("tests/unit/test_noxfile.py::test_a", ""),
    ],
)
def test_mistyped_group_of_tests_has_its_nearest_name(word: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    errors: list[str] = []
    monkeypatch.setattr(noxfile(), "program", lambda name: name)
    session = SimpleNamespace(posargs=[word], error=errors.append, run=lambda *command: None)
    noxfile().tests(session)
    assert [text.startswith(message) for text in errors] == ([True] if message else [])


def test_ci_runs_test_command_of_readme() -> None:
    """The first command with the session tests."""
    (ci,) = [line for line in (ROOT / ".ci/run").read_text().splitlines() if line.startswith("nox ")]
    commands = [line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith("$ nox")]
    assert next(command for command in commands if " tests" in command) == f"$ {ci}"
    assert f"$ {next(iter(planned.WITHOUT_HISTORY))} report" in commands


def test_ci_runs_checks_that_planned_part_leaves_out() -> None:
    """The checks of every change and those of BEFORE are sessions of .ci/run's first line, within 20 minutes."""
    line, planned_line = (ROOT / ".ci/run").read_text().splitlines()[-2:]
    checks = [check for name, check in rules().checks.items() if check.always or name in planned.BEFORE]
    assert {session.split()[0] for check in checks for session in check.sessions} == {*line.split()[2:]}
    assert sum(check.minutes for check in checks) <= 20
    assert parse(planned_line.replace("$((60 - SECONDS / 60))", "40").split()[3:]).minutes == 40


def test_sessions_are_few_and_grouped() -> None:
    noxfile()
    sessions = nox.registry.get()
    assert len(sessions) <= 30
    assert {session.tags[0] for session in sessions.values()} == {"use", "develop", "ship"}


def test_tests_by_name_exist() -> None:
    for chosen in noxfile().TESTS.values():
        module = chosen.arguments[0]
        assert all((ROOT / file.removeprefix("--ignore=")).exists() for file in chosen.files)
        assert chosen.files or (ROOT / module.replace(".", "/") / "__main__.py").is_file()
        assert not chosen.extra or (ROOT / f"requirements-{chosen.extra}.txt").is_file()


def test_unit_tests_that_use_an_extra_are_in_its_group() -> None:
    """Without the package they are skipped or do less, and no other session installs it."""
    for extra, files in ((chosen.extra, chosen.files) for chosen in noxfile().TESTS.values() if chosen.extra):
        asks = re.compile(rf'(importorskip|find_spec)\("{extra}"')
        using = {file for file in (ROOT / "tests/unit").rglob("test_*.py") if asks.search(file.read_text())}
        assert {str(file.relative_to(ROOT)) for file in using} <= {*files}


def test_variables_that_steer_pip_and_python_are_dropped() -> None:
    """Check variables with which pip refuses an environment, and Python the clone's modules."""
    dropped = {"PIP_USER": "1", "PIP_TARGET": "/x", "PIP_QUIET": "3", "PYTHONSAFEPATH": "1"}
    kept = {"PIP_EXTRA_INDEX_URL": "x", "PIP_CONFIG_FILE": "x", "PIP_NO_INDEX": "1", "PIP_CERT": "x"}
    program = "import os, runpy; runpy.run_path('noxfile.py'); print(*os.environ)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**os.environ, **dropped, **kept},
        capture_output=True,
        check=True,
    )
    assert {*dropped, *kept} & {*done.stdout.decode().split()} == {*kept}
