"""A build on many machines has the bytes of a build on one machine, also after the loss of a worker.

It leaves no process running, and refuses workers of another commit, toolchain or upstream. The compiler is a stub that
copies; test_real_kernels.py uses the real one.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from ckpm.base.errors import CompileError, InconclusiveError, ServiceError, SetupError
from ckpm.cluster.compiling import CompiledStep, Recipe
from ckpm.cluster.identity import BuildSources, project
from ckpm.cluster.remote_steps import RemoteBuild, RemoteSteps
from ckpm.kernels.library.plan import BuildStep
from tests.cluster.machines import Compiler, Machines, is_alive, machines
from tests.unit.shared import Run, copy_rooms

RECIPE = Recipe(sources=BuildSources(toolchain="rocm", upstream="aiter"), archs=(), families=(), identity=project())
UNITS, HOST = 4, 2  # of the selection in conftest.py
VARYING = ("cluster.json", ".lock", ".built", ".sconsign.signed")  # with addresses, times or a key


def take_files(work: Path) -> dict[str, bytes]:
    """Contents of a build's files by name. The folder is deleted, so that the next build has the same paths."""
    folder = work / "build/gfx950/aiter"
    files = (file for file in folder.rglob("*") if file.is_file() and file.name not in VARYING)
    held = {str(file.relative_to(folder)): file.read_bytes() for file in files}
    shutil.rmtree(work)
    return held


def meanwhile(action: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=action, daemon=True)  # it waits for ever in a failing test
    thread.start()
    return thread


def exit_code_after(number: signal.Signals, command: Callable[[], int]) -> int:
    """The exit code of a command that ends by a signal."""
    if number == signal.SIGINT:
        before = signal.signal(number, signal.default_int_handler)  # a shell's background job ignores it
        try:
            return command()
        finally:
            signal.signal(number, before)
    with pytest.raises(SystemExit) as end:
        command()
    assert isinstance(end.value.code, int)
    return end.value.code


def test_two_workers_make_bytes_of_one_machine(there: Machines, build: Run, compiler: Compiler, tmp_path: Path) -> None:
    code, shown, _ = build("work", "--scheduler", there.address, "--no-cache")
    assert code == 0
    assert {worker for worker, _ in compiler.compiles()} == {"w1", "w2"}
    assert f"4 kernels in {UNITS} units, 2 workers with 2 threads" in shown
    assert "6 compiled (4 kernels), 0 from the cache, linked, manifest written" in shown
    assert " on w1" in shown
    assert " on w2" in shown
    many = take_files(tmp_path / "work")
    assert build("work", "--no-cache")[0] == 0
    assert compiler.compiles()[UNITS + HOST :] == [("here", name) for _, name in compiler.compiles()[UNITS + HOST :]]
    assert sum(name.endswith(".o") for name in many) == UNITS + HOST
    assert take_files(tmp_path / "work") == many


def test_killed_worker_costs_second_compile_only(
    there: Machines, build: Run, compiler: Compiler, tmp_path: Path
) -> None:
    compiler.hold_one()
    lost: list[tuple[str, int]] = []

    def kill() -> None:
        lost.append(compiler.wait_for_held())
        there.kill(lost[0][0])

    thread = meanwhile(kill)
    code, shown, _ = build("work", "--scheduler", there.address, "--no-cache")
    assert (code, "6 compiled" in shown) == (0, True)
    thread.join()
    assert not is_alive(lost[0][1]), "the lost worker's compiler goes on"
    sources = [source for _, source in compiler.compiles()]
    assert len(sources) == UNITS + HOST + 1, "one source was compiled twice"
    assert len(set(sources)) == UNITS + HOST
    many = take_files(tmp_path / "work")
    assert build("work", "--no-cache")[0] == 0
    assert take_files(tmp_path / "work") == many


def test_unit_that_kills_its_workers_is_reported(
    there: Machines, build: Run, compiler: Compiler, tmp_path: Path
) -> None:
    there.start("w3", "--no-nanny")  # two of three die
    (compiler.folder / "deadly").write_text("dispatch")
    code, _, err = build("work", "--scheduler", there.address, "--no-cache")
    assert (code, "dispatch: 2 workers died while they had it" in err) == (InconclusiveError.exit_code, True)
    assert [source for _, source in compiler.compiles()].count("dispatch.hip") == 2
    assert not (tmp_path / "work/build/gfx950/aiter/libckpm.so").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_cancelled_build_ends_its_processes(
    there: Machines, build: Run, compiler: Compiler, number: signal.Signals
) -> None:
    compiler.hold_one()
    held: list[int] = []

    def interrupt() -> None:
        held.append(compiler.wait_for_held()[1])
        os.kill(os.getpid(), number)

    thread = meanwhile(interrupt)
    code = exit_code_after(number, lambda: build("work", "--scheduler", there.address, "--no-cache")[0])
    assert code == 128 + number
    thread.join()
    assert not is_alive(held[0])
    assert there.tasks() == 0
    code, shown, _ = build("work", "--scheduler", there.address, "--no-cache")
    assert (code, "linked, manifest written" in shown) == (0, True)


