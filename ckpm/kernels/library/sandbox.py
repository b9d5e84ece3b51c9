"""Run a command that opens a library in a process of its own, which the library's code can end."""

from __future__ import annotations

import contextlib
import ctypes
import io
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from ckpm.base.display import show
from ckpm.base.entry import exit_code
from ckpm.base.errors import LibraryError
from ckpm.base.files import name_write_errors
from ckpm.kernels.library.manifest import remedy_for

_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of <linux/prctl.h>


def run_apart(command: Callable[[], int], library: Path) -> int:
    """Run a command that opens ``library`` in a fork of this process, show its output, and return its exit code.

    A library's host code, damaged or wrong, can end whatever process opens it. No check of the file can exclude that:
    the dynamic loader follows addresses of its tables, and runs its constructors.
    """
    with name_write_errors(Path(tempfile.gettempdir())), contextlib.ExitStack() as stack:
        printed, failed, ended = (stack.enter_context(tempfile.TemporaryFile()) for _ in range(3))
        child = os.fork()
        if child == 0:
            _child(command, printed, failed, ended)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        code, output, errors = (_text(file) for file in (ended, printed, failed))
    show(output, end="")
    show(errors, end="", file=sys.stderr)
    if not code:
        how = signal.Signals(-status).name if status < 0 else f"exit code {status}"
        raise LibraryError(
            f"{library}: opening or running it ended the process ({how}): the file is damaged, or its host code is "
            f"wrong. {remedy_for(library)}"
        )
    return int(code)


def _text(file: BinaryIO) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


def _child(command: Callable[[], int], printed: BinaryIO, failed: BinaryIO, ended: BinaryIO) -> None:
    """Run the command, and write its exit code last. Never return: cleaning up is the parent's work."""
    try:
        ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
        sys.stdout, sys.stderr = (io.TextIOWrapper(file, encoding="utf-8") for file in (printed, failed))
        try:
            code = exit_code(command)
        except Exception:  # a mistake of this program keeps its traceback, and Python's exit code for it
            traceback.print_exc()
            code = 1
        ended.write(str(code).encode())
        for stream in (sys.stdout, sys.stderr, ended):
            stream.flush()
    finally:
        os._exit(0)
