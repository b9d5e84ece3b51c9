"""A signal to this process ends every program that it started and removes its container."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from ckpm.base.errors import SetupError
from ckpm.docker import running
from ckpm.docker.engines import Engine, Run
from tests.unit.docker.fake_engine import FakeEngine

ROOT = Path(__file__).parents[3]
ORDER = Run(image="i:1", command=["true"])
SIGNALS = [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)]

# Two processes that hold a pipe open and only end after a signal.
ENDLESS = "exec 3>{pipe}; sleep 1000 & echo started >&3; sleep 1000"
STUBBORN = "trap '' TERM; exec 3>{pipe}; echo started >&3; while :; do sleep 1000; done"
PROGRAM = """
import signal, sys
from ckpm.base.processes import ended_by_signals
from ckpm.docker import running
from ckpm.docker.engines import Engine, Run
from ckpm.base.entry import exit_code
for number in (signal.SIGHUP, signal.SIGINT):  # ignored where these tests run in the background
    signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
running._PATIENCE_SECONDS = {patience}
def command():
    with ended_by_signals():
        return {call}.returncode
sys.exit(exit_code(command))
"""


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


def start(call: str, patience: float = 10) -> subprocess.Popen[str]:
    program = PROGRAM.format(call=call, patience=patience)
    return subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stderr=subprocess.PIPE, text=True)


def script(text: str, pipe: Path) -> str:
    return f"running.call(['sh', '-c', {text.format(pipe=pipe)!r}])"


@pytest.mark.parametrize(
    ("program", "options", "number", "code"),
    [*((ENDLESS, {}, *ending) for ending in SIGNALS), (STUBBORN, {"patience": 0.1}, signal.SIGTERM, 143)],
)
def test_signal_ends_program_and_its_background_processes(
    pipe: Path, program: str, options: dict[str, float], number: signal.Signals, code: int
) -> None:
    """A program that ignores SIGTERM is killed."""
    with start(script(program, pipe), **options) as child, pipe.open() as stream:
        assert stream.readline() == "started\n"
        child.send_signal(number)
        assert stream.read() == ""  # no process has the other end
        assert child.wait() == code


class Podman:
    """A podman whose container runs until it is removed. Both commands write into a pipe when they start."""

    def __init__(self, folder: Path, pipe: Path) -> None:
        self.removed, self.proceed = folder / "removed", folder / "proceed"
        os.mkfifo(self.proceed)
        self.program = folder / "podman"
        self.program.write_text(
            f"#!/bin/sh\nif [ $1 = run ]; then echo running >{pipe}; exec sleep 1000; fi\n"
            f"echo removing >{pipe}; read -r word <{self.proceed}; echo $4$3 >{self.removed}\n"
        )
        self.program.chmod(0o755)

    def start(self) -> subprocess.Popen[str]:
        return start(f"running.run(Engine('podman', {str(self.program)!r}), Run(image='i', command=['true']))")


@pytest.fixture
def ends(pipe: Path) -> Iterator[IO[str]]:
    """Both ends of the pipe, so that it stays open between two writers."""
    with os.fdopen(os.open(pipe, os.O_RDWR), "r") as stream:
        yield stream


def test_container_is_removed_despite_more_signals(tmp_path: Path, pipe: Path, ends: IO[str]) -> None:
    podman = Podman(tmp_path, pipe)
    with podman.start() as child:
        assert ends.readline() == "running\n"
        child.terminate()
        assert ends.readline() == "removing\n"
        child.terminate()
        child.send_signal(signal.SIGINT)
        podman.proceed.write_text("go on\n")
        assert child.wait() in (130, 143)
    assert podman.removed.read_text().startswith("ckpm-")


@pytest.mark.parametrize("message", ["OCI runtime error: unable to start", "potentially insufficient UIDs or GIDs"])
def test_failure_of_engine_is_classified(tmp_path: Path, message: str) -> None:
    fake = FakeEngine(tmp_path, "podman", {"run": [(125, "", f"Error: {message}")]})
    with pytest.raises(SetupError, match=message):
        running.run(Engine("podman", str(fake.program)), ORDER, output=subprocess.PIPE)
    assert [call[0] for call in fake.calls()] == ["run", "rm"]


def test_exit_code_125_in_buildah_is_commands_own(tmp_path: Path) -> None:
    fake = FakeEngine(tmp_path, "buildah", {"run": [(125, "", "")]})
    assert running.run(Engine("buildah", str(fake.program)), ORDER, output=subprocess.PIPE).returncode == 125


def test_held_back_signals_arrive_after_block() -> None:
    reached = []

    def interrupt() -> None:
        with running.held_back():
            signal.raise_signal(signal.SIGINT)
            reached.append("the end of the block")

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            interrupt()
        assert reached
        assert signal.getsignal(signal.SIGINT) == signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