def test_objects_of_workers_go_into_cache(there: Machines, build: Run, compiler: Compiler) -> None:
    assert build("work", "--scheduler", there.address)[0] == 0
    code, shown, _ = build("one")
    assert (code, "0 compiled (0 kernels), 6 from the cache" in shown) == (0, True)
    assert build("again", "--scheduler", there.address)[0] == 0
    assert len(compiler.compiles()) == UNITS + HOST


def test_compile_error_is_that_of_one_machine(there: Machines, build: Run, compiler: Compiler) -> None:
    (compiler.folder / "broken").write_text("harness")
    code, _, many = build("work", "--scheduler", there.address, "--no-cache")
    other_code, _, alone = build("work", "--no-cache")
    assert (code, many) == (other_code, alone)
    assert code == CompileError.exit_code
    assert "harness: hipcc ended with 1" in many
    assert "error: no such thing" in many


def copy_of_project(folder: Path) -> Path:
    """Copy this project, with one more comment in a file of a room."""
    copy_rooms(folder)
    file = folder / "ckpm/kernels/families/render.py"
    file.write_text(file.read_text() + "# changed\n")
    return folder


def test_worker_of_another_commit_is_refused(there: Machines, build: Run, compiler: Compiler, tmp_path: Path) -> None:
    there.start("foreign", "--no-nanny", root=copy_of_project(tmp_path / "other"))
    try:
        code, _, printed = build("work", "--scheduler", there.address)
    finally:
        there.kill("foreign")
    assert code == SetupError.exit_code
    texts = re.findall(r"worker (\w+) \(tcp://[^)]+\): text: the client's (\w+), the worker's (\w+)", printed)
    assert [(name, client == project().text, client != worker) for name, client, worker in texts] == [
        ("foreign", True, True)
    ]
    assert compiler.compiles() == []


def test_worker_with_another_toolchain_is_refused(
    there: Machines, build: Run, compiler: Compiler, tmp_path: Path
) -> None:
    other = Compiler.make(tmp_path / "newer")
    hipcc = other.folder / "bin/hipcc"
    hipcc.write_text(hipcc.read_text().replace("HIP version: 9.9", "HIP version: 10.0"))
    there.start("newer", "--no-nanny", ROCM_PATH=str(other.folder))
    try:
        code, _, printed = build("work", "--scheduler", there.address)
    finally:
        there.kill("newer")
    assert code == SetupError.exit_code
    assert "the client's rocm hipcc HIP 9.9 clang 9.9.9, the worker's rocm hipcc HIP 10.0 clang 9.9.9" in printed


def test_later_worker_of_another_commit_is_refused(
    there: Machines, build: Run, compiler: Compiler, tmp_path: Path
) -> None:
    """The worker joins while a unit is held, after the comparison of the other workers."""
    other = copy_of_project(tmp_path / "other")
    compiler.hold_one()

    def join() -> None:
        holder, _ = compiler.wait_for_held()
        present = sorted(there.workers, key=lambda name: name == holder)  # with w3, if it outlived its test
        there.start("late", "--no-nanny", root=other)
        for name in present:  # the holder last: the unit must not move to another worker of this commit
            there.kill(name)

    thread = meanwhile(join)
    code, _, err = build("work", "--scheduler", there.address, "--no-cache")
    assert (code, "worker late: text: the client's" in err) == (SetupError.exit_code, True)
    thread.join()
    there.kill("late")


def test_missing_scheduler_fails(build: Run, compiler: Compiler) -> None:
    code, _, err = build("work", "--scheduler", "tcp://127.0.0.1:1")
    assert (code, "no Dask scheduler answers at tcp://127.0.0.1:1" in err) == (ServiceError.exit_code, True)


def test_scheduler_without_workers_fails(
    environment: Path, build: Run, compiler: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ckpm.cluster.connection.PATIENCE_SECONDS", 4.0)
    with machines(environment / "local", {}) as empty:
        code, _, err = build("work", "--scheduler", empty.address)
    assert (code, f"dask worker {empty.address}" in err) == (ServiceError.exit_code, True)


def test_full_disk_here_is_not_failure_of_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check the message from which the build recognizes a full disk."""
    steps = RemoteSteps(None, RemoteBuild(scheduler="", credentials="", session="", recipe=RECIPE))
    monkeypatch.setattr(steps, "_compile", lambda step: CompiledStep(0, "", b"object", "w1"))
    step = BuildStep(kind="unit", target="/dev/full", sources=("a.hip",), argv=(), signature="", label="a")
    ran = steps.execute(step, {})
    assert (ran.code, ran.refused) == (1, 0)
    assert "/dev/full can't be written: [Errno 28] No space left on device" in ran.output
