"""A suite on two workers has the results of one process, also after the loss of a worker.

The smoke tier's library comes from the user's object cache if it is there. The comparison leaves out seconds, and
addresses and numbers of allocations in faults, because they depend on earlier cases of a process. Everything else must
have the same bytes.
"""

from __future__ import annotations

import dataclasses
import os
import re
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ckpm import commands as cli
from ckpm.base.errors import ServiceError, SetupError
from ckpm.base.records import as_text
from ckpm.base.results import CaseResult, Results
from tests.cluster.machines import ROOT, Machines, is_alive, machines
from tests.cluster.test_builds import copy_of_project, exit_code_after
from tests.unit.shared import Run

SECONDS = re.compile(r' time="[^"]*"')
ADDRESS = re.compile(r'0x[0-9a-f]+|allocation \d+|(?:address|base|id)(?:"|&quot;): \d+')


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the smoke tier's library for gfx950."""
    folder = tmp_path_factory.mktemp("work")
    assert cli.main(["build", "--toolchain", "embedded", "--work", str(folder)]) == 0
    return folder


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    with machines(tmp_path_factory.mktemp("local"), {}) as there:
        yield there


@pytest.fixture
def suite_run(work: Path, run: Run) -> Run:
    """``suite_run("dispatch", OUTPUT)`` runs a suite on the emulator."""

    def call(suite: str, output: Path, *options: str) -> tuple[int, str, str]:
        device = [] if "--device" in options else ["--device", "emulator"]
        places = ("--work", work, "--output", output)
        return run("test", "--suite", suite, *places, *device, *options, "--upstream", "aiter")

    return call


def comparable(file: Path) -> tuple[bytes, str]:
    """Results and their JUnit without times, addresses and numbers of allocations."""
    results = Results.read(file)
    cases = [comparable_case(case) for case in results.cases]
    junit = ADDRESS.sub("@", SECONDS.sub("", file.with_suffix(".xml").read_text()))
    return as_text({"facts": dict(results.facts), "cases": cases}), junit


def comparable_case(case: CaseResult) -> dict[str, object]:
    fault = case.fault
    if fault:
        near = dataclasses.replace(fault.nearest, base=0, id=0) if fault.nearest else None
        fault = dataclasses.replace(fault, address=None, nearest=near, message=ADDRESS.sub("@", fault.message))
    message, text = ADDRESS.sub("@", case.message), ADDRESS.sub("@", case.text)
    return dataclasses.asdict(dataclasses.replace(case, seconds=0.0, fault=fault, message=message, text=text))


@pytest.mark.parametrize("suite", ["page-fault", "dispatch"])
def test_two_workers_give_results_of_one_process(there: Machines, suite_run: Run, tmp_path: Path, suite: str) -> None:
    assert suite_run(suite, tmp_path / "one.json", "--jobs", "1")[0] == 0
    code, out, _ = suite_run(suite, tmp_path / "many.json", "--scheduler", there.address)
    assert (code, "2 workers with 2 threads" in out) == (0, True)
    assert len(Results.read(tmp_path / "one.json").cases) > 5
    assert comparable(tmp_path / "one.json") == comparable(tmp_path / "many.json")
    assert there.tasks() == 0
    assert suite_processes(there) == []


def test_comparison_finds_difference(there: Machines, suite_run: Run, tmp_path: Path) -> None:
    assert suite_run("dispatch", tmp_path / "one.json", "--scheduler", there.address)[0] == 0
    results = Results.read(tmp_path / "one.json")
    first = dataclasses.replace(results.cases[0], kernel="another")
    dataclasses.replace(results, cases=(first, *results.cases[1:])).write(tmp_path / "other.json")
    shutil.copy(tmp_path / "one.xml", tmp_path / "other.xml")
    assert comparable(tmp_path / "one.json") != comparable(tmp_path / "other.json")


