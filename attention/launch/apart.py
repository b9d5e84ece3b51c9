"""A command in a process of its own: a library's host code, damaged or wrong, can end whatever process opens it.

No check of a file shows that before: the dynamic loader follows addresses of its tables, and runs its constructors.
"""

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
    """The exit code of a command that opens ``library``, run in a fork of this process; what it prints is shown.

    Raises:
        LibraryError: the process ended before the command did: by a signal, or because something called exit.
        DiskFullError, OutputError: there is no room for what it prints.
    """
    with name_write_errors(Path(tempfile.gettempdir())), contextlib.ExitStack() as stack:
        printed, failed, ended = (stack.enter_context(tempfile.TemporaryFile()) for _ in range(3))
        child = os.fork()
        if child == 0:
            _child(command, printed, failed, ended)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        code, output, errors = (_text(one) for one in (ended, printed, failed))
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
    """Run the command, and write its exit code last. Never returns: what the parent cleans up is not this process's."""
    try:
        ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
        sys.stdout, sys.stderr = (io.TextIOWrapper(one, encoding="utf-8") for one in (printed, failed))
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
