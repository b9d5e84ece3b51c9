"""A worker that dies, hangs or writes nonsense costs its own case and no other, and the reply names the reason."""

from __future__ import annotations

import io
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from ckpm.base.errors import DeviceError, ProblemError, RefusedError, UsageError
from ckpm.base.rocm_places import gpu_archs
from ckpm.matrix.problems.case import SuiteCase
from ckpm.suites.checks import RESULTS
from ckpm.suites.pool import Worker, WorkerPool, classify_exit
from ckpm.suites.suites import Case
from ckpm.suites.worker import serve

PROJECT = Path(__file__).resolve().parents[3]

# Does what the case's name describes.
FAKE = r"""
import json, os, signal, sys, time
def answer(reply):
    print(json.dumps(reply), flush=True)
start = sys.argv[1] if len(sys.argv) > 1 else ""
if start == "slow": time.sleep(0.3)
if start == "dies": sys.exit("no such device /dev/nonsense")
if start == "hangs": sys.stderr.write("half way\n"); sys.stderr.flush(); time.sleep(60)
if start == "refuses": answer({"refused": "built for gfx90a", "exit_code": 6}); sys.exit(0)
if start.startswith("once:"):
    if os.path.exists(start[5:]): sys.exit("gone")
    open(start[5:], "w").close()
answer({"ready": {"device": "fake"}})
for line in sys.stdin:
    word = json.loads(line)["case"].split("/")[1].split(".")[0]
    if word.startswith("sig"): os.kill(os.getpid(), getattr(signal, word.upper()))
    if word == "gpu":
        sys.stderr.write("Memory access fault by GPU node-1 on address 0x7f00.\n"); sys.stderr.flush()
        os.abort()
    if word == "full": sys.stderr.write("HSA_STATUS_ERROR_OUT_OF_RESOURCES\n"); sys.stderr.flush(); os.abort()
    if word == "exit": sys.stderr.write("bad end\n"); sys.stderr.flush(); os._exit(3)
    if word == "hang": time.sleep(60)
    if word == "lost": answer({"outcome": "fault", "message": str(os.getpid()), "last": True}); continue
    if word == "garbage": print("printf of a library", flush=True); continue
    if word == "noresult": answer({"outcome": "maybe"}); continue
    if word == "list": answer([1]); continue
    answer({"outcome": "passed", "message": str(os.getpid())})
"""


class Quick(Case):
    """A case whose time is short."""

    @property
    def seconds(self) -> float:
        return 0.5 if "hang" in self.name else 20.0


class Long(Case):
    """A case that is begun first and may take long."""

    @property
    def seconds(self) -> float:
        return 50.0


def case(word: str) -> Case:
    return Quick(problem=SuiteCase(name=f"dispatch/{word}", suite="dispatch", tier="smoke", group="x"))


def pool(start: str = "", size: int = 1, seconds: float = 20.0) -> WorkerPool:
    command = (sys.executable, "-S", "-c", FAKE, *([start] if start else []))
    return WorkerPool(command=command, size=size, environment={}, start_seconds=seconds)


def replies(results: Any) -> dict[str, Mapping[str, Any]]:
    return {done.name.partition("/")[2]: reply for done, reply in results}


@pytest.mark.parametrize(
    ("word", "outcome", "message"),
    [
        ("sigsegv", "fault", "the worker crashed with SIGSEGV"),
        ("gpu", "fault", "Memory access fault by GPU node-1 on address 0x7f00. (worker ended with SIGABRT)"),
        ("full", "infrastructure", "the worker ended with SIGABRT"),
        ("sigkill", "infrastructure", "the worker ended with SIGKILL: the system may be out of memory"),
        ("exit", "infrastructure", "the worker ended with exit code 3"),
        ("hang", "timeout", "no result after 0 s"),
        ("noresult", "infrastructure", "the worker's answer can't be read: no result: {'outcome': 'maybe'}"),

    ],
)  # fmt: skip
def test_end_of_worker_is_result_of_its_case_and_next_runs(word: str, outcome: str, message: str) -> None:
    by_case = replies(pool().run([case(word), case("fine")]))
    assert (by_case[word]["outcome"], by_case[word]["message"]) == (outcome, message)
    assert by_case["fine"]["outcome"] == "passed"


def test_worker_that_lost_its_gpu_is_replaced() -> None:
    by_case = replies(pool().run([case("lost"), case("fine")]))
    assert [by_case[word]["outcome"] for word in ("lost", "fine")] == ["fault", "passed"]
    assert by_case["lost"]["message"] != by_case["fine"]["message"]  # their processes


