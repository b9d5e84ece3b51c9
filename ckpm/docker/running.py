"""Run programs of an engine and commands in containers, and end all of them with this process.

Each program has a session of its own (setsid). A terminal's Ctrl-C then reaches this process alone, and processes in a
chroot of buildah can be found by their session. Containers of docker and podman are not children of the client, so
they are removed by name. A SIGKILL to this process leaves a container running until its command ends.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shlex
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import IO

from ckpm.base.errors import SetupError
from ckpm.base.processes import handled_by, session_members
from ckpm.docker.engines import ContainerRun, Engine, run_commands
from ckpm.docker.failures import of_build, of_engine

log = logging.getLogger(__name__)
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PATIENCE_SECONDS = 10  # after SIGTERM: mmdebstrap removes its temporary folder
_LOOK_SECONDS = 1
_ENGINE_FAILED = 125  # exit code of docker and podman if the engine failed, not the command


def call(
    command: Sequence[str], *, output: int | IO[str] | None = None, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end. An exception meanwhile ends every process of its session first.

    ``output``: subprocess.PIPE separates output and errors, a file gets both, None is our own. Main thread only.
    """
    errors = output if output is None or output == subprocess.PIPE else subprocess.STDOUT
    log.debug(f"running {shlex.join(command)}")
    process = None
    try:
        with held_back():
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, env=environment, text=True,
                errors="replace", start_new_session=True,
            )  # fmt: skip
        text, error_text = _communicate(process)
    except BaseException:
        if process is not None:
            with held_back(), process:
                _end(process)
        raise
    return subprocess.CompletedProcess(command, process.returncode, text, error_text)


def run(engine: Engine, order: ContainerRun, *, output: int | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command in a new container and remove the container. ``output`` as for :func:`call`.

    A failure of the engine raises; the command's exit code is in the result.
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
        message = (done.stderr or "").strip()
        raise of_engine(message) or SetupError(
            f"{engine.name} could not run a container of {order.image}: {message or 'see above'}. Correct that, or "
            "choose another engine with --engine.",
            kind="container",
        )
    return done


@contextmanager
def held_back() -> Iterator[None]:
    """Delay signals that would end this process until the end of the block. Main thread only."""
    came: list[int] = []

    def keep(number: int, frame: FrameType | None) -> None:
        came.append(number)

    with handled_by(keep, *_ENDING):
        yield
    if came:
        signal.raise_signal(came[0])


def _communicate(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Standard output and errors of a process.

    Waits are short, because Python handles a signal that comes just before a wait only at its end.
    """
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.communicate(timeout=_LOOK_SECONDS)


def _end(process: subprocess.Popen[str]) -> None:
    """End a program and all processes of its session."""
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_PATIENCE_SECONDS)
    end = time.monotonic() + _PATIENCE_SECONDS
    while left := session_members(process.pid):
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > end:
            break
        time.sleep(0.05)  # the kernel removes them one after the other
