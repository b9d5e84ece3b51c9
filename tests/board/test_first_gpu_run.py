"""A first run on a GPU comes to its end and keeps each finished step, whatever fails."""

from __future__ import annotations

import ctypes
import lzma
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from ckpm.base.paths import IMPORTS
from tests.board.conftest import Machine
from tests.faults.test_full_disk import UNSHARE

Make = Callable[..., Machine]
FEW = ("--only", "build", "--only", "dispatch")
_PR_CAPBSET_DROP, _DAC_OVERRIDE, _DAC_READ_SEARCH = 24, 1, 2


def test_rehearsal_answers_each_question(make_machine: Make) -> None:
    machine = make_machine()
    run = machine.run()
    assert run.returncode == 0, run.stdout + run.stderr
    findings, endings = machine.findings(), machine.endings()
    assert findings.run.stand_in
    assert findings.context["clock_policy"] == "auto"
    never, timed = {"build-rocm", "batch-prefill-rocm"}, {"times", "v3-against-v2"}
    assert {name for name, ending in endings.items() if ending == "not run"} == never
    # the host's clock times an emulated launch: any verdict of the gate will do
    assert {ending for name, ending in endings.items() if name not in never | timed} == {"passed"}
    assert findings.gates.keys() == timed
    assert {files for step in findings.run.steps for files in step.files.values()} >= {
        "model/model-score.json", "counters/counters.json", "published/board-times.json",
    }  # fmt: skip
    assert "A stand-in took the place of the GPU" in run.stdout
    for section in ("## Times", "## Published problems", "## Error of the timing model (WMAPE)"):
        assert section in run.stdout
    assert "| all | 1 | " in run.stdout  # a published problem, measured and modelled
    (file,) = machine.folder.glob("work/*/*.tar.xz")
    sent = lzma.decompress(file.read_bytes()).decode()
    assert not [name for name in (machine.folder.name, str(IMPORTS), sys.prefix) if name in sent]
    again = machine.run()
    assert (again.returncode, again.stderr.count("earlier for the same inputs")) == (0, 11)


