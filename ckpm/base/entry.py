"""Turn the result or error of a command into a message and an exit code, without a traceback."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from .display import forgiving_output, one_line, show
from .display import message as shown
from .errors import CkPrefillError, MemoryLimitError, OutputError, ProcessLimitError
from .files import append, write_error

_MESSAGES = "docs/reference/messages.md"
# kinds of failures that the page explains, each under a heading
EXPLAINED = frozenset((
    *("gate", "not-comparable", "regressed", "inconclusive", "cases", "nothing-ran", "stale"),
    *("not-built", "wrong-library", "mismatch", "other-tables", "untrusted", "overwrite", "empty-selection"),
    *("download", "checksum", "toolchain"),
))  # fmt: skip
_CLOSED_PIPE = 141  # as a shell reports a program that SIGPIPE ended, for example by `| head`
FAILURES = "CKPM_FAILURES"  # the variable with the file of recorded failures, for the caller of nox
_INTERRUPTED = 130  # the same for SIGINT
_OF_AN_OUTPUT = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG, errno.EBADF)


def exit_code(command: Callable[[], int]) -> int:
    """Run ``command`` and return its exit code. The message of a failure goes to stderr as ``error: ...``.

    Failures are our own errors, and errors of the machine: a file that can't be read, a full or closed output, an
    interrupt. A mistake of this program keeps its traceback.
    """
    forgiving_output()
    try:
        try:
            if sys.stdout is None:
                raise OutputError("standard output: it is closed. Send it to a file, or to /dev/null.")
            with name_process_limits():
                code = command()
        finally:
            if sys.stdout is not None:  # None: it is closed
                sys.stdout.flush()  # on failure, too: an error while Python shuts down would have no handler
    except CkPrefillError as error:
        _record(error)
        more = f"\nmore about this: {_MESSAGES}#{error.kind}" if error.kind in EXPLAINED else ""
        return _tell(f"{error}{more}", error.exit_code)
    except BrokenPipeError:
        _abandon_stdout()
        return _CLOSED_PIPE
    except KeyboardInterrupt:
        return _tell("interrupted; run the same command again to go on", _INTERRUPTED)
    except OSError as error:
        if error.filename is None and error.errno in _OF_AN_OUTPUT:
            _abandon_stdout()
            failure = write_error("standard output", error, "send it elsewhere")
            return _tell(str(failure), failure.exit_code)
        where = one_line(str(error.filename or "the system refuses"))
        return _tell(f"{where}: {error.strerror or error}. Fix that and try again.", OutputError.exit_code)
    return code


@contextlib.contextmanager
def name_process_limits() -> Iterator[None]:
    """Raise ProcessLimitError and MemoryLimitError for what Python and libraries raise at the limits of the system."""
    try:
        yield
    except MemoryError as error:
        raise MemoryLimitError from error
    except OSError as error:
        if isinstance(error, BlockingIOError):
            raise ProcessLimitError(f"{error.filename or 'a process'} can't be started") from error
        if error.errno == errno.ENOMEM:
            raise MemoryLimitError from error
        raise
    except RuntimeError as error:
        if "can't start new thread" not in str(error):
            raise
        raise ProcessLimitError("a thread can't be started") from error
    except KeyboardInterrupt as error:
        if _starts_threads():
            raise
        # no person: OpenBLAS sends SIGINT to its process if it can't start its threads when NumPy is imported
        raise ProcessLimitError("a thread can't be started") from error


def _starts_threads() -> bool:
    try:
        threading.Thread(target=int).start()
    except RuntimeError:
        return False
    return True


def _record(error: CkPrefillError) -> None:
    """Append the failure to the file of CKPM_FAILURES: nox, in between, ends with 1 for every failure."""
    if file := os.environ.get(FAILURES):
        row = {
            "exit_code": error.exit_code,
            "kind": error.kind,
            "infrastructure": error.infrastructure,
            "message": str(error),
        }
        with contextlib.suppress(OSError):
            append(Path(file), json.dumps(row) + "\n")


def _tell(message: str, code: int) -> int:
    with contextlib.suppress(OSError):  # stderr may be closed: the exit code is left
        show(f"error: {shown(message)}", file=sys.stderr, flush=True)
    return code


def _abandon_stdout() -> None:
    """Point standard output to /dev/null, so that Python's last flush doesn't fail."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
