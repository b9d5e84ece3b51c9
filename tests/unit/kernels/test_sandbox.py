"""A command that a library's code can end at any moment ends as a named failure of that library."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ckpm.base.errors import InconclusiveError, LibraryError
from ckpm.kernels.library.sandbox import run_apart

LIBRARY = Path("build/gfx950/aiter/libckpm.so")


def test_command_ends_and_prints_as_it_would_here(capsys: pytest.CaptureFixture[str]) -> None:
    def command() -> int:
        print("counted")
        print("warning: slow", file=sys.stderr)
        raise InconclusiveError("nothing to count", kind="measure")

    assert run_apart(command, LIBRARY) == InconclusiveError.exit_code
    assert capsys.readouterr() == ("counted\n", "warning: slow\nerror: nothing to count\n")
    assert run_apart(lambda: 3, LIBRARY) == 3


def test_mistake_of_this_program_keeps_its_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_apart(lambda: int("three"), LIBRARY) == 1
    errors = capsys.readouterr().err
    assert "Traceback" in errors
    assert "ValueError: invalid literal" in errors


@pytest.mark.parametrize(
    ("end", "how"), [(lambda: os.kill(os.getpid(), signal.SIGSEGV), "SIGSEGV"), (lambda: os._exit(0), "exit code 0")]
)
def test_process_that_ends_early_is_library_s_failure(end: Callable[[], object], how: str) -> None:
    def command() -> int:
        faulthandler.disable()  # pytest's: its traceback of a process that dies on purpose looks like a crash
        end()
        return 0

    with pytest.raises(LibraryError, match=rf"^{LIBRARY}: opening or running it ended the process \({how}\)"):
        run_apart(command, LIBRARY)
