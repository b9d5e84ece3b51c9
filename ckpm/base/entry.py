"""Turn the result or error of a command into a message and an exit code, without a traceback."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator

from .display import forgiving_output, one_line, show
from .display import message as shown
from .errors import CkPrefillError, OutputError, ProcessLimitError
from .files import write_error

_CLOSED_PIPE = 141  # what a shell reports for a program that SIGPIPE ended, as `| head` does to any other
FAILURES = "CKPM_FAILURES"  # names the file in which failures are recorded, for whoever called nox
_INTERRUPTED = 130  # the same for SIGINT
_OF_AN_OUTPUT = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG, errno.EBADF)


def exit_code(command: Callable[[], int]) -> int:
    """Run ``command``; its result, or the exit code of its failure, whose message goes to stderr as ``error: ...``.

    The failures are our own errors and those that a machine causes in any program. Examples are a file that can't be
    read, a full or closed output, and an interrupt. A mistake of this program keeps its traceback.
    """
    forgiving_output()
    try:
        try:
            with name_process_limits():
                code = command()
        finally:
            if sys.stdout is not None:  # None: it is closed
                sys.stdout.flush()  # here, and not while Python shuts down: after a failure, too
    except CkPrefillError as error:
        _record(error)
        return _tell(str(error), error.exit_code)
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
    """Raise ProcessLimitError for what Python and its libraries make of a system that starts no process or thread."""
    try:
        yield
    except RuntimeError as error:
        if "can't start new thread" not in str(error):
            raise
        raise ProcessLimitError("a thread can't be started") from error
    except BlockingIOError as error:
        raise ProcessLimitError(f"{error.filename or 'a process'} can't be started") from error
    except KeyboardInterrupt as error:
        if _starts_threads():
            raise
        # not a person: OpenBLAS sends SIGINT to its process if it can't start its threads when NumPy is imported
        raise ProcessLimitError("a thread can't be started") from error


def _starts_threads() -> bool:
    try:
        threading.Thread(target=int).start()
    except RuntimeError:
        return False
    return True


def _record(error: CkPrefillError) -> None:
    """Append the failure to the file that CKPM_FAILURES names: nox, in between, ends with 1 whatever happened."""
    if file := os.environ.get(FAILURES):
        row = {
            "exit_code": error.exit_code,
            "kind": error.kind,
            "infrastructure": error.infrastructure,
            "message": str(error),
        }
        with contextlib.suppress(OSError), open(file, "a", encoding="utf-8") as stream:  # noqa: PTH123
            stream.write(json.dumps(row) + "\n")


def _tell(message: str, code: int) -> int:
    with contextlib.suppress(OSError):  # stderr may be closed: the exit code is left
        show(f"error: {shown(message)}", file=sys.stderr, flush=True)
    return code


def _abandon_stdout() -> None:
    """Let Python's last flush go nowhere instead of failing again."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
