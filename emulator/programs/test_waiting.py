"""Ordinary launches whose waves wait for other waves or workgroups, as on a GPU with room for all of them."""

from __future__ import annotations

import pytest

from programs.program_builder import ARCHS, sample
from programs.test_programs import run


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
