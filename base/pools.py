"""Threads that run processes. If their owner fails or is ended, the processes end and nothing more begins."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType

from .files import StoppedError

# Seconds that processes may take to end; then they are killed. A build inside one takes up to ten.
_PATIENCE_SECONDS = 20


class Pool(ThreadPoolExecutor):
    """Threads, and the processes that they run. A context that ends by an exception stops both."""

    def __init__(self, threads: int, name: str = "") -> None:
        super().__init__(threads, thread_name_prefix=name)
        self.stopping = threading.Event()
        self._processes: set[subprocess.Popen[str]] = set()
        self._guard = threading.Lock()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        if kind is not None:
            self.stop()
        return super().__exit__(kind, error, trace)

    def stop(self) -> None:
        """Begin nothing more, and end the processes; return when they have ended."""
        self.shutdown(wait=False, cancel_futures=True)
        with self._guard:
            self.stopping.set()
            running = tuple(self._processes)
        for process in running:
            _signal(process, signal.SIGTERM)
        end = time.monotonic() + _PATIENCE_SECONDS
        for process in running:
            try:
                process.wait(max(0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                _signal(process, signal.SIGKILL)

    @contextlib.contextmanager
    def among(self, process: subprocess.Popen[str]) -> Iterator[None]:
        """Inside, the process, the leader of its group, is among those that :meth:`stop` ends."""
        with self._guard:
            self._processes.add(process)
            if self.stopping.is_set():
                _signal(process, signal.SIGTERM)
        try:
            yield
        finally:
            with self._guard:
                self._processes.discard(process)

    def run(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        cwd: Path | None = None,
        timeout: float | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command and return its output and exit code.

        Raises:
            StoppedError: the pool is stopped. subprocess.TimeoutExpired. OSError: the command can't be started.
        """
        if self.stopping.is_set():
            raise StoppedError
        process = subprocess.Popen(
            command,
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            process_group=0,
        )
        with process, self.among(process):
            try:
                output, errors = process.communicate(timeout=timeout)
            except BaseException:
                _signal(process, signal.SIGKILL)
                raise
        if self.stopping.is_set():
            raise StoppedError
        return subprocess.CompletedProcess(command, process.returncode, output, errors)


def _signal(process: subprocess.Popen[str], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)
