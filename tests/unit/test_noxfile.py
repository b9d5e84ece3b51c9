"""The sessions of noxfile.py: their number, and the arguments of tests."""

from __future__ import annotations

from types import SimpleNamespace

import nox.registry
import pytest
from nox.command import CommandFailed

from tests.docs.commands import noxfile
from tests.docs.pages import ROOT


@pytest.mark.parametrize(
    ("after_dashes", "called_with"),
    [
        ([], ["tests/programs"]),
        (["-k", "saxpy"], ["tests/programs", "-k", "saxpy"]),
        (["-x", "tests/programs/test_graphs.py"], ["-x", "tests/programs/test_graphs.py"]),
        (["tests/programs/test_graphs.py::test_a"], ["tests/programs/test_graphs.py::test_a"]),
    ],
)
def test_options_are_added_and_files_replace_folder(after_dashes: list[str], called_with: list[str]) -> None:
    assert noxfile().add_options(("tests/programs",), after_dashes) == called_with


def test_faults_with_files_drop_ignored_file() -> None:
    options = noxfile().TESTS["faults"].arguments
    assert noxfile().add_options(options, ["tests/faults/test_killed.py"]) == ["pytest", "tests/faults/test_killed.py"]


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


def test_mistyped_session_has_its_nearest_name() -> None:
    line = ["nox", "-s", "build-gfx95", "test-large-kv", "perf-gat", "-r", "x", "--", "-s", "reprt"]
    assert list(noxfile().mistyped(line)) == [
        "there is no session 'build-gfx95'; did you mean 'build-gfx950'?",
        "there is no session 'perf-gat'; did you mean 'perf-gate'?",
    ]


def test_ci_runs_test_command_of_readme() -> None:
    """The first command with the session tests."""
    (ci,) = [line for line in (ROOT / ".ci/run").read_text().splitlines() if line.startswith("nox ")]
    commands = [line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith("$ nox")]
    assert next(command for command in commands if " tests" in command) == f"$ {ci}"


def test_sessions_are_few_and_grouped() -> None:
    noxfile()
    sessions = nox.registry.get()
    assert len(sessions) <= 29
    assert {session.tags[0] for session in sessions.values()} == {"use", "develop", "ship"}


def test_tests_by_name_exist() -> None:
    for chosen in noxfile().TESTS.values():
        module, *arguments = chosen.arguments
        folders = [word for word in arguments if word.startswith(noxfile().TEST_FILES)]
        assert all((ROOT / folder).exists() for folder in folders)
        assert folders or (ROOT / module.replace(".", "/") / "__main__.py").is_file()
        assert not chosen.extra or (ROOT / f"requirements-{chosen.extra}.txt").is_file()
