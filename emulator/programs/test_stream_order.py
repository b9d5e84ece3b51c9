"""Operations of two streams without an order are reported; each way to order them, and what needs none, passes."""

from __future__ import annotations

import pytest

from programs.program_builder import sample
from programs.test_programs import output, run

FIRST = "kernel set(int*, int) on stream 1"


@pytest.mark.parametrize(
    ("how", "first", "second"),
    [
        ("kernels", FIRST, "kernel add(int*, int) on stream 2"),
        ("unwaited", FIRST, "kernel add(int*, int) on stream 2"),
        ("copy", FIRST, "hipMemcpyAsync on stream 2"),
        ("fill", FIRST, "hipMemsetAsync on stream 2"),
        ("zeros", "kernel sum_up(int const*, int*) on stream 1", "hipMemcpyAsync on stream 2"),
        ("allocated", "hipMallocAsync on stream 1", "kernel set(int*, int) on stream 2"),
        ("freed", "kernel set(int*, int) on stream 2", "hipFreeAsync on stream 1"),
        ("forked", "kernel add(int*, int) in a graph", "kernel add(int*, int) in a graph"),
        ("nonblocking", "kernel add(int*, int) on the default stream", "kernel add(int*, int) on stream 2"),
    ],
)
def test_operations_in_no_order_are_reported(how: str, first: str, second: str) -> None:
    for options in (("--checks", "stream_order"), ("--checks", "all"), ("--checks", "all", "--quiet")):
        done = run(sample("streams"), how, options=options)
        (report,) = done.stderr.decode().splitlines()
        assert done.returncode == 8
        assert report.startswith(f"emulator: stream_order: {second} and {first} use 0x")
        assert how == "freed" or "(byte 0 of allocation " in report


def test_host_that_does_not_wait_is_reported() -> None:
    for checks in ("stream_order", "all"):
        done = run(sample("streams"), "early", options=("--checks", checks))
        (report,) = done.stderr.decode().splitlines()
        assert (done.returncode, done.stdout) == (8, b"5\n5\n")
        assert report.startswith("emulator: stream_order: the host used 0x")
        assert report.endswith(f"(byte 28 of allocation 3) without having waited for {FIRST}")
    for how in ("late", "told"):
        assert output(sample("streams"), how, options=("--checks", "all,leaks")) == b"5\n5\n"


@pytest.mark.parametrize(
    "how", ["event", "host", "query", "default", "halves", "reads", "atomics", "same", "graph", "pool", "joined"]
)
def test_operations_in_order_pass(how: str) -> None:
    output(sample("streams"), how, options=("--checks", "all,leaks"))