def test_garbage_is_reported_and_its_worker_is_given_up() -> None:
    by_case = replies(pool().run([case("garbage"), case("fine")]))
    assert by_case["garbage"]["outcome"] == "infrastructure"
    assert by_case["garbage"]["message"].startswith("the worker's answer can't be read: Expecting value")
    assert by_case["fine"]["outcome"] == "passed"


def test_last_words_are_those_of_case_alone() -> None:
    by_case = replies(pool().run([case("exit"), case("sigsegv")]))
    assert by_case["exit"]["lines"] == ["bad end"]
    assert by_case["sigsegv"]["lines"] == []


def test_workers_are_warm() -> None:
    by_case = replies(pool("slow").run([case(f"fine.{number}") for number in range(5)]))
    assert len({reply["message"] for reply in by_case.values()}) == 1
    assert all(reply["elapsed"] < 0.3 for reply in by_case.values())


def test_several_workers_share_cases_and_lose_none() -> None:
    names = [f"fine.{number}" for number in range(20)] + ["sigsegv", "exit"]
    by_case = replies(pool(size=3).run([case(name) for name in names]))
    assert set(by_case) == set(names)
    assert sum(reply["outcome"] == "passed" for reply in by_case.values()) == 20


def test_interrupted_run_waits_for_no_case() -> None:
    started = time.monotonic()
    run = pool(size=2).run([Long(problem=case("hang").problem), case("fine")])
    assert next(run)[1]["outcome"] == "passed"
    run.close()  # type: ignore[attr-defined]
    assert time.monotonic() - started < 10


def test_interrupted_run_ends_worker_that_is_starting(monkeypatch: pytest.MonkeyPatch) -> None:
    starting, ready, codes = threading.Event(), Worker._ready, []

    def start(worker: Worker, seconds: float) -> Any:
        if threading.current_thread() is threading.main_thread():
            return ready(worker, seconds)  # of the first worker
        starting.set()
        codes.append(worker._process.wait(seconds))
        raise EOFError

    monkeypatch.setattr(Worker, "_ready", start)
    monkeypatch.setattr(Worker, "run", lambda *_: {"outcome": "passed" if starting.wait(60) else "timeout"})
    run = pool(size=2).run([case("fine.1"), case("fine.2")])
    next(run)
    run.close()  # type: ignore[attr-defined]
    assert codes == [-signal.SIGKILL]


def test_worker_that_cannot_start_ends_run_with_its_output() -> None:
    with pytest.raises(DeviceError, match=r"ended with exit code 1 before its first case.*/dev/nonsense"):
        list(pool("dies").run([case("fine")]))
    with pytest.raises(DeviceError, match="gave no answer in time"):
        list(pool("hangs", seconds=0.2).run([case("fine")]))


