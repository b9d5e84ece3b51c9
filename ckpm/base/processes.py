"""Processes that this program starts: their commands and environments, and the group of a build with its lock.

A child imports nothing of the folder it runs in. A tool (compiler, SCons, pip, git) gets the variables of a table:
others, such as SCONSFLAGS or GIT_DIR, would steer it.

A pool is threads that run processes. If its owner fails or is ended, the processes end and nothing more begins.

SCons and the compilers are one process group. An orderly end (a signal, an error) ends the group before the lock is
released: SCons sees the pipe to us close, starts nothing more, ends its compilers and records the
built files. The pipe closes, too, if we are killed. Until all processes have ended they hold the lock, whose descriptor
they inherited.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, TracebackType

from .errors import ProcessLimitError, UsageError
from .files import StoppedError, make_folder, name_write_errors, open_lock
from .paths import IMPORTS, PROJECT, PYTHONPATH

# Seconds that SCons may take to record the built files when its compilers have ended; then it is killed.
_PATIENCE_SECONDS = 10
# Seconds that processes of a pool, for example builds, may take to end; then they are killed.
_POOL_SECONDS = 20
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
log = logging.getLogger(__name__)
# pip's settings that lead to packages; the others say what pip does with them, and where.
PIP_SETTINGS = (
    *("index-url", "extra-index-url", "find-links", "no-index", "trusted-host", "proxy", "cert", "client-cert"),
    *("timeout", "default-timeout", "retries", "constraint", "keyring-provider", "disable-pip-version-check"),
)
_PIP = "|".join(name.replace("-", "_").upper() for name in (*PIP_SETTINGS, "config-file", "cache-dir"))
# The way of pip and git to their servers.
SERVERS = rf"PIP_({_PIP})|\w*_(proxy|PROXY)|SSL_CERT_\w+|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE|GIT_SSL_\w+|GIT_CONFIG_\w+"
_KEPT = re.compile(
    r"PATH|HOME|USER|LOGNAME|LANG|LANGUAGE|LC_\w+|TZ|TMPDIR|TERM|LD_LIBRARY_PATH|XDG_\w+|NIX_\w+|DASK_\w+|VIRTUAL_ENV"
    r"|CKPM_\w+|CK_ROOT|ROCM_PATH|HIP_PATH|PYTHON(DONTWRITEBYTECODE|PYCACHEPREFIX|USERBASE|NOUSERSITE|HOME|UTF8)"
    rf"|{SERVERS}"
)


def python_command(*arguments: str) -> tuple[str, ...]:
    """The command of a Python process, for example with ``-m MODULE``, that imports nothing of the current folder."""
    return (sys.executable, "-P", *arguments)


def own_environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a child that is a part of this program: all variables, ``more``, and where ckpm is."""
    return {**os.environ, **search_path(), **(more or {})}


def tool_environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a tool: variables that don't steer it, ``more``, and where ckpm is."""
    kept = {name: value for name, value in os.environ.items() if _KEPT.fullmatch(name)}
    return {**kept, **search_path(), **(more or {})}


def search_path() -> dict[str, str]:
    """The variable by which a child finds ckpm. Raises UsageError: no path can name ckpm's folder."""
    if os.pathsep in str(IMPORTS):
        raise UsageError(
            f"{IMPORTS}: a folder with '{os.pathsep}' in its name can't be searched for Python's modules, and the "
            "processes of this command need that. Move the clone, or the environment with ckpm, to another folder."
        )
    return {"PYTHONPATH": PYTHONPATH}


