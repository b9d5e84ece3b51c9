"""Sessions of a client on its workers, which end the processes of its tasks.

Dask doesn't stop a running task. Our tasks therefore run their work in processes that are registered here. When a task
is cancelled or its client is gone, the scheduler releases the task, and its process ends. When the client closes the
session, all its processes end.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from distributed import WorkerPlugin, get_worker

from ckpm.base.errors import InconclusiveError

T = TypeVar("T")
_RUNNING = ("executing", "long-running")


class Session(WorkerPlugin):  # type: ignore[misc]
    """A client's session on a worker. Each worker, also a later one, gets a pickled copy from the client."""

    def __init__(self, name: str) -> None:
        self.name = name

    def setup(self, worker: Any) -> None:
        """Prepare the session; the worker calls this."""
        self._worker = worker
        self._lock = threading.RLock()
        self._ends: dict[str, Callable[[], None]] = {}
        self._released: set[str] = set()
        self._at_end: list[Callable[[], None]] = []
        self._values: dict[Any, Any] = {}
        self._closed = False

    def transition(self, key: str, start: str, finish: str, **more: Any) -> None:
        """End the process of a released task; the worker calls this for every change of a task's state."""
        with self._lock:
            if finish in _RUNNING:
                self._released.discard(key)
            if start in _RUNNING and finish == "released":
                self._released.add(key)
                if end := self._ends.get(key):
                    end()
            if finish == "forgotten" and not any(self.name in str(task) for task in self._worker.state.tasks):
                # the client has all its results, or was killed and will not close the session
                for end in self._at_end:
                    end()
                self._at_end.clear()

    def teardown(self, worker: Any) -> None:
        """End all processes; the worker calls this when the client closes the session or the worker ends."""
        with self._lock:
            self._closed = True
            for end in (*self._ends.values(), *self._at_end):
                end()

    @contextlib.contextmanager
    def ended_by(self, key: str, end: Callable[[], None]) -> Iterator[None]:
        """Call ``end`` if the task ``key`` is released during the body, or was released earlier."""
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
        """Return True if a client waits for a task that runs here."""
        with self._lock:
            return not self._closed and key not in self._released

    def at_end(self, end: Callable[[], None]) -> None:
        """Call ``end`` when the client closes the session; at once if it is closed."""
        with self._lock:
            self._at_end.append(end)
            if self._closed:
                end()

    def once(self, what: object, make: Callable[[], T]) -> T:
        """A value that all tasks of the session on this worker share, made at the first call."""
        with self._lock:
            if what not in self._values:
                self._values[what] = make()
            value: T = self._values[what]
            return value


def session_here(name: str) -> Session:
    """The session of the task in this thread; an InconclusiveError if the client is gone."""
    session = get_worker().plugins.get(name)
    if not isinstance(session, Session):
        raise InconclusiveError(f"the client's session {name} has ended. Run its command again.", kind="worker-failed")
    return session


def resource_here(name: str) -> int:
    """The number of a resource that the worker of the task in this thread has."""
    return int(get_worker().state.total_resources.get(name, 0))


def task_here() -> tuple[str, str]:
    """The key of the task in this thread, and the name of the worker."""
    worker = get_worker()
    return str(worker.get_current_task()), str(worker.name)