def suite_processes(there: Machines) -> list[int]:
    """Running processes of ckpm/suites/worker.py whose parents are workers."""
    parents = {str(process.pid) for process in there.workers.values()}
    pids = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
            parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
        except OSError:  # it has ended
            continue
        if "ckpm.suites.worker" in arguments and parent in parents and is_alive(int(folder.name)):
            pids.append(int(folder.name))
    return pids


def on_first_case(there: Machines, monkeypatch: pytest.MonkeyPatch, action: object) -> list[object]:
    """Call ``action`` after the first reply, while other cases run."""
    from ckpm.suites import suites

    judge = suites.judge
    seen: list[object] = []

    def act_and_judge(*arguments: object) -> object:
        if not seen:
            seen.append(suite_processes(there))
            action()  # type: ignore[operator]
        return judge(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(suites, "judge", act_and_judge)
    return seen


def test_killed_worker_changes_no_result(
    there: Machines, suite_run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert suite_run("page-fault", tmp_path / "one.json")[0] == 0
    on_first_case(there, monkeypatch, lambda: there.kill("w2"))
    assert suite_run("page-fault", tmp_path / "many.json", "--scheduler", there.address)[0] == 0
    assert comparable(tmp_path / "one.json") == comparable(tmp_path / "many.json")


def test_cancelled_suite_ends_its_processes(
    there: Machines, suite_run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = on_first_case(there, monkeypatch, lambda: os.kill(os.getpid(), signal.SIGTERM))
    command = ("page-fault", tmp_path / "many.json", "--scheduler", there.address)
    assert exit_code_after(signal.SIGTERM, lambda: suite_run(*command)[0]) == 128 + signal.SIGTERM
    assert seen[0], "no process ran when the signal came"
    assert suite_processes(there) == []
    assert there.tasks() == 0


def test_killed_client_leaves_no_process(there: Machines, work: Path, tmp_path: Path) -> None:
    options = ["--suite", "page-fault", "--device", "emulator", "--upstream", "aiter", "--work", str(work)]
    options += ["--output", str(tmp_path / "many.json"), "--scheduler", there.address]
    client = subprocess.Popen([sys.executable, "-m", "ckpm", "test", *options], cwd=ROOT, stdout=subprocess.DEVNULL)
    while not (processes := suite_processes(there)):
        assert client.poll() is None, "it ended before its processes were seen"
    os.kill(processes[0], signal.SIGSTOP)  # the run can't end
    client.kill()
    client.wait()
    wait_for_end(processes[0])
    assert there.tasks() == 0


def wait_for_end(process: int) -> None:
    """Wait for the end of a process that is not a child."""
    try:
        descriptor = os.pidfd_open(process)
    except ProcessLookupError:
        return
    try:
        assert select.select([descriptor], [], [], 60)[0], f"{process} goes on"
    finally:
        os.close(descriptor)


def test_worker_of_another_commit_runs_no_case(there: Machines, suite_run: Run, tmp_path: Path) -> None:
    there.start("foreign", "--no-nanny", root=copy_of_project(tmp_path / "other"))
    try:
        code, _, err = suite_run("dispatch", tmp_path / "many.json", "--scheduler", there.address)
    finally:
        there.kill("foreign")
    assert code == SetupError.exit_code
    assert re.search(r"worker foreign \(.*\): text: the client's \w+, the worker's \w+", err)


def test_gpu_cases_go_to_workers_with_gpu(there: Machines, suite_run: Run, tmp_path: Path) -> None:
    """Without a GPU here, the case reaches the worker with the resource GPU and can't start there."""
    options = ("--device", "hip", "--scheduler", there.address, "--case", "*", "--device", "hip")
    code, _, err = suite_run("dispatch", tmp_path / "many.json", *options)
    assert (code, "has a GPU" in err) == (ServiceError.exit_code, True)
    there.start("with-gpu", "--no-nanny", "--resources", "GPU=1")
    try:
        code, _, err = suite_run("dispatch", tmp_path / "many.json", *options)
    finally:
        there.kill("with-gpu")
    assert (code != 0, "worker with-gpu: " in err) == (True, True)
