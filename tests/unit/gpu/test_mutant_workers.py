"""Processes that try mutants: one that dies or takes too long is how its mutant was seen, and the others go on."""

from __future__ import annotations

import os
import signal
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from tests.gpu.errors import CasesFailedError, WorkerStartError
from tests.mutants import workers
from tests.mutants.drawing import Mutant
from tests.mutants.trial import Setup, Tried
from tests.mutants.workers import results

SETUP = Setup(library=Path("unused"), arch="gfx950")


def mutants(*texts: str) -> list[Mutant]:
    return [Mutant(kernel="k", kind="wait", at=at, raw=0, text=text) for at, text in enumerate(texts)]


def obedient(pipe: Connection[Any, Any], setup: Setup) -> None:
    """In a process of its own: does what a mutant's text says."""
    pipe.send(("ready", None))
    while True:
        mutant = pipe.recv()
        pipe.send(("case", ("some/case", 0.2 if mutant.text in ("hang", "busy") else 60.0)))
        if mutant.text == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        if mutant.text == "hang":
            signal.pause()
        if mutant.text == "busy":
            begun = time.process_time()
            while time.process_time() < begun + 1.0:
                pass
        if mutant.text == "exit":
            os._exit(3)
        if mutant.text == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if mutant.text == "failed":
            pipe.send(("failed", CasesFailedError("some/case is not in order without a mutant either")))
        pipe.send(("tried", Tried(mutant=mutant, killed_by="sanitize")))


def stillborn(pipe: Connection[Any, Any], setup: Setup) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_crash_and_a_hang_count_as_seen_and_end_nothing(jobs: int) -> None:
    asked = mutants("well", "crash", "well", "hang", "well")
    fates = {fate.mutant.at: fate for fate in results(SETUP, asked, jobs, obedient)}
    assert [fates[at].killed_by for at in range(5)] == ["sanitize", "crash", "sanitize", "hang", "sanitize"]
    assert fates[1].how == "some/case: ended with -11"
    assert fates[3].how == "some/case: took too long"


@pytest.mark.parametrize(("starved", "fate"), [(False, "hang"), (True, "sanitize")])
def test_time_that_others_had_the_processor_does_not_count(
    starved: bool, fate: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if starved:
        monkeypatch.setattr(workers, "_processor_seconds", lambda pid: (0.0, "R"))
    assert [one.killed_by for one in results(SETUP, mutants("busy"), 1, obedient)] == [fate]


@pytest.mark.parametrize("how", ["exit", "killed"])
def test_an_end_that_no_mutant_causes_ends_the_run(how: str) -> None:
    with pytest.raises(WorkerStartError, match="which no mutant did"):
        list(results(SETUP, mutants("well", how), 1, obedient))


def test_a_process_that_does_not_start_ends_the_run() -> None:
    with pytest.raises(WorkerStartError, match="ended with -11"):
        list(results(SETUP, mutants("well"), 1, stillborn))


def test_a_failure_in_a_process_is_the_run_s() -> None:
    with pytest.raises(CasesFailedError, match="without a mutant"):
        list(results(SETUP, mutants("failed"), 1, obedient))
