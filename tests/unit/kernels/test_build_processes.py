"""Whatever ends a build ends its compilers, and no second build writes into the folder before that."""

from __future__ import annotations

import dataclasses
import fcntl
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ckpm.base.errors import MemoryLimitError, ProcessLimitError
from ckpm.base.paths import PROJECT
from ckpm.base.processes import build_lock
from ckpm.kernels.code.toolchains import Toolchain
from ckpm.kernels.library import building
from ckpm.kernels.library.request import BuildRequest, scons_command

Make = Callable[..., BuildRequest]
Stub = Callable[..., Toolchain]


@dataclasses.dataclass(frozen=True)
class Running:
    """A build's process, the group of SCons and its compilers, a pipe that all of them hold, the build's lock."""

    pid: int
    group: int
    pipe: int
    lock: Path


@pytest.fixture
def running(stub_toolchain: Stub, request_for: Make, tmp_path: Path) -> Iterator[Running]:
    """A build in a child process with two compilers that never end."""
    read_end, write_end = os.pipe()
    os.set_inheritable(write_end, True)
    endless = f"#!/bin/sh\necho $$ > /proc/self/fd/{write_end}\nexec sleep 1000\n"
    request = request_for(stub_toolchain(text=endless))
    child = os.fork()
    if child == 0:
        code = 1
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # ignored if these tests run under nohup
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.dup2(os.open(tmp_path / "stderr", os.O_WRONLY | os.O_CREAT, 0o666), 2)
        try:
            building.run(request, jobs=2)
        except KeyboardInterrupt:
            code = 130
        except SystemExit as end:
            code = int(str(end.code))
        finally:
            os._exit(code)
    os.close(write_end)
    started = b""
    while started.count(b"\n") < 2:
        more = os.read(read_end, 100)
        assert more, "the build ended"
        started += more
    lock = request.work / request.folder / ".lock"
    yield Running(pid=child, group=os.getpgid(int(started.split()[0])), pipe=read_end, lock=lock)
    os.close(read_end)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_signal_to_us_alone_ends_all(running: Running, number: signal.Signals, code: int, tmp_path: Path) -> None:
    os.kill(running.pid, number)
    assert os.waitstatus_to_exitcode(os.waitpid(running.pid, 0)[1]) == code
    data = b"?"
    while data:  # closed: none of them is left. One that started meanwhile may have said so before it was ended
        assert select.select([running.pipe], [], [], 0)[0]
        data = os.read(running.pipe, 100)
    message = "" if number == signal.SIGINT else f"error: ended by {number.name}; run the same command again to go on\n"
    assert (tmp_path / "stderr").read_text() == message


def test_killed_build_holds_lock_until_its_compilers_end(running: Running) -> None:
    os.killpg(running.group, signal.SIGSTOP)
    os.kill(running.pid, signal.SIGKILL)
    os.waitpid(running.pid, 0)
    with running.lock.open("r+") as file:
        with pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.killpg(running.group, signal.SIGCONT)
        fcntl.flock(file, fcntl.LOCK_EX)
        # the last one is ending and may close its lock before its pipe; a compiler that was left would never close it
        data = b"?"
        while data:
            assert select.select([running.pipe], [], [], 20)[0]
            data = os.read(running.pipe, 100)


def test_waiting_for_another_build_is_logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "build/.lock"
    messages: list[str] = []
    other = build_lock(file)
    other.__enter__()

    def say(text: str) -> None:
        messages.append(text)
        other.__exit__(None, None, None)

    monkeypatch.setattr("ckpm.base.processes.log.info", say)
    with build_lock(file):
        assert messages == [f"waiting for another run in {file.parent} (process {os.getpid()})"]


@pytest.mark.parametrize(
    ("text", "message"), [(None, "can't be read as a plan of a build: "), ("{}", "the file: field 'folder' is missing")]
)
def test_sconstruct_without_plan_reports_it(tmp_path: Path, text: str | None, message: str) -> None:
    if text is not None:
        (tmp_path / "nope").write_text(text)
    command = [sys.executable, "-m", "SCons", "-f", str(PROJECT / "SConstruct"), "-Q", "plan=nope"]
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 2
    assert run.stdout.startswith(f"error: nope: {message}")
    assert "Traceback" not in run.stdout + run.stderr


# What a limit of processes does to SCons: the third of its threads can't be started.
LIMIT = """
import threading
start, begun = threading.Thread.start, []
def limited(thread):
    if type(thread).__name__ == "Worker":
        begun.append(thread)
        if len(begun) == 3:
            raise RuntimeError("can't start new thread")
    start(thread)
threading.Thread.start = limited
import runpy
runpy.run_module("SCons", run_name="__main__", alter_sys=True)
"""


def test_limit_of_threads_ends_build_with_message(
    stub_toolchain: Stub, request_for: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def limited_command(*arguments: Any) -> list[str]:
        command = scons_command(*arguments)
        assert command[2:4] == ["-m", "SCons"]
        return [*command[:2], "-c", LIMIT, *command[4:]]

    monkeypatch.setattr(building, "scons_command", limited_command)
    request = request_for(stub_toolchain(text="#!/bin/sh\nexec sleep 1000\n"))  # else one thread could be enough
    with pytest.raises(ProcessLimitError, match=r"the system allows no further process .*fewer at once with -j"):
        building.run(request, jobs=4)


@pytest.mark.parametrize("message", ["LLVM ERROR: out of memory", "zig: error: unable to execute command: Killed"])
def test_compiler_without_memory_raises_limit_error(stub_toolchain: Stub, request_for: Make, message: str) -> None:
    request = request_for(stub_toolchain(text=f"#!/bin/sh\necho '{message}'; exit 1\n"), where=("key.logits",))
    with pytest.raises(MemoryLimitError, match=r"not enough memory .*ulimit -v\)\. Allow more, or take less .*-j 1"):
        building.run(request, jobs=2)


def test_compiler_that_meets_process_limit_raises_limit_error(stub_toolchain: Stub, request_for: Make) -> None:
    limited = "#!/bin/sh\necho 'zig: error: posix_spawn failed: Resource temporarily unavailable'; exit 1\n"
    request = request_for(stub_toolchain(text=limited), where=("key.logits",))
    with pytest.raises(ProcessLimitError, match="compilers could not be started; what is compiled is kept"):
        building.run(request, jobs=2)
