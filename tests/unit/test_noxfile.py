"""The sessions of noxfile.py: their number, and the arguments of tests."""

from __future__ import annotations

import nox.registry
import pytest

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
        module = chosen.arguments[0]
        assert all((ROOT / file.removeprefix("--ignore=")).exists() for file in chosen.files)
        assert chosen.files or (ROOT / module.replace(".", "/") / "__main__.py").is_file()
        assert not chosen.extra or (ROOT / f"requirements-{chosen.extra}.txt").is_file()