def test_slow_start_of_worker_is_logged(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr("ckpm.suites.pool._LOG_SECONDS", 0.1)
    with pytest.raises(DeviceError, match="gave no answer in time"):
        list(pool("hangs", seconds=0.4).run([case("fine")]))
    lines = caplog.messages
    assert len(lines) == 3
    assert "has been starting for 0 s (limit 0 s)" in lines[0]
    assert "; its last words: half way" in lines[-1]


def test_refusal_keeps_its_exit_code() -> None:
    with pytest.raises(RefusedError, match="built for gfx90a") as caught:
        list(pool("refuses").run([case("fine")]))
    assert caught.value.exit_code == 6


def test_cases_are_not_lost_when_no_worker_starts_any_more(tmp_path: Path) -> None:
    by_case = replies(
        pool(f"once:{tmp_path / 'started'}").run([case("sigsegv"), *(case(f"fine.{n}") for n in range(3))])
    )
    assert by_case["sigsegv"]["outcome"] == "fault"
    assert {by_case[f"fine.{number}"]["outcome"] for number in range(3)} == {"infrastructure"}
    assert "gone" in by_case["fine.0"]["message"]
    assert by_case["fine.2"]["message"] == "not run, workers no longer start"


def test_every_signal_has_class() -> None:
    outcomes = {number: classify_exit(-number, "")["outcome"] for number in signal.Signals}
    assert set(outcomes.values()) == {"fault", "infrastructure"}
    assert set(outcomes.values()) <= set(RESULTS)
    assert classify_exit(-99, "")["message"] == "the worker ended with signal 99"


# ---- the worker's own loop


def serve_requests(start: Any, *requests: Mapping[str, Any]) -> tuple[int, list[Any]]:
    out = io.StringIO()
    code = serve([json.dumps(request) for request in requests], out, start)
    return code, [json.loads(line) for line in out.getvalue().splitlines()]


def test_runner_that_raises_gives_no_verdict_on_kernel() -> None:
    def run(request: Mapping[str, Any]) -> Mapping[str, Any]:
        if request["case"] == "known":
            raise ProblemError("sequence 0 names page -1")
        raise ZeroDivisionError("ours")

    code, (ready, known_reply, other_reply) = serve_requests(
        lambda: ({"device": "fake"}, run), {"case": "known"}, {"case": "x"}
    )
    assert (code, ready) == (0, {"ready": {"device": "fake"}})
    assert (known_reply["outcome"], known_reply["message"]) == ("infrastructure", "sequence 0 names page -1")
    assert other_reply["message"] == "ZeroDivisionError: ours"
    assert any("ZeroDivisionError" in line for line in other_reply["lines"])


def test_serve_after_last_reply_ends() -> None:
    run = {"one": {"outcome": "fault", "last": True}, "two": {"outcome": "passed", "last": False}}
    served = serve_requests(
        lambda: ({}, lambda request: run[request["case"]]), {"case": "two"}, {"case": "one"}, {"case": "two"}
    )
    assert served == (0, [{"ready": {}}, run["two"], run["one"]])


def test_start_that_fails_is_refused_with_its_exit_code() -> None:
    def start() -> Any:
        raise UsageError("no such device")

    assert serve_requests(start) == (2, [{"refused": "no such device", "exit_code": 2}])


def test_absent_gpu_is_refusal_of_real_worker() -> None:
    setup = {"device": "hip", "arch": "gfx950", "library": "x", "manifest": "x", "threads": 1, "hazards": False}
    if gpu_archs():
        pytest.skip("there is a GPU")
    run = subprocess.run(
        [sys.executable, "-m", "ckpm.suites.worker", json.dumps(setup)],
        env={**os.environ, "PYTHONPATH": str(PROJECT), "ROCM_PATH": "/nowhere"},
        input="", capture_output=True, text=True,
    )  # fmt: skip
    reply = json.loads(run.stdout)
    assert run.returncode == reply["exit_code"] == 7
    assert "libamdhip64.so is nowhere where the loader looks" in reply["refused"]


def test_gpu_archs_are_read_from_driver(tmp_path: Path) -> None:
    for number, text in enumerate(
        ("gfx_target_version 0", "gfx_target_version 90402", "gfx_target_version 90010", "x")
    ):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "properties").write_text(f"cpu_cores_count 8\n{text}\n")
    assert gpu_archs(tmp_path) == ("gfx942", "gfx90a")


# A worker that is compiling the emulator's core: its compiler holds the pipe whose number it is given.
COMPILING = r"""
import subprocess, sys
from ckpm.suites.worker import end_with_pool
end_with_pool()
pipe = int(sys.argv[1])
subprocess.Popen(["sleep", "1000"], pass_fds=[pipe])
print('{"ready": {}}', flush=True)
sys.stdin.read()
subprocess.run(["sleep", "1000"])
"""


@pytest.fixture
def compiling() -> Iterator[tuple[int, list[str]]]:
    """The end of a pipe that closes when the last process has ended, and the command of a worker that holds it."""
    read_end, write_end = os.pipe()
    os.set_inheritable(write_end, True)
    yield read_end, [sys.executable, "-c", COMPILING, str(write_end)]
    os.close(read_end)


def nobody_holds(pipe: int) -> bool:
    return bool(select.select([pipe], [], [], 60)[0]) and os.read(pipe, 1) == b""


def test_worker_and_its_compilers_end_with_killed_pool(compiling: tuple[int, list[str]]) -> None:
    pipe, command = compiling
    holder = int(command[-1])
    worker = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, pass_fds=[holder], cwd=PROJECT
    )
    os.close(holder)
    assert worker.stdin
    assert worker.stdout
    assert worker.stdout.readline()
    worker.stdin.close()  # all that a worker sees of a killed pool
    assert worker.wait(60) == -signal.SIGKILL
    assert nobody_holds(pipe)
    worker.stdout.close()


def test_worker_that_is_stopped_leaves_no_compiler(
    compiling: tuple[int, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe, command = compiling
    popen = subprocess.Popen
    holder = int(command[-1])
    monkeypatch.setattr(subprocess, "Popen", lambda *args, **options: popen(*args, **options, pass_fds=[holder]))
    worker = Worker(command, {"PYTHONPATH": str(PROJECT)}, 60)
    os.close(holder)
    assert worker.stop() == -signal.SIGKILL
    assert nobody_holds(pipe)
