"""Calls of the driver's kind, as IREE and others make them. Expectations: HIP's manual and ROCm's clr."""

from __future__ import annotations

from pathlib import Path

import pytest

from programs.program_builder import sample
from programs.test_programs import output, run

INVALID_VALUE = "hipErrorInvalidValue"


def test_contexts_copies_and_objects(tmp_path: Path) -> None:
    file = tmp_path / "graph.dot"
    provoked = ("--checks", "all", "--quiet")  # it frees the middle of an allocation
    lines = output(sample("contexts"), file, options=provoked).decode().splitlines()
    assert lines == [
        *("devices hipSuccess", "retain_other hipErrorInvalidDevice", "pop_without_push hipErrorInvalidContext"),
        *("same 1", "uuid 1", f"rows {32 + 4} {32 + 11} {64 + 4}", "range 1 128 1", f"of_host {INVALID_VALUE}"),
        *(f"free_inside {INVALID_VALUE}", "with_exec 0", "without 1"),
    ]
    text = file.read_text()
    assert text.startswith("digraph")
    assert text.count("[label=") == 1


# ROCm reads the list up to the first number that no device has.
@pytest.mark.parametrize("variable", ["HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"])
@pytest.mark.parametrize(
    ("chosen", "visible"),
    [
        *(("0", True), ("", True), ("0,5", True), ("00", True)),
        *(("-1", False), ("3", False), ("7,0", False), ("x", False), ("0x", False), ("GPU-0", False)),
    ],
)
def test_devices_are_hidden_as_chosen(variable: str, chosen: str, visible: bool) -> None:
    lines = run(sample("contexts"), variables={variable: chosen}).stdout.decode().splitlines()
    assert lines[:2] == (
        ["devices hipSuccess", "retain_other hipErrorInvalidDevice"]
        if visible
        else ["devices hipErrorNoDevice", "malloc hipErrorNoDevice"]
    )


@pytest.mark.parametrize(("arch", "units"), [("gfx942", "304"), ("gfx950", "256")])
def test_compute_units_are_those_of_board(arch: str, units: str) -> None:
    """MI300X and MI350X (AMD's data sheets)."""
    answers = dict(
        line.split(" ", 1) for line in output(sample("queries"), options=("--arch", arch)).decode().splitlines()
    )
    assert answers["compute_units"] == units


# ---- pools, managed memory and streams; expectations come from HIP's documentation


def _pairs(*arguments: str) -> list[tuple[str, str]]:
    text = output(sample("memories"), *arguments).decode()
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in text.splitlines())]


def test_pools() -> None:
    assert _pairs("pools") == [
        *[("used", "1024"), ("freed", "0"), ("high", "1024"), ("reset", "0")],
        *[("high_mark", INVALID_VALUE), ("current", INVALID_VALUE), ("threshold", str(1 << 20)), ("reuse", "1")],
        *[("no_location", INVALID_VALUE), ("own", "100"), ("default_again", "1"), ("destroyed", INVALID_VALUE)],
        ("default", INVALID_VALUE),
    ]
    assert _pairs("twice") == [("twice", INVALID_VALUE)]


def test_use_after_hip_free_async_is_found() -> None:
    done = run(sample("memories"), "freed")
    assert done.stdout == b"after hipErrorIllegalAddress\n"
    assert b"freed before" in done.stderr


def test_managed_memory_and_variables() -> None:
    assert _pairs("managed") == [
        *[("counter", "42"), ("counter", "9")],
        ("location", "-2"),  # hipInvalidDeviceId: not set
        *[("location", "0"), ("read_mostly", "1"), ("read_mostly_partly", "0"), ("prefetched", "-1")],
    ]
    assert _pairs("refused") == [("too_long", INVALID_VALUE), ("device", "hipErrorInvalidDevice")]


def test_streams() -> None:
    """Priorities have bounds, values are written and waited for, and hipStreamPerThread is another stream."""
    done = run(sample("memories"), "streams")
    assert done.stdout.decode().splitlines() == [
        *["priority -1", "priority 0", "priority 1"],
        "never_written hipErrorNotSupported",
        *["seen 12", "nodes 1"],
        *["by_name hipErrorUnknown 0", "no_name hipErrorInvalidValue", "status 1"],
    ]
    assert "for want of these functions: hipStreamWaitValue32 (1 call)" in done.stderr.decode()
