"""Programs of an engine, and commands in containers: whatever ends this process, nothing that it started goes on.

Each program is a session of its own (setsid): a terminal's Ctrl-C reaches this process alone, and the processes that a
chroot of buildah leaves behind are known by their session. Containers of docker and podman live apart from the client
that asked for them, and are removed by name. Only after a SIGKILL to this process does a container go on until its
command ends.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import IO

from ckpm.base.processes import handled_by
from ckpm.docker.engines import Engine, Run, run_commands
from ckpm.docker.errors import ContainerStartError
from ckpm.docker.failures import of_build, of_engine

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PATIENCE_SECONDS = 10  # after SIGTERM: mmdebstrap removes its temporary folder
_LOOK_SECONDS = 1
_ENGINE_FAILED = 125  # what docker and podman end with if not the command but they themselves failed


def call(
    command: Sequence[str], *, output: int | IO[str] | None = None, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; if an exception ends us first, all of its session is ended before that goes on.

    ``output`` takes standard output and errors: subprocess.PIPE keeps them apart, a file has both, None is our own.
    Main thread only. Raises OSError: it can't be started.
    """
    errors = output if output is None or output == subprocess.PIPE else subprocess.STDOUT
    process = None
    try:
        with held_back():
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, env=environment, text=True,
                errors="replace", start_new_session=True,
            )  # fmt: skip
        said, complained = _words_until_the_end(process)
    except BaseException:
        if process is not None:
            with held_back(), process:
                _end(process)
        raise
    return subprocess.CompletedProcess(command, process.returncode, said, complained)


def run(engine: Engine, order: Run, *, output: int | None = None) -> subprocess.CompletedProcess[str]:
    """A command in a new container, which is gone afterwards. ``output`` as for :func:`call`.

    Raises:
        ContainerStartError, ImageBuildError, EngineMissingError, EnginePermissionError, DiskFullError: the engine
        failed, and not the command.
    """
    name = f"ckpm-{uuid.uuid4().hex[:12]}"
    commands, cleanup = run_commands(engine, order, name)
    try:
        for command in commands[:-1]:
            done = call(command, output=subprocess.PIPE)
            if done.returncode:
                raise of_build(done.stderr, order.image, "no log")
        done = call(commands[-1], output=output)
    finally:
        with held_back():
            call(cleanup, output=subprocess.PIPE)
    if done.returncode == _ENGINE_FAILED and engine.name != "buildah":
        said = (done.stderr or "").strip()
        raise of_engine(said) or ContainerStartError(
            f"{engine.name} could not run a container of {order.image}: {said or 'it says why above'}. Mend that, or "
            "take another engine with --engine."
        )
    return done


@contextmanager
def held_back() -> Iterator[None]:
    """Signals that would end this process arrive at the end of the block. Main thread only."""
    came: list[int] = []

    def keep(number: int, frame: FrameType | None) -> None:
        came.append(number)

    with handled_by(keep, *_ENDING):
        yield
    if came:
        signal.raise_signal(came[0])


def _words_until_the_end(process: subprocess.Popen[str]) -> tuple[str, str]:
    """What it says on standard output and errors.

    Not in one wait: a signal that comes just before the system's wait begins would be heeded only when that is over.
    """
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.communicate(timeout=_LOOK_SECONDS)


def _end(process: subprocess.Popen[str]) -> None:
    """End a program and everything of its session."""
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_PATIENCE_SECONDS)
    end = time.monotonic() + _PATIENCE_SECONDS
    while (left := _session(process.pid)) and time.monotonic() < end:
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)  # the kernel takes them away one after the other


def _session(leader: int) -> list[int]:
    """Processes of a session that still run. proc(5): after the name in brackets: state, parent, group, session."""
    members = []
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, session, *_ = file.read_text(errors="replace").rpartition(")")[2].split()
        except OSError:  # it ended meanwhile
            continue
        if int(session) == leader and state not in "ZX":
            members.append(int(file.parent.name))
    return members
