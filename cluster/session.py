"""What a client of ours leaves on every worker while it runs: which processes belong to which task, to end them.

Dask doesn't stop a task that has begun. A task of ours therefore runs its work in a process of its own, registered
here; when the task is cancelled, or its client is gone, the scheduler releases it, the worker says so, and the process
ends. When the client takes its leave, everything of it ends.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from distributed import WorkerPlugin, get_worker

from ckpm.cluster.errors import WorkerFailedError

T = TypeVar("T")
_RUNNING = ("executing", "long-running")


class Session(WorkerPlugin):  # type: ignore[misc]
    """One client on one worker. Made by the client, pickled, and set up by each worker, also by later ones."""

    def __init__(self, name: str) -> None:
        self.name = name

    def setup(self, worker: Any) -> None:
        """Called by the worker."""
        self._worker = worker
        self._lock = threading.RLock()
        self._ends: dict[str, Callable[[], None]] = {}
        self._released: set[str] = set()
        self._at_end: list[Callable[[], None]] = []
        self._facts: dict[Any, Any] = {}
        self._closed = False

    def transition(self, key: str, start: str, finish: str, **more: Any) -> None:
        """Called by the worker for every change of a task's state."""
        with self._lock:
            if finish in _RUNNING:
                self._released.discard(key)
            if start in _RUNNING and finish == "released":
                self._released.add(key)
                if end := self._ends.get(key):
                    end()
            if finish == "forgotten" and not any(self.name in str(task) for task in self._worker.state.tasks):
                # the client has all that it wanted from here, or was killed: then nobody will take its leave
                for end in self._at_end:
                    end()
                self._at_end.clear()

    def teardown(self, worker: Any) -> None:
        """Called by the worker when the client takes its leave, or when the worker itself ends."""
        with self._lock:
            self._closed = True
            for end in (*self._ends.values(), *self._at_end):
                end()

    @contextlib.contextmanager
    def ended_by(self, key: str, end: Callable[[], None]) -> Iterator[None]:
        """While the body runs, ``end`` is called if the task ``key`` is not wanted any more; perhaps at once."""
        with self._lock:
            self._ends[key] = end
            if self._closed or key in self._released:
                end()
        try:
            yield
        finally:
            with self._lock:
                del self._ends[key]

    def is_wanted(self, key: str) -> bool:
        """Whether somebody waits for a task that runs here."""
        with self._lock:
            return not self._closed and key not in self._released

    def at_end(self, end: Callable[[], None]) -> None:
        """``end`` is called when the client takes its leave; at once if it has."""
        with self._lock:
            self._at_end.append(end)
            if self._closed:
                end()

    def once(self, what: object, make: Callable[[], T]) -> T:
        """A fact of this worker that all tasks of the session share, made when it is first asked for."""
        with self._lock:
            if what not in self._facts:
                self._facts[what] = make()
            fact: T = self._facts[what]
            return fact


def session_here(name: str) -> Session:
    """The session of the task that runs in this thread. Raises WorkerFailedError: the client is gone."""
    session = get_worker().plugins.get(name)
    if not isinstance(session, Session):
        raise WorkerFailedError(f"the client's session {name} has ended. Run its command again.")
    return session


def task_here() -> tuple[str, str]:
    """The key of the task that runs in this thread, and a name of the worker."""
    worker = get_worker()
    return str(worker.get_current_task()), str(worker.name)
