"""Pools, managed memory and streams of HIP programs. Expectations come from HIP's documentation."""

from __future__ import annotations

from programs.program_builder import sample
from programs.test_programs import output, run

INVALID = "hipErrorInvalidValue"


def _pairs(*arguments: str) -> list[tuple[str, str]]:
    text = output(sample("memories"), *arguments).decode()
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in text.splitlines())]


def test_pools() -> None:
    assert _pairs("pools") == [
        *[("used", "1024"), ("freed", "0"), ("high", "1024"), ("reset", "0")],
        *[("high_mark", INVALID), ("current", INVALID), ("threshold", str(1 << 20)), ("reuse", "1")],
        *[("no_location", INVALID), ("own", "100"), ("default_again", "1"), ("destroyed", INVALID)],
        ("default", INVALID),
    ]
    assert _pairs("twice") == [("twice", INVALID)]


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
    assert _pairs("refused") == [("too_long", INVALID), ("device", "hipErrorInvalidDevice")]


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
