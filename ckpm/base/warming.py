"""Build zig's libc++ and the emulator's core while a machine's first build compiles.

libc++ takes a minute on one processor and is needed by the first link. Both run in process groups that end with the
build. Nothing depends on them: if one fails, the step that needs its result makes it and reports errors.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from .files import open_lock
from .processes import group, owned_command, python_command

ZIG_CACHE = "ZIG_GLOBAL_CACHE_DIR"  # a variable of the embedded toolchain's environment
_CORE = python_command("-m", "ckpm_emulator", "core")
_SILENT_SECONDS = 5.0  # a core that exists is found in less
log = logging.getLogger(__name__)


def lacks_libcxx(environment: Mapping[str, str]) -> bool:
    """Return True if the first link with a toolchain of this environment builds libc++."""
    cache = environment.get(ZIG_CACHE)
    return bool(cache) and not any(Path(str(cache)).glob("o/*/libc++.a"))


@contextmanager
def libcxx(linker: Sequence[str], folder: Path, environment: Mapping[str, str]) -> Iterator[None]:
    """Link an empty library in ``folder`` during the body, so that zig builds libc++; kill the link at the end.

    Until then :func:`wait` waits in other processes. Does nothing if another build already builds libc++.
    """
    lock = _lock(environment) if lacks_libcxx(environment) else None
    if lock is None:
        yield
        return
    source = folder / "warm.cpp"
    try:
        source.write_text("")
        os.set_inheritable(lock, True)
        started = _start([*linker, str(source), "-o", str(source.with_suffix(".so"))], folder, environment)
        process = started.__enter__()
    finally:
        os.close(lock)  # the group's copy of the descriptor holds the lock
    with contextlib.ExitStack() as stack:
        stack.push(started.__exit__)
        yield
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


@contextmanager
def emulator_core(folder: Path, environment: Mapping[str, str]) -> Iterator[None]:
    """Compile the emulator's core during the body, if it is missing; wait for it at the end."""
    with _start(_CORE, folder, environment) as process:
        yield
        try:
            process.wait(_SILENT_SECONDS)
        except subprocess.TimeoutExpired:
            log.info("the emulator's core is still being compiled, which takes minutes, once")


def wait(environment: Mapping[str, str]) -> None:
    """Wait until no other process builds libc++, because zig would build it a second time."""
    file = _lock_file(environment)
    if file and file.is_file():
        with file.open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH)


def _start(
    command: Sequence[str], folder: Path, environment: Mapping[str, str]
) -> contextlib.AbstractContextManager[subprocess.Popen[str]]:
    return group(owned_command(command), cwd=folder, environment=environment, output=subprocess.DEVNULL)


def _lock_file(environment: Mapping[str, str]) -> Path | None:
    cache = environment.get(ZIG_CACHE)
    return Path(cache) / "libc++.lock" if cache else None


def _lock(environment: Mapping[str, str]) -> int | None:
    """Return the descriptor of the lock; None if another process holds it, or it can't be made."""
    file = _lock_file(environment)
    if file is None:
        return None
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        lock = open_lock(file)
        with contextlib.suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock
        os.close(lock)
    return None
