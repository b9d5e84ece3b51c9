"""Each session of a line of nox takes the options that its command has; an option of no session is refused."""

from __future__ import annotations

import json

import pytest

from ckpm.base.errors import UsageError
from ckpm.session_options import main, split_options
from tests.docs.commands import noxfile

LINE = ["build-gfx950", "test-large-kv", "perf-gate", "report"]


def split(sessions: list[str], *options: str) -> dict[str, list[str]]:
    return split_options(noxfile().COMMANDS, sessions, options)


def test_each_session_takes_its_options() -> None:
    assert split(LINE, "--rocm", "--arch", "gfx950", "--upstream=ckpm", "--input", "a", "-j", "4") == {
        "build-gfx950": ["--rocm", "--upstream=ckpm", "-j", "4"],
        "test-large-kv": ["--rocm", "--arch", "gfx950", "--upstream=ckpm", "-j", "4"],
        "perf-gate": ["--arch", "gfx950", "--upstream=ckpm"],
        "report": ["--input", "a"],
    }


def test_filter_of_kernels_chooses_no_cases() -> None:
    """`--filter '*bf16*'` fits names of kernels and of some cases: the others must run, too."""
    shares = split(["build-gfx950", "test-dispatch"], "--filter", "*bf16*")
    assert shares == {"build-gfx950": ["--filter", "*bf16*"], "test-dispatch": []}


def test_emulator_of_session_is_kept() -> None:
    """The sanitizer runs on the emulator alone."""
    shares = split(["build-gfx950", "sanitize-gfx950"], "--rocm", "-v", "-j4")
    assert shares == {"build-gfx950": ["--rocm", "-v", "-j4"], "sanitize-gfx950": ["-v", "-j4"]}


@pytest.mark.parametrize(
    ("sessions", "options", "message"),
    [
        (
            ["perf-gate", "report"],
            ["--toolchain", "rocm"],
            "--toolchain concerns no session of this line (perf-gate, report). Sessions with it: build-gfx90a, "
            "build-gfx942, build-gfx950, parity, timing-score, release-qualification. `nox -l` lists the sessions.",
        ),
        (
            ["build-gfx950"],
            ["--tolchain=rocm"],
            "--tolchain concerns no session of this line (build-gfx950). No session has it; did you mean "
            "'--toolchain'? `nox -l` lists the sessions.",
        ),
        (
            ["build-gfx950"],
            ["--arch", "gfx942"],
            "build-gfx950 has --arch gfx950, and the line has --arch gfx942: leave one of them out.",
        ),
        (
            ["build-gfx950", "test-large-kv", "perf-gate"],
            ["--output", "build/x.json"],
            "--output is the file of a session, and test-large-kv, perf-gate would all write it: call nox for each.",
        ),
    ],
)
def test_option_of_no_session_is_refused(sessions: list[str], options: list[str], message: str) -> None:
    with pytest.raises(UsageError) as raised:
        split(sessions, *options)
    assert str(raised.value).startswith(message)


def test_sessions_without_a_command_take_the_line_themselves() -> None:
    assert split(["test-dispatch", "tests"], "--rocm", "-k", "name") == {"test-dispatch": ["--rocm"]}


def test_shares_are_printed_for_nox(capsys: pytest.CaptureFixture[str]) -> None:
    line = {"commands": {"report": ["report"]}, "sessions": ["report"], "options": ["--input", "a b"]}
    assert main(json.dumps(line)) == 0
    assert json.loads(capsys.readouterr().out) == {"report": ["--input", "a b"]}
