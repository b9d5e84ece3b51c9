"""A command that a library's code can end at any moment ends as a named failure of that library."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
from pathlib import Path

import pytest

from ckpm.base.errors import InconclusiveError, LibraryError
from ckpm.timing.measure import run_apart

LIBRARY = Path("build/gfx950/aiter/libckpm.so")


def test_command_ends_and_prints_as_it_would_here(capsys: pytest.CaptureFixture[str]) -> None:
    def command() -> int:
        print("counted")
        print("warning: slow", file=sys.stderr)
        return 3

    assert run_apart(command, LIBRARY) == 3
    assert capsys.readouterr() == ("counted\n", "warning: slow\n")


def test_failure_keeps_its_message_and_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    def command() -> int:
        raise InconclusiveError("nothing to count", kind="measure")

    assert run_apart(command, LIBRARY) == InconclusiveError.exit_code
    assert capsys.readouterr() == ("", "error: nothing to count\n")


def test_mistake_of_this_program_keeps_its_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_apart(lambda: int("three"), LIBRARY) == 1
    errors = capsys.readouterr().err
    assert "Traceback" in errors
    assert "ValueError: invalid literal" in errors


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGFPE])
def test_process_that_signal_ends_is_library_s_failure(number: signal.Signals) -> None:
    def command() -> int:
        faulthandler.disable()  # pytest's: its traceback of a process that dies on purpose looks like a crash
        os.kill(os.getpid(), number)
        return 0

    with pytest.raises(LibraryError, match=rf"^{LIBRARY}: opening or running it ended the process \({number.name}\)"):
        run_apart(command, LIBRARY)


def test_library_that_calls_exit_is_not_success() -> None:
    with pytest.raises(LibraryError, match=r"ended the process \(exit code 0\)"):
        run_apart(lambda: os._exit(0), LIBRARY)
