"""Processes that try mutants. One that a mutant kills or holds up ends alone: that is how the mutant was seen."""

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

from matrix.base.errors import CkPrefillError
from tests.gpu.errors import WorkerStartError
from tests.gpu.pool import START_SECONDS, classify_exit
from tests.mutants.drawing import Mutant
from tests.mutants.trial import CRASH, HANG, Setup, Trials, Tried

_MUTANT_SECONDS = 600.0  # for what lies between two cases: static checks, loading
_RUNNABLE = ("R", "D")  # states of /proc/PID/stat: running or waiting for a processor, waiting for a disk
Serve = Callable[["Connection[Any, Any]", Setup], None]
# not forked: a fork would lose the threads of an emulated device
_CONTEXT = multiprocessing.get_context("spawn")


class _Worker:
    """A process with what it is doing, and until when it may."""

    def __init__(self, setup: Setup, serve: Serve) -> None:
        self.pipe, theirs = _CONTEXT.Pipe()
        self.process: BaseProcess = _CONTEXT.Process(target=serve, args=(theirs, setup), daemon=True)
        self.process.start()
        theirs.close()  # or its end would not be seen
        self.mutant: Mutant | None = None
        self.case, self.ready = "", False
        self.allow(START_SECONDS)

    def allow(self, seconds: float) -> None:
        """From now on, for what it begins."""
        self.seconds, self.used = seconds, _processor_seconds(self.process.pid)[0]
        self.until = time.monotonic() + seconds

    def is_starved(self) -> bool:
        """Whether its time is over because others had the processor: it runs, and has not had that time itself."""
        used, state = _processor_seconds(self.process.pid)
        return state in _RUNNABLE and used - self.used < self.seconds

    def give(self, mutant: Mutant) -> None:
        self.mutant, self.case = mutant, ""
        self.allow(_MUTANT_SECONDS)
        with contextlib.suppress(OSError):  # it has died since: the next look at its pipe says so
            self.pipe.send(mutant)

    def stop(self) -> int:
        """How it ended: an exit code, or a signal's number below 0."""
        self.process.join(timeout=1.0)
        self.process.kill()
        self.process.join()
        self.pipe.close()
        return self.process.exitcode or 0


def _processor_seconds(pid: int | None) -> tuple[float, str]:
    """What a process has used, and its state (proc(5)); 0 and '' if it is gone, or where there is no /proc."""
    try:
        _, _, fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")
    except OSError:
        return 0.0, ""
    state, *numbers = fields.split()
    return (int(numbers[10]) + int(numbers[11])) / os.sysconf("SC_CLK_TCK"), state


def serve(pipe: Connection[Any, Any], setup: Setup) -> None:
    """In a new process: ready, then for each mutant its cases and its fate."""
    try:
        trials = Trials(setup)
        pipe.send(("ready", None))
        while True:
            fate = trials.tried(pipe.recv(), lambda case: pipe.send(("case", (case.name, case.seconds))))
            pipe.send(("tried", fate))
    except CkPrefillError as error:
        pipe.send(("failed", error))
    except (EOFError, OSError, KeyboardInterrupt):  # the run is over
        return


def results(setup: Setup, mutants: Sequence[Mutant], jobs: int, serve: Serve = serve) -> Iterator[Tried]:
    """What became of each mutant, as they come. ``serve`` is what a process does.

    Raises:
        WorkerStartError: a process ends, or says nothing for long, before its first mutant.
        CkPrefillError: what a worker raises.
    """
    left = deque(mutants)
    workers = [_Worker(setup, serve) for _ in range(min(jobs, len(mutants)))]
    try:
        while any(worker.mutant for worker in workers) or left:
            for worker in _spoken(workers):
                fate = _heard(worker)
                if fate is not None:
                    yield fate
                    worker.mutant, worker.until = None, math.inf
                if fate is not None and fate.killed_by in (CRASH, HANG):
                    workers[workers.index(worker)] = _Worker(setup, serve)
                elif worker.mutant is None and worker.ready and left:
                    worker.give(left.popleft())
    finally:
        for worker in workers:
            worker.process.kill()
            worker.stop()


def _spoken(workers: Sequence[_Worker]) -> list[_Worker]:
    """Those that said something, have ended, or have taken too long."""
    seconds = max(0.0, min(worker.until for worker in workers) - time.monotonic())
    ready = wait([worker.pipe for worker in workers], seconds)
    now = time.monotonic()
    return [worker for worker in workers if worker.pipe in ready or worker.until <= now]


def _heard(worker: _Worker) -> Tried | None:
    """What a worker says: the end of its mutant, or None for a step on the way. Raises as :func:`results`."""
    if not worker.pipe.poll():
        if worker.is_starved():
            worker.until = time.monotonic() + worker.seconds
            return None
        return _ended(worker, HANG)
    try:
        what, value = worker.pipe.recv()
    except (EOFError, OSError):
        return _ended(worker, CRASH)
    if what == "failed":
        raise value
    if what == "ready":
        worker.ready, worker.until = True, math.inf
    elif what == "case":
        worker.case, seconds = value
        worker.allow(seconds)
    return value if what == "tried" else None


def _ended(worker: _Worker, how: str) -> Tried:
    """Raises WorkerStartError: it had no mutant yet, or no mutant ends a process like that."""
    if how == HANG:
        worker.process.kill()
    code = worker.stop()
    said = "took too long" if how == HANG else f"ended with {code}"
    if worker.mutant is None or (how == CRASH and classify_exit(code, "")["outcome"] != "fault"):
        raise WorkerStartError(f"a process that runs mutants {said}, which no mutant did. Its last words are above.")
    return Tried(mutant=worker.mutant, killed_by=how, how=f"{worker.case or 'before its first case'}: {said}")
