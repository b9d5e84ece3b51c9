"""Cooperative launches: workgroups that wait for other workgroups, too many of them, and an endless wait."""

from __future__ import annotations

import numpy as np
import pytest

from programs.program_builder import ARCHS, sample
from programs.test_programs import output, run

GROUPS, THREADS, ROUNDS = 7, 128, 5


def _numbers(*arguments: str, options: tuple[str, ...] = ()) -> list[int]:
    return [int(line) for line in output(sample("cooperative"), *arguments, options=options).split()]


@pytest.mark.parametrize("options", [("--arch", ARCHS[0]), ("--arch", ARCHS[1], "--checks", "all"), ("--threads", "2")])
def test_barrier_of_grid(options: tuple[str, ...]) -> None:
    values = np.arange(GROUPS * THREADS, dtype=np.uint32).reshape(GROUPS, THREADS)
    for _ in range(ROUNDS):
        values = 3 * values + np.roll(values, -1, axis=0)
    assert _numbers("sum", options=options) == values.ravel().tolist()


def test_barrier_of_device_library() -> None:
    """A cooperative launch has the library's counter, an ordinary launch has not."""
    assert _numbers("library") == [1] * GROUPS + [1] + [GROUPS] * GROUPS


def test_launch_with_too_many_workgroups_is_refused() -> None:
    done = run(sample("cooperative"), "large", options=("--cus", "2"))
    assert done.stdout.decode().split() == ["hipErrorCooperativeLaunchTooLarge", "hipSuccess"]


@pytest.mark.parametrize("how", ["stuck", "spin"])
def test_endless_wait_is_reported(how: str) -> None:
    done = run(sample("cooperative"), how)
    assert done.stdout.decode().split() == ["hipErrorLaunchFailure"]
    assert "no wave of the launch gets any further" in done.stderr.decode()
