"""Processes that test mutants. A mutant is detected, too, if its process crashes or hangs."""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from ckpm.base.errors import CkPrefillError, DeviceError
from ckpm.suites.pool import START_SECONDS, classify_exit
from tests.mutants.drawing import Mutant
from tests.mutants.trial import CRASH, HANG, Setup, Tester, Trial

_MUTANT_SECONDS = 600.0  # for the static checks and the loading
_RUNNABLE = ("R", "D")  # states of /proc/PID/stat: running or waiting for a processor, waiting for a disk
Serve = Callable[["Connection[Any, Any]", Setup], None]
# not forked: a fork would lose the threads of an emulated device
_CONTEXT = multiprocessing.get_context("spawn")


class _Worker:
    """A process, its mutant, its case and its deadline."""

    def __init__(self, setup: Setup, serve: Serve) -> None:
        self.pipe, worker_end = _CONTEXT.Pipe()
        self.process: BaseProcess = _CONTEXT.Process(target=serve, args=(worker_end, setup), daemon=True)
        self.process.start()
        worker_end.close()  # or the end of the process would not close the pipe
        self.mutant: Mutant | None = None
        self.case, self.ready = "", False
        self.allow(START_SECONDS)

    def allow(self, seconds: float) -> None:
        """Set the deadline of the next step."""
        self.seconds, self.used = seconds, _processor_seconds(self.process.pid)[0]
        self.until = time.monotonic() + seconds

    def is_starved(self) -> bool:
        """True if the process runs, and other processes used its time."""
        used, state = _processor_seconds(self.process.pid)
        return state in _RUNNABLE and used - self.used < self.seconds

    def give(self, mutant: Mutant) -> None:
        self.mutant, self.case = mutant, ""
        self.allow(_MUTANT_SECONDS)
        with contextlib.suppress(OSError):  # it has ended: reading the pipe finds that
            self.pipe.send(mutant)

    def stop(self) -> int:
        """End the process; return its exit code, or minus a signal's number."""
        self.process.join(timeout=1.0)
        self.process.kill()
        self.process.join()
        self.pipe.close()
        return self.process.exitcode or 0


def _processor_seconds(pid: int | None) -> tuple[float, str]:
    """The processor time and the state of a process (proc(5)); 0 and '' if there is no such process or no /proc."""
    try:
        _, _, fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")
    except OSError:
        return 0.0, ""
    state, *numbers = fields.split()
    return (int(numbers[10]) + int(numbers[11])) / os.sysconf("SC_CLK_TCK"), state


def serve(pipe: Connection[Any, Any], setup: Setup) -> None:
    """Send "ready", then for each mutant its cases and its trial. Runs in a new process."""
    try:
        tester = Tester(setup)
        pipe.send(("ready", None))
        while True:
            trial = tester.test(pipe.recv(), lambda case: pipe.send(("case", (case.name, case.seconds))))
            pipe.send(("trial", trial))
    except CkPrefillError as error:
        pipe.send(("failed", error))
    except (EOFError, OSError, KeyboardInterrupt):  # the run is over
        return


def results(setup: Setup, mutants: Sequence[Mutant], jobs: int, serve: Serve = serve) -> Iterator[Trial]:
    """The trials of the mutants, in the order in which they end. A process runs ``serve``.

    Raises:
        DeviceError: a process ends or hangs before its first mutant.
        CkPrefillError: raised by a process.
    """
    left = deque(mutants)
    workers = [_Worker(setup, serve) for _ in range(min(jobs, len(mutants)))]
    try:
        while any(worker.mutant for worker in workers) or left:
            for worker in _wait(workers):
                trial = _receive(worker)
                if trial is not None:
                    yield trial
                    worker.mutant, worker.until = None, math.inf
                if trial is not None and trial.killed_by in (CRASH, HANG):
                    workers[workers.index(worker)] = _Worker(setup, serve)
                elif worker.mutant is None and worker.ready and left:
                    worker.give(left.popleft())
    finally:
        for worker in workers:
            worker.process.kill()
            worker.stop()


def _wait(workers: Sequence[_Worker]) -> list[_Worker]:
    """Wait for workers that sent a message, have ended, or are past their deadline."""
    seconds = max(0.0, min(worker.until for worker in workers) - time.monotonic())
    ready = wait([worker.pipe for worker in workers], seconds)
    now = time.monotonic()
    return [worker for worker in workers if worker.pipe in ready or worker.until <= now]


def _receive(worker: _Worker) -> Trial | None:
    """Receive a message of a worker; None unless it ends a trial."""
    if not worker.pipe.poll():
        if worker.is_starved():
            worker.until = time.monotonic() + worker.seconds
            return None
        return _end(worker, HANG)
    try:
        kind, value = worker.pipe.recv()
    except (EOFError, OSError):
        return _end(worker, CRASH)
    if kind == "failed":
        raise value
    if kind == "ready":
        worker.ready, worker.until = True, math.inf
    elif kind == "case":
        worker.case, seconds = value
        worker.allow(seconds)
    return value if kind == "trial" else None


def _end(worker: _Worker, how: str) -> Trial:
    """The trial that a crash or a hang ends. Infrastructure errors raise DeviceError."""
    if how == HANG:
        worker.process.kill()
    code = worker.stop()
    reason = "took too long" if how == HANG else f"ended with {code}"
    if worker.mutant is None or (how == CRASH and classify_exit(code, "")["outcome"] != "fault"):
        raise DeviceError(
            f"a process that tests mutants {reason}, not caused by a mutant. Its output is above.", kind="worker-start"
        )
    return Trial(mutant=worker.mutant, killed_by=how, how=f"{worker.case or 'before its first case'}: {reason}")
