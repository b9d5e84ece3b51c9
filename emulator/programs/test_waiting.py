"""Waves that wait for other waves or workgroups, as on a GPU with room for all: ordinary and cooperative launches."""

from __future__ import annotations

import numpy as np
import pytest

from programs.program_builder import ARCHS, sample
from programs.test_programs import output, run


def _lines(*arguments: str, options: tuple[str, ...] = ()) -> list[str]:
    return run(sample("waiting"), *arguments, options=options).stdout.decode().split()


@pytest.mark.parametrize(
    "options", [("--arch", ARCHS[0]), ("--arch", ARCHS[1], "--checks", "all", "--threads", "4"), ("--threads", "3")]
)
@pytest.mark.parametrize("how", ["later", "counted", "looks"])
def test_workgroups_wait_for_last_one(how: str, options: tuple[str, ...]) -> None:
    assert _lines(how, "9", options=options) == ["hipSuccess", *(str(1000 + group) for group in range(9))]


@pytest.mark.parametrize("options", [(), ("--checks", "all")])
def test_waves_wait_for_later_wave_of_workgroup(options: tuple[str, ...]) -> None:
    """Each of four waves adds one to the value of the next wave, so that the first one reads 1003."""
    assert _lines("waves", "2", options=options) == ["hipSuccess", "1003", "1003"]


def test_barrier_of_grid_that_fits() -> None:
    """A compute unit has room for eight workgroups of four waves."""
    assert _lines("all", "8", options=("--cus", "1")) == ["hipSuccess", *["8"] * 8]


def test_barrier_of_too_large_grid_is_reported() -> None:
    """A GPU hangs in this launch: the ninth workgroup starts after the end of another one."""
    done = run(sample("waiting"), "all", "9", options=("--cus", "1"))
    assert done.stdout.decode().split() == ["hipErrorLaunchFailure"]
    assert "the device holds 8 of these workgroups at once, and 1 have not started" in done.stderr.decode()


def test_endless_wait_is_reported() -> None:
    done = run(sample("waiting"), "never", "4")
    assert done.stdout.decode().split() == ["hipErrorLaunchFailure"]
    assert "no wave of the launch gets any further" in done.stderr.decode()
    assert "workgroup (1, 0, 0)" in done.stderr.decode()


def test_endless_loop_around_barrier_is_reported() -> None:
    done = run(sample("waiting"), "meets", "2")
    assert done.stdout.decode().split() == ["hipErrorLaunchFailure"]
    assert "no wave of the launch gets any further" in done.stderr.decode()


# ---- cooperative launches

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
def test_endless_wait_of_cooperative_launch_is_reported(how: str) -> None:
    done = run(sample("cooperative"), how)
    assert done.stdout.decode().split() == ["hipErrorLaunchFailure"]
    assert "no wave of the launch gets any further" in done.stderr.decode()
