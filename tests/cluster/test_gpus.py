"""Each process of a worker with several GPUs has a GPU of its own."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from ckpm.base.errors import SetupError
from ckpm.base.processes import own_environment
from ckpm.cluster import cases
from ckpm.cluster.identity import Identity
from ckpm.cluster.session import Session
from ckpm.matrix.problems.tables import problems
from ckpm.suites.suites import Case

CASE = Case(problem=problems("dispatch", "smoke")[0])
SAME = Identity(text="", commit="", toolchain="", upstream="")


@pytest.mark.parametrize(
    ("count", "variables", "expected"),
    [
        (0, {}, ()),
        (1, {"HIP_VISIBLE_DEVICES": "2,3"}, ()),  # the process takes the first GPU of its arch, as on one machine
        (4, {}, ["0", "1", "2", "3"]),
        (4, {"ROCR_VISIBLE_DEVICES": "4,5,6,7"}, ["0", "1", "2", "3"]),  # HIP counts what ROCr shows
        (2, {"HIP_VISIBLE_DEVICES": "5,7", "CUDA_VISIBLE_DEVICES": "0"}, ["5", "7"]),
        (2, {"CUDA_VISIBLE_DEVICES": "5,7,1"}, ["5", "7"]),
    ],
)
def test_visible_gpus_are_those_of_the_worker(count: int, variables: Mapping[str, str], expected: Any) -> None:
    assert cases.visible_gpus(count, variables) == expected


def test_worker_with_more_gpus_than_it_shows_is_refused() -> None:
    with pytest.raises(
        SetupError, match=r"GPU=4, and its HIP_VISIBLE_DEVICES=5,7 shows 2: start it with --resources GPU=2"
    ):
        cases.visible_gpus(4, {"HIP_VISIBLE_DEVICES": "5,7"})


@pytest.fixture
def run_cases(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[dict[str, str]]]:
    """``run_cases(device, gpus, at_once, count)`` runs cases on a worker; the variables of each case's process."""
    variables: list[dict[str, str]] = []

    def call(device: str, gpus: int, at_once: int, count: int) -> list[dict[str, str]]:
        together, keys = threading.Barrier(at_once), itertools.count()

        class Process:
            """A process whose cases end when ``at_once`` of them run."""

            alive = True

            def __init__(self, command: Any, environment: Mapping[str, str], *more: Any) -> None:
                self.environment = own_environment(environment)

            def run(self, case: Case) -> dict[str, Any]:
                variables.append(self.environment)
                together.wait(60)
                return {"outcome": "passed"}

            def kill(self) -> None:
                """Do nothing."""

        session = Session("s")
        session.setup(SimpleNamespace(state=SimpleNamespace(tasks=())))
        monkeypatch.setattr(cases, "session_here", lambda name: session)
        monkeypatch.setattr(cases, "task_here", lambda: (f"k{next(keys)}", "w"))
        monkeypatch.setattr(cases, "resource_here", lambda name: gpus)
        monkeypatch.setattr(cases, "_demand_same", lambda setup, worker: None)
        monkeypatch.setattr(cases, "Worker", Process)
        setup = cases.Setup(
            session="s", process={"device": device}, environment={"CKPM_V3": "0"}, library="", library_sha256="",
            client=SAME,
        )  # fmt: skip
        with ThreadPoolExecutor(at_once) as threads:
            replies = [threads.submit(cases.run_case, setup, CASE) for _ in range(count)]
        assert all(reply.result()["outcome"] == "passed" for reply in replies)
        return variables

    return call


def test_cases_at_once_have_different_gpus(
    run_cases: Callable[..., list[dict[str, str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "3,5,6")
    gpus = [variables["HIP_VISIBLE_DEVICES"] for variables in run_cases("hip", 3, 3, 6)]
    assert [sorted(gpus[:3]), sorted(gpus[3:])] == [["3", "5", "6"]] * 2


@pytest.mark.parametrize(("device", "gpus"), [("hip", 1), ("emulator", 4)])
def test_process_without_a_choice_keeps_the_variable(
    run_cases: Callable[..., list[dict[str, str]]], monkeypatch: pytest.MonkeyPatch, device: str, gpus: int
) -> None:
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "3,5,6")
    assert [variables["HIP_VISIBLE_DEVICES"] for variables in run_cases(device, gpus, 1, 2)] == ["3,5,6"] * 2


def test_process_has_the_clients_choice_of_v3(
    run_cases: Callable[..., list[dict[str, str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CKPM_V3", "1")  # of the worker
    assert [variables["CKPM_V3"] for variables in run_cases("emulator", 0, 1, 1)] == ["0"]
