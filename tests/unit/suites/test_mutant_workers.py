"""Processes that test mutants: a crash or a hang counts as detected, and the other processes go on."""

from __future__ import annotations

import os
import signal
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from ckpm.base.errors import CheckFailedError, DeviceError
from tests.mutants.drawing import Mutant
from tests.mutants.trial import Setup, Trial
from tests.mutants.workers import results

SETUP = Setup(library=Path("unused"), arch="gfx950")


def mutants(*texts: str) -> list[Mutant]:
    return [Mutant(kernel="k", kind="wait", at=at, raw=0, text=text) for at, text in enumerate(texts)]


def obedient(pipe: Connection[Any, Any], setup: Setup) -> None:
    """Do what the text of a mutant names. Runs in a process of its own."""
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
            pipe.send(("failed", CheckFailedError("some/case fails without a mutant, too", kind="cases")))
        pipe.send(("trial", Trial(mutant=mutant, killed_by="sanitize")))


def stillborn(pipe: Connection[Any, Any], setup: Setup) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


@pytest.mark.parametrize("jobs", [1, 2])
def test_results_count_crash_and_hang_as_detected(jobs: int) -> None:
    planted = mutants("well", "crash", "well", "hang", "well")
    trials = {trial.mutant.at: trial for trial in results(SETUP, planted, jobs, obedient)}
    assert [trials[at].killed_by for at in range(5)] == ["sanitize", "crash", "sanitize", "hang", "sanitize"]
    assert trials[1].how == "some/case: ended with -11"
    assert trials[3].how == "some/case: took too long"


@pytest.mark.parametrize(
    ("texts", "process", "error", "message"),
    [
        (("well", "exit"), obedient, DeviceError, "not caused by a mutant"),
        (("well", "killed"), obedient, DeviceError, "not caused by a mutant"),
        (("well",), stillborn, DeviceError, "ended with -11"),
        (("failed",), obedient, CheckFailedError, "without a mutant"),
    ],
)
def test_results_raise_error_of_process(
    texts: tuple[str, ...], process: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        list(results(SETUP, mutants(*texts), 1, process))
