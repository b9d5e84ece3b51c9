"""Worker processes that run cases. A case that kills its worker ends alone; its result has the signal or exit code.

A crash, a hang or an unreadable answer is the result of the case that was running; the next case gets a new worker.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import queue
import re
import selectors
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ckpm.base.errors import DeviceError, RefusedError
from ckpm.base.processes import own_environment, python_command
from ckpm.suites.checks import RESULTS
from ckpm.suites.suites import Case

log = logging.getLogger(__name__)
START_SECONDS = 900.0  # the first start compiles the emulator's core and decodes code objects
_LOG_SECONDS = 30.0  # between messages about a worker that is starting
_START_FAILURES = 2  # in a row, after which a machine is given up
_GONE_SECONDS = 10.0
_TAIL = 4000  # bytes of a dead worker's standard error that are evidence
# Signals that a kernel's or a library's mistake raises. The others come from outside: KILL is the memory killer's.
_FAULTS = frozenset((signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE, signal.SIGTRAP))
_GPU_FAULT = re.compile(r"[Mm]emory access fault.*", re.DOTALL)
_LOST = ("HSA_STATUS_ERROR_OUT_OF_RESOURCES", "device lost", "GPU reset", "No space left", "Cannot allocate memory")
ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
Reply = dict[str, Any]


class CasePool(Protocol):
    """Processes that run cases, on this machine or on others."""

    def run(self, cases: Sequence[Case]) -> Iterator[tuple[Case, Reply]]:
        """Run cases, and yield each with its reply when it ends."""


class OtherMachines(Protocol):
    """Machines of a cluster that run cases."""

    def describe(self) -> str:
        """Numbers of workers and threads, for people."""

    def pool(self, setup: Mapping[str, Any], library: Path) -> CasePool:
        """The pool of a library's cases. ``setup`` is that of ckpm/suites/worker.py."""


def worker_command(setup: Mapping[str, Any]) -> tuple[str, ...]:
    """The command that starts ckpm/suites/worker.py with a setup."""
    return python_command("-m", "ckpm.suites.worker", json.dumps(setup))


class Worker:
    """One process and its pipes. ``facts`` is the answer with which it became ready."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        start_seconds: float,
        begun: Callable[[Worker], None] = lambda worker: None,
    ) -> None:
        """Start a process. ``begun`` is called right after the start, so that another thread can
        :meth:`kill` a starting worker.

        Raises RefusedError, or DeviceError if the process dies or gives no answer.
        """
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by stop()
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=own_environment(environment),
            start_new_session=True,  # an interrupt is for the pool, which then ends its workers
        )
        self._pending = b""
        begun(self)
        try:
            reply = self._ready(start_seconds)
        except (TimeoutError, EOFError, ValueError) as error:
            tail = self.error_tail()
            code = self.stop()
            how = "gave no answer in time" if isinstance(error, TimeoutError) else f"ended with {_exit_text(code)}"
            raise DeviceError(
                f"a worker {how} before its first case. Its last words: {tail or 'none'}", kind="worker-start"
            ) from error
        except BaseException:
            self.stop()
            raise
        if "refused" in reply:
            self.stop()
            raise RefusedError(str(reply["refused"]), int(reply.get("exit_code", 1)))
        self.facts: Mapping[str, Any] = reply.get("ready", {})

    def _ready(self, seconds: float) -> Any:
        """Return the first reply. Raises as :meth:`_receive`."""
        waited = 0.0
        while True:
            try:
                return self._receive(min(_LOG_SECONDS, seconds - waited))
            except TimeoutError:
                waited += _LOG_SECONDS
                if waited >= seconds:
                    raise
            lines = self.error_tail().splitlines()
            last = f"; its last words: {lines[-1]}" if lines else ""
            log.info(
                f"a worker ({self._process.pid}) has been starting for {waited:.0f} s (limit {seconds:.0f} s){last}"
            )

    def run(self, case: Case) -> Reply:
        """The reply to a case. The worker may be dead afterwards (see :attr:`alive`)."""
        self._errors.truncate(0)
        self._errors.seek(0)
        fields = {"case": case.name, "variants": list(case.variants), "signatures": case.signatures}
        request = json.dumps(fields) + "\n"
        try:
            assert self._process.stdin is not None
            self._process.stdin.write(request.encode())
            self._process.stdin.flush()
            reply = self._receive(case.seconds)
            if not isinstance(reply, dict) or reply.get("outcome") not in RESULTS:
                raise ValueError(f"no result: {str(reply)[:200]}")
        except TimeoutError:
            self.stop()
            return {"outcome": "timeout", "message": f"no result after {case.seconds:.0f} s"}
        except (EOFError, OSError):
            tail = self.error_tail()
            return classify_exit(self.stop(), tail)
        except ValueError as error:
            tail = self.error_tail()
            self.stop()
            lines = tail.splitlines()
            return {
                "outcome": "infrastructure",
                "message": f"the worker's answer can't be read: {error}",
                "lines": lines,
            }
        if reply.pop("last", False):
            self.stop()
        return reply

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def error_tail(self) -> str:
        """The end of standard error since the case began."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(0.2)
        size = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, size - _TAIL))
        return self._errors.read().decode(errors="replace").strip()

    def kill(self) -> None:
        """Send SIGKILL, also from another thread, and wait 10 s. A process inside a GPU's driver may end later."""
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)  # and the compilers that it started
        with contextlib.suppress(subprocess.TimeoutExpired):  # a process that waits for a GPU goes when that answers
            self._process.wait(_GONE_SECONDS)

    def stop(self) -> int:
        """End the process if it hasn't ended; return its exit code, negative for a signal."""
        if self._process.poll() is None:
            assert self._process.stdin is not None
            with contextlib.suppress(OSError):
                self._process.stdin.close()
            try:
                self._process.wait(0.5)
            except subprocess.TimeoutExpired:
                self.kill()
        code = self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            with contextlib.suppress(OSError):
                if stream is not None:
                    stream.close()
        return code

    def _receive(self, seconds: float) -> Any:
        """Read one line of JSON. Raises TimeoutError, EOFError, ValueError."""
        deadline = time.monotonic() + seconds
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._pending:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise TimeoutError
                part = os.read(self._process.stdout.fileno(), 1 << 16)
                if not part:
                    raise EOFError
                self._pending += part
        line, _, self._pending = self._pending.partition(b"\n")
        return json.loads(line)


