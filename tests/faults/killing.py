"""Runs an action in a process, kills it, and checks that no child process is left."""

from __future__ import annotations

import ctypes
import os
import signal
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass

_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of <linux/prctl.h>: orphans below this process become its children
_PATIENCE_SECONDS = 90
_ENDED, _KILLED, _FAILED, _LEFT = 0, 1, 2, 3


@dataclass(frozen=True, slots=True)
class Ending:
    """``killed`` is True if the action had not ended before. ``seconds`` includes the time of its child processes."""

    killed: bool
    seconds: float


def run(action: Callable[[], object], seconds: float | None = None) -> Ending:
    """Run an action and kill its process after ``seconds``, if it has not ended before.

    AssertionError if the action fails, or one of its child processes does not end.
    """
    started = time.monotonic()
    keeper = os.fork()
    if keeper == 0:
        code = _FAILED
        try:
            code = _keep(action, seconds)
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(keeper, 0)[1])
    assert code != _LEFT, "processes were left"
    assert code in (_ENDED, _KILLED), "the action failed"
    return Ending(code == _KILLED, time.monotonic() - started)


def _keep(action: Callable[[], object], seconds: float | None) -> int:
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    victim = os.fork()
    if victim == 0:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        code = 1
        try:
            action()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    if seconds is not None:
        signal.sigtimedwait({signal.SIGCHLD}, seconds)
        os.kill(victim, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(victim, 0)[1])
    if not _all_ended():
        return _LEFT
    return {0: _ENDED, -signal.SIGKILL: _KILLED}.get(code, _FAILED)


def _all_ended() -> bool:
    """Return True if all processes that the victim left end by themselves."""
    end = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            gone, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return True
        if gone:
            continue
        if time.monotonic() > end:
            return False
        signal.sigtimedwait({signal.SIGCHLD}, 1)