def test_calls_of_python_keep_their_plans_and_are_captured(make_machine: Make) -> None:
    machine = make_machine()
    assert machine.run("--only", "build").returncode == 0
    (work,) = machine.folder.glob("work/gfx950-*")
    environment = {**machine.environment(), "CKPM_ROCM": "1", "CKPM_LIBRARIES": str(work / "build")}
    calls = [sys.executable, "-P", "-m", "tests.board.calls"]
    ended = subprocess.run(calls, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "a captured call is replayed" in ended.stdout


def test_hung_queue_ends_step_at_its_limit_and_next_call_goes_on(make_machine: Make) -> None:
    machine = make_machine()
    assert machine.run("--only", "build").returncode == 0
    run = machine.run(*FEW, "--only", "published", planted="hang", minutes=0.4)
    assert run.returncode == 7, run.stderr
    assert "does not answer after gfx950/dispatch. Nothing was reset" in run.stderr
    assert "amd-smi reset --gpureset --gpu 0000:00:00.0" in run.stderr
    assert machine.endings()["build"] == "passed"
    machine.broken.unlink()
    assert machine.run(*FEW, "--only", "published").returncode == 0
    endings = machine.endings()
    assert (endings["dispatch"], endings["published"]) == ("ended at its time limit", "passed")


def test_lost_device_ends_run_and_next_call_repeats_its_step(make_machine: Make) -> None:
    machine = make_machine()
    run = machine.run(*FEW, planted="lost")
    assert (run.returncode, machine.endings()["dispatch"]) == (7, "the GPU failed")
    assert "Nothing was reset" in run.stderr
    machine.broken.unlink()
    assert machine.run(*FEW).returncode == 0
    assert machine.endings()["dispatch"] == "passed"


def test_step_that_is_killed_for_memory_runs_again(make_machine: Make) -> None:
    machine = make_machine()
    assert machine.run(*FEW, planted="killed").returncode == 0
    assert machine.endings()["dispatch"] == "killed, for memory or by somebody"
    assert machine.run(*FEW).returncode == 0
    assert machine.endings()["dispatch"] == "passed"


def test_full_disk_keeps_finished_steps(make_machine: Make) -> None:
    """The disk and the host's name are those of a namespace. The file has neither the name nor the path."""
    machine = make_machine()
    work = machine.folder / "work"
    work.mkdir()
    command = [*UNSHARE, "--uts", "sh", "-c", _SMALL_DISK, "-", str(work), *machine.command(*FEW, "--only", "doctor")]
    run = subprocess.run(
        command, env=machine.environment(), cwd=machine.folder, capture_output=True, text=True, check=False
    )
    if run.stderr.startswith("unshare"):
        pytest.skip("this system does not let a user mount a file system")
    assert [line for line in run.stdout.splitlines() if line.startswith("ended")] == ["ended: 10", "ended: 0"], run
    assert "Free some space; then run the same command" in run.stderr
    assert "project/doctor: passed earlier for the same inputs" in run.stderr
    (file,) = machine.folder.glob("*.tar.xz")
    sent = lzma.decompress(file.read_bytes()).decode()
    assert not [name for name in ("zorglub", machine.folder.name) if name in sent]


_SMALL_DISK = """
echo zorglub > /proc/sys/kernel/hostname
work=$1; shift
mount -t tmpfs -o size=800k none "$work"
"$@"; echo "ended: $?"
mount -o remount,size=100m "$work"
"$@"; echo "ended: $?"
cp "$work"/*/*.tar.xz .
"""


def test_wrong_kernel_is_shown_beside_emulator(make_machine: Make) -> None:
    machine = make_machine()
    run = machine.run("--only", "build", "--only", "batch-prefill", "--only", "published", planted="wrong")
    assert run.returncode == 0, run.stderr
    findings = machine.findings()
    wrong = [case.name for case in findings.suites["batch-prefill"].failing]
    assert wrong
    assert {findings.beside[name].status for name in wrong[:20]} == {"passed"}
    assert "otherwise: " in run.stdout
    assert findings.times is not None
    assert "1 of 32 rows of O, the first of sequence 0, head 0, query 0" in findings.times.rows[0].reason
    assert machine.endings()["published"] == "a check failed"


def test_sensor_that_cannot_be_read_is_left_out(make_machine: Make) -> None:
    machine = make_machine()
    sensor = machine.system / "sys/devices/0000:00:00.0/hwmon/hwmon0/temp2_input"
    sensor.unlink()
    sensor.mkdir()
    assert machine.run("--only", "board").returncode == 0
    assert "temperature" not in machine.findings().context


def test_board_of_another_arch_is_refused(make_machine: Make) -> None:
    machine = make_machine("gfx942")
    run = machine.run("--arch", "gfx950")
    assert run.returncode == 7
    assert "no GPU of arch gfx950: there are gfx942" in run.stderr
    assert not list(machine.folder.glob("work/*/*.tar.xz"))


def test_first_board_of_another_arch_is_left_alone(make_machine: Make) -> None:
    """The stand-in refuses what a thread does that has not chosen the second board, which "stuck" shows."""
    machine = make_machine("gfx942", "gfx950")
    stuck = machine.run("--arch", "gfx950", "--only", "board", planted="stuck")
    assert (stuck.returncode, "hipErrorInvalidDevice" in stuck.stderr) == (7, True), stuck.stderr
    run = machine.run("--arch", "gfx950", *FEW, planted="second")
    assert run.returncode == 0, run.stderr
    assert machine.endings()["dispatch"] == "passed"
    context = machine.findings().context
    assert (context["arch"], context["archs"]) == ("gfx950", "gfx942, gfx950")
    assert int(context["memory"]) > 1


def test_user_without_permission_is_refused(make_machine: Make) -> None:
    machine = make_machine()
    (machine.system / "dev/kfd").chmod(0)

    def obey_modes() -> None:  # also if the test runs as root
        for capability in (_DAC_OVERRIDE, _DAC_READ_SEARCH):
            ctypes.CDLL(None).prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)

    run = machine.run(prepare=obey_modes)
    assert run.returncode == 7
    assert "add the user to the groups render and video" in run.stderr


def test_half_a_rocm_fails_its_own_steps_alone(make_machine: Make) -> None:
    machine = make_machine()
    compiler = machine.rocm / "bin/hipcc"
    compiler.parent.mkdir()
    compiler.write_text("#!/bin/sh\nexit 1\n")
    compiler.chmod(0o755)
    assert machine.run(*FEW, "--only", "build-rocm", "--only", "batch-prefill-rocm").returncode == 0
    endings = machine.endings()
    assert endings["build-rocm"].startswith("exit code ")
    assert (endings["batch-prefill-rocm"], endings["dispatch"]) == ("not run", "passed")


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGKILL], ids=["interrupt", "power-loss"])
def test_ended_run_keeps_finished_steps(make_machine: Make, ending: signal.Signals) -> None:
    machine = make_machine()
    with subprocess.Popen(
        machine.command(*FEW), env=machine.environment("hang"), cwd=machine.folder, stderr=subprocess.PIPE, text=True
    ) as process:
        while not machine.broken.exists() and process.poll() is None:
            time.sleep(0.1)
        process.send_signal(ending)
        process.wait()
    machine.broken.unlink()
    run = machine.run(*FEW)
    assert (run.returncode, machine.endings()["dispatch"]) == (0, "passed")
    assert "gfx950/build: passed earlier for the same inputs" in run.stderr