def classify_exit(code: int, tail: str) -> Reply:
    """The result of a case whose worker died, by its exit code and the ``tail`` of its standard error."""
    lines = tail.splitlines()
    if any(word in tail for word in _LOST):
        return {"outcome": "infrastructure", "message": f"the worker ended with {_exit_text(code)}", "lines": lines}
    if match := _GPU_FAULT.search(tail):
        first = match[0].splitlines()[0]
        return {"outcome": "fault", "message": f"{first} (worker ended with {_exit_text(code)})", "lines": lines}
    if code < 0 and -code in _FAULTS:
        return {"outcome": "fault", "message": f"the worker crashed with {_exit_text(code)}", "lines": lines}
    hint = ": the system may be out of memory" if code == -signal.SIGKILL else ""
    return {"outcome": "infrastructure", "message": f"the worker ended with {_exit_text(code)}{hint}", "lines": lines}


def _exit_text(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


@dataclass(frozen=True, kw_only=True)
class WorkerPool:
    """``command`` starts a worker. ``size`` of them run at once."""

    command: tuple[str, ...]
    size: int
    environment: Mapping[str, str]
    start_seconds: float = START_SECONDS

    def run(self, cases: Sequence[Case]) -> Iterator[tuple[Case, Reply]]:
        """Yield each case with its reply as it ends; expensive ones are begun first. A reply has ``elapsed`` seconds.

        An error at the start of the first worker ends the run. If a later worker doesn't start, its case is
        infrastructure.
        """
        todo: queue.SimpleQueue[Case] = queue.SimpleQueue()
        for case in sorted(cases, key=lambda case: -case.seconds):
            todo.put(case)
        done: queue.SimpleQueue[tuple[Case, Reply] | BaseException | None] = queue.SimpleQueue()
        halt = threading.Event()
        busy: dict[int, Worker] = {}
        self._have_worker(busy, halt, 0, 0)  # the first one starts alone: it fills the caches
        threads = [
            threading.Thread(target=self._work, args=(todo, done, halt, busy, number), daemon=True)
            for number in range(max(1, min(self.size, len(cases))))
        ]
        running = 0
        try:
            for thread in threads:
                thread.start()
                running += 1
            while running:
                item = done.get()
                if item is None:
                    running -= 1
                elif isinstance(item, BaseException):
                    raise item
                else:
                    yield item
        finally:
            halt.set()
            if running:  # interrupted: workers are not waited for
                for worker in tuple(busy.values()):
                    worker.kill()
            for thread in threads:
                if thread.ident is not None:  # it could be started
                    thread.join()

    def _work(
        self,
        todo: queue.SimpleQueue[Case],
        done: queue.SimpleQueue[tuple[Case, Reply] | BaseException | None],
        halt: threading.Event,
        busy: dict[int, Worker],
        number: int,
    ) -> None:
        """Run cases until there are none left, on a worker at busy[number]. A worker that dies is replaced."""
        failures = 0
        try:
            while not halt.is_set() and (case := _next(todo)) is not None:
                started = time.monotonic()
                try:
                    self._have_worker(busy, halt, number, failures)
                    reply, failures = busy[number].run(case), 0
                except (RefusedError, DeviceError) as error:
                    reply = {"outcome": "infrastructure", "message": f"not run, {error}"}
                    failures += 1
                reply["elapsed"] = time.monotonic() - started
                done.put((case, reply))
        except BaseException as error:
            done.put(error)
        finally:
            if number in busy:
                busy[number].stop()
            done.put(None)

    def _have_worker(self, busy: dict[int, Worker], halt: threading.Event, number: int, failures: int) -> None:
        """Start a worker at busy[number] unless one lives there. Raises RefusedError, DeviceError.

        An interrupt finds it there before it is ready.
        """

        def begun(worker: Worker) -> None:
            busy[number] = worker
            if halt.is_set():
                worker.kill()

        if failures >= _START_FAILURES:
            raise DeviceError("workers no longer start", kind="worker-start")
        if number not in busy or not busy[number].alive:
            Worker(self.command, self.environment, self.start_seconds, begun)


def _next(todo: queue.SimpleQueue[Case]) -> Case | None:
    try:
        return todo.get_nowait()
    except queue.Empty:
        return None
