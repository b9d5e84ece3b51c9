"""The frame of a command: exit codes instead of tracebacks, log lines on stderr, checks of output files, signals."""

from __future__ import annotations

import contextlib
import errno
import io
import logging
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

from ckpm_emulator.errors import EmulatorError, OutputError

_CLOSED_PIPE = 141  # a shell's exit code of a program that SIGPIPE ended
_INTERRUPTED = 130  # the same for SIGINT
_LIMIT = 12  # ckpm's exit code of a limit of the system
_AT_LIMIT = "the system gives no more memory or processes (ulimit -v, ulimit -u, limits of a container). Allow more."
_OF_AN_OUTPUT = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG, errno.EBADF)


def exit_code(command: Callable[[], int]) -> int:
    """Run ``command``; return its result, or the exit code of its failure, whose message goes to stderr.

    Failures are the emulator's errors, and those that a machine causes in any program: a file that can't be read, a
    full or closed output, an interrupt. A mistake of this program keeps its traceback.
    """
    logging.basicConfig(format="%(message)s", level=logging.INFO)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a closed one is None
            stream.reconfigure(errors="backslashreplace")
    try:
        try:
            return command()
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()  # here, and not while Python shuts down: after a failure, too
    except EmulatorError as error:
        return _report(str(error), error.exit_code)
    except BrokenPipeError:
        _abandon_stdout()
        return _CLOSED_PIPE
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and "can't start new thread" not in str(error):
            raise
        return _report(_AT_LIMIT, _LIMIT)
    except KeyboardInterrupt:
        return _report("interrupted; run the same command again to go on", _INTERRUPTED)
    except OSError as error:
        if error.errno in (errno.ENOMEM, errno.EAGAIN):
            return _report(_AT_LIMIT, _LIMIT)
        subject = error.filename or ("standard output" if error.errno in _OF_AN_OUTPUT else "the system refuses")
        if error.filename is None:
            _abandon_stdout()
        return _report(f"{subject}: {error.strerror or error}. Fix that and try again.", OutputError.exit_code)


def printable(text: str) -> str:
    """The text with its lines and tabs; other characters that aren't printable are escaped, as in a Python string."""
    return "".join(char if char.isprintable() or char in "\n\t" else ascii(char)[1:-1] for char in text)


def _report(message: str, code: int) -> int:
    with contextlib.suppress(OSError):  # stderr may be closed: the exit code is left
        print(f"error: {printable(message)}", file=sys.stderr, flush=True)
    return code


def _abandon_stdout() -> None:
    """Let Python's last flush go nowhere instead of failing again."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """Raise SystemExit for SIGTERM and SIGHUP, so that processes of a pool end with this one. Main thread only."""

    def end(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    numbers = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, end) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def demand_writable(file: Path) -> None:
    """Raise OutputError at once if a result can't be written to a file; missing folders are made."""
    try:
        if file.is_char_device():
            with file.open("wb", buffering=0) as stream:
                stream.write(b"")  # /dev/full refuses no bytes, too
        elif not file.is_fifo():
            target = Path(os.path.realpath(file))
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("ab") if target.exists() else tempfile.TemporaryFile(dir=target.parent):
                pass
    except OSError as error:
        raise OutputError(f"{file}: can't be written: {error.strerror}. Name another place.") from error
