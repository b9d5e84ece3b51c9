"""Commands in messages are spelled as the user started us: a command of a clone means nothing where only ckpm is."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ckpm.base.program import as_called
from ckpm.reports.cli import parser as reports_parser
from ckpm_emulator.cli import main as emulator_main

SPELLINGS = {
    "Build first: python -m kernels build --help.": "Build first: ckpm kernels build --help.",
    "python -m suites --suite dispatch": "ckpm test --suite dispatch",
    "'python -m kernels doctor' examines it": "'ckpm kernels doctor' examines it",
    "Build: nox -s build-gfx950 -- --upstream aiter": "Build: ckpm kernels build --arch gfx950 --upstream aiter",
    "Build it first: nox -s build-gfx942": "Build it first: ckpm kernels build --arch gfx942",
    "nox -s build-gfx950 test-dispatch": "ckpm kernels build --arch gfx950, then ckpm test --suite dispatch",
    "nox -s test-page-fault -- --arch gfx942": "ckpm test --suite page-fault --arch gfx942",
    "nox -s test-fwd -- --arch gfx950 --family fwd": "ckpm test --suite kernels --arch gfx950 --family fwd",
    "nox -s sanitize-gfx942 -- --tier full": "ckpm test --suite sanitize --arch gfx942 --tier full",
    "nox -s perf-gate -- --arch gfx950": "ckpm reports gate --arch gfx950",
    "no parity.json: nox -s parity": "no parity.json: ckpm kernels parity",
}


@pytest.mark.parametrize("message", SPELLINGS)
def test_commands_of_ckpm(message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert as_called(message) == message  # in a clone
    monkeypatch.setenv("CKPM_PROGRAM", "ckpm")
    assert as_called(message) == SPELLINGS[message]


def test_errors_and_help_name_the_command_as_called(
    run: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    clone = "argument COMMAND: invalid choice: 'nope' (choose from"
    code, _, stderr = run("nope")
    assert (code, clone in stderr, stderr.rstrip().endswith("See python -m matrix --help.")) == (2, True, True)
    monkeypatch.setenv("CKPM_PROGRAM", "ckpm")
    code, _, stderr = run("nope")
    assert (code, stderr.rstrip().endswith("See ckpm matrix --help.")) == (2, True)
    assert reports_parser().format_help().startswith("usage: ckpm reports [-h]")


@pytest.mark.parametrize(("variable", "name"), [(False, "python -m ckpm_emulator"), (True, "ckpm emulator")])
def test_the_emulator_which_imports_no_other_room(
    variable: bool, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if variable:
        monkeypatch.setenv("CKPM_PROGRAM", "ckpm")
    with pytest.raises(SystemExit):
        emulator_main(["--help"])
    assert capsys.readouterr().out.startswith(f"usage: {name} [-h]")