@contextmanager
def build_lock(file: Path) -> Iterator[None]:
    """Hold the lock of an output folder; if another run has it, log a message and wait.

    Child processes that are started with ``close_fds=False`` hold it, too, until they end.
    """
    otherwise = "choose another folder with --work"
    make_folder(file.parent, otherwise)
    with name_write_errors(file, otherwise):
        descriptor = open_lock(file)
    try:
        with name_write_errors(file, otherwise):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                owner = os.read(descriptor, 20).decode(errors="replace").strip()
                log.info(f"waiting for another run in {file.parent}{f' (process {owner})' if owner else ''}")
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        os.set_inheritable(descriptor, True)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Raise SystemExit(128 + number) for SIGTERM and SIGHUP inside this context, KeyboardInterrupt for SIGINT.

    Only the first signal counts, so that a second one can't interrupt the orderly end. Main thread only.
    """
    outer = signal.getsignal(signal.SIGTERM)
    with handled_by(outer if isinstance(outer, _Ending) else _Ending(), *_ENDING):
        yield


@contextmanager
def handled_by(handler: Callable[[int, FrameType | None], None], *numbers: signal.Signals) -> Iterator[None]:
    """Handle these signals by ``handler``, unless they are ignored: nohup ignores SIGHUP. Main thread only."""
    heeded = [number for number in numbers if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, handler) for number in heeded}
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)


class _Ending:
    """The handler of the signals that end a command."""

    def __init__(self) -> None:
        self._began = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self._began:
            return
        self._began = True
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        name = signal.Signals(number).name
        os.write(2, f"error: ended by {name}; run the same command again to go on\n".encode())
        raise SystemExit(128 + number)


@contextmanager
def group(
    command: Sequence[str], *, cwd: Path, environment: Mapping[str, str], output: int | None = subprocess.PIPE
) -> Iterator[subprocess.Popen[str]]:
    """Run a command as a process group of its own, and end the group at the end.

    Standard output and errors are in ``stdout``, or go to ``output``, None for our own. The command gets a further
    argument, ``owner=N``, for :func:`end_with_owner`.
    """
    log.debug(f"running {shlex.join(command)}")
    read_end, write_end = os.pipe()
    with os.fdopen(write_end, "wb") as owner:
        try:
            os.set_inheritable(read_end, True)
            process = subprocess.Popen(
                [*command, f"owner={read_end}"],
                cwd=cwd,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=None if output is None else subprocess.STDOUT,
                text=True,
                errors="replace",
                close_fds=False,  # the lock's descriptor is inherited, and the pipe's
                process_group=0,
            )
        except BlockingIOError as error:
            raise ProcessLimitError(f"{command[0]} can't be started") from error
        finally:
            os.close(read_end)
        with process:
            try:
                yield process
                process.wait()
            except BaseException:
                owner.close()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.communicate(timeout=_PATIENCE_SECONDS)
                raise
            finally:
                _signal(process.pid, signal.SIGKILL)


class ProcessPool(ThreadPoolExecutor):
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
        """Start no further process, and end the running ones; return when they have ended."""
        self.shutdown(wait=False, cancel_futures=True)
        with self._guard:
            self.stopping.set()
            running = tuple(self._processes)
        for process in running:
            _signal(process.pid, signal.SIGTERM)
        end = time.monotonic() + _POOL_SECONDS
        for process in running:
            try:
                process.wait(max(0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                _signal(process.pid, signal.SIGKILL)

    @contextlib.contextmanager
    def among(self, process: subprocess.Popen[str]) -> Iterator[None]:
        """A context in which :meth:`stop` ends the process, too, which leads its group."""
        with self._guard:
            self._processes.add(process)
            if self.stopping.is_set():
                _signal(process.pid, signal.SIGTERM)
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
                _signal(process.pid, signal.SIGKILL)
                raise
        if self.stopping.is_set():
            raise StoppedError
        return subprocess.CompletedProcess(command, process.returncode, output, errors)


def session_members(leader: int) -> list[int]:
    """Running processes of a session. proc(5): state, parent, group and session follow the name in brackets."""
    members = []
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended
            state, _, _, session, *_ = file.read_text(errors="replace").rpartition(")")[2].split()
            if int(session) == leader and state not in "ZX":
                members.append(int(file.parent.name))
    return members


def end_if_a_thread_fails() -> None:
    """Make an exception that a thread doesn't catch end the process, with its message.

    SCons waits forever for a worker thread that has ended, for example because it could not start another thread.
    """

    def end(failure: threading.ExceptHookArgs) -> None:
        sys.stdout.write(f"error: {failure.exc_value}{os.linesep}")
        sys.stdout.flush()
        os._exit(1)

    threading.excepthook = end


def end_with_owner(pipe: int, stop: Callable[[], None]) -> None:
    """Watch the read end of a pipe whose other end the owner holds; when it closes, ``stop`` and end our group.

    This is SCons's process, which survives SIGTERM: its own handler waits until the main thread wakes, and by then its
    workers have started the next compilers. After the build it has no handler.
    """
    os.set_inheritable(pipe, False)
    signal.signal(signal.SIGTERM, lambda number, frame: None)

    def watch() -> None:
        os.read(pipe, 1)
        stop()
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for stream in (1, 2):  # they are not read any more, and a broken pipe would prevent SCons's orderly end
            os.dup2(nowhere, stream)
        end = time.monotonic() + _PATIENCE_SECONDS
        while time.monotonic() < end:
            _signal(os.getpgrp(), signal.SIGTERM)  # repeated, because a compiler may have been about to start
            time.sleep(0.1)
        _signal(os.getpgrp(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


def owned_command(command: Sequence[str]) -> list[str]:
    """The command line that runs a command in a :func:`group`, so that it ends with the owner."""
    return [*python_command("-m", "ckpm.base.processes"), *command]


def main(argv: Sequence[str]) -> int:
    """Run a command. It and this process's group end with the owner of this process."""
    *command, owner = argv
    stopping = threading.Event()
    end_with_owner(int(owner.removeprefix("owner=")), stopping.set)
    code = subprocess.run(command, check=False).returncode
    if stopping.is_set():  # processes that the command left have no owner any more
        _signal(os.getpgrp(), signal.SIGKILL)
    return code if code >= 0 else 128 - code


def _signal(leader: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, number)


def run_git(folder: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """Run git in a folder, whatever repository a hook's variables name. Raises OSError if git can't be started."""
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, env=tool_environment(), capture_output=True, check=False)


def git(folder: Path, *arguments: str) -> bytes | None:
    """Output of a git command in a folder; None if it fails, or git is not installed."""
    try:
        run = run_git(folder, *arguments)
    except OSError:
        return None
    return run.stdout if run.returncode == 0 else None


def revision() -> str:
    """`` (revision)`` of a clone, with ``-dirty`` if it has changes; "" without a clone or git."""
    if not (PROJECT / ".git").exists():
        return ""
    described = git(PROJECT, "describe", "--always", "--dirty")
    return "" if described is None else f" ({described.decode().strip()})"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
