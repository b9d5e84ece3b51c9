"""What the first build on a machine would wait for later, made while it compiles: zig's libc++, which takes a minute on
one processor and is needed by the first link, and the emulator's core.

Both run in process groups that end with the build, whatever ends that. Nothing depends on them: what fails here is
made, and explained, where it is needed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from .processes import end_with_owner, group

ZIG_CACHE = "ZIG_GLOBAL_CACHE_DIR"  # of a toolchain's environment, if it is zig's
_CORE = (sys.executable, "-P", "-m", "ckpm_emulator", "core")


def lacks_libcxx(environment: Mapping[str, str]) -> bool:
    """Whether the first link with a toolchain of this environment builds libc++."""
    cache = environment.get(ZIG_CACHE)
    return bool(cache) and not any(Path(str(cache)).glob("o/*/libc++.a"))


@contextmanager
def libcxx(linker: Sequence[str], folder: Path, environment: Mapping[str, str]) -> Iterator[None]:
    """Link an empty library in ``folder`` meanwhile, for the sake of what zig builds first; killed at the end.

    Until then :func:`wait` waits in other processes. If another build is at it, it is left to that.
    """
    lock = _lock(environment) if lacks_libcxx(environment) else None
    if lock is None:
        yield
        return
    source = folder / "warm.cpp"
    try:
        source.write_text("")
        os.set_inheritable(lock, True)
        started = _started([*linker, str(source), "-o", str(source.with_suffix(".so"))], folder, environment)
        process = started.__enter__()
    finally:
        os.close(lock)  # its copy in the group holds it
    with contextlib.ExitStack() as stack:
        stack.push(started.__exit__)
        yield
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


@contextmanager
def emulator_core(folder: Path, environment: Mapping[str, str]) -> Iterator[None]:
    """Compile the emulator's core meanwhile, if it isn't there; the end waits for it."""
    with _started(_CORE, folder, environment):
        yield


def wait(environment: Mapping[str, str]) -> None:
    """Wait until nobody builds libc++ beside a build: zig would build it a second time. Raises OSError."""
    file = _lock_file(environment)
    if file and file.is_file():
        with file.open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH)


def _started(
    command: Sequence[str], folder: Path, environment: Mapping[str, str]
) -> contextlib.AbstractContextManager[subprocess.Popen[str]]:
    return group([sys.executable, "-P", "-m", "ckpm.base.warming", *command], cwd=folder, environment=environment)


def _lock_file(environment: Mapping[str, str]) -> Path | None:
    cache = environment.get(ZIG_CACHE)
    return Path(cache) / "libc++.lock" if cache else None


def _lock(environment: Mapping[str, str]) -> int | None:
    """The descriptor of the lock; None if somebody has it, or there can be none."""
    file = _lock_file(environment)
    if file is None:
        return None
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(file, os.O_RDWR | os.O_CREAT, 0o666)
        with contextlib.suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock
        os.close(lock)
    return None


def main(argv: Sequence[str]) -> None:
    """Run a command that ends with the owner of this process; its words are for nobody."""
    *command, owner = argv
    stopping = threading.Event()
    end_with_owner(int(owner.removeprefix("owner=")), stopping.set)
    if not stopping.is_set():
        subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False
        )


if __name__ == "__main__":
    main(sys.argv[1:])
