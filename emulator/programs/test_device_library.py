"""Programs whose kernels ask the host by ROCm's own library for devices: printf, assert, malloc, functions.

What they print is compared with the C library's printf, or with what Python makes of it.
"""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from programs.program_builder import ARCHS, sample
from programs.test_programs import output, run

SLAB = 2 << 20  # of the heap; the host allocates blocks of more than 3072 bytes


@pytest.mark.parametrize("arch", ARCHS)
def test_kernel_prints_like_host(arch: str) -> None:
    """Host and device run the same statements. The count of bytes is printf's result."""
    printed = output(sample("printing"), "device", options=("--arch", arch))
    assert printed == output(sample("printing"), "host")
    body, _, _ = printed.rpartition(b"end\n")
    *lines, count = body.splitlines(keepends=True)
    assert count == b"%d bytes\n" % len(b"".join(lines))
    assert len(lines) > 12


def lines_of(workgroup: int) -> list[str]:
    """The lines of the odd threads of 130."""
    first = [f"workgroup {workgroup} thread {thread}" for thread in range(1, 130, 2)]
    return first + [f"{len(first[thread // 2]) + 1} bytes for {thread} of {workgroup}" for thread in range(1, 130, 4)]


@pytest.mark.parametrize("threads", ["1", "4"])
def test_active_lanes_print_in_order(threads: str) -> None:
    *printed, end = output(sample("printing"), "lanes", options=("--threads", threads)).decode().splitlines()
    assert end == "end"
    assert sorted(printed) == sorted(line for workgroup in range(3) for line in lines_of(workgroup))
    for workgroup in range(3):
        for wave in range(3):
            threads_of = range(64 * wave + 1, min(64 * wave + 64, 130), 2)
            wanted = [f"workgroup {workgroup} thread {thread}" for thread in threads_of]
            assert [line for line in printed if line in set(wanted)] == wanted


def test_strings_of_any_length_are_printed() -> None:
    """A packet has 56 bytes for each lane. The host receives count, string and thread in one message."""
    lengths = [0, 1, 46, 47, 48, 49, 54, 55, 56, 57, 63, 64, 111, 112, 113, 1000, 9999]
    *lines, end = output(sample("printing"), "strings", *map(str, lengths)).decode().splitlines()
    assert end == "end"
    texts = ["".join(chr(97 + left % 26) for left in range(length, 0, -1)) for length in lengths]
    assert sorted(lines) == sorted(f"{len(text)}:{text}:{thread}" for thread, text in enumerate(texts))


def test_kernel_prints_formats_unlike_host() -> None:
    lines = output(sample("printing"), "odd").decode().splitlines()
    # A null pointer is an empty string, %n writes nothing, and a format can be an address.
    assert lines == ["null .", "count 5", "by address 6, 7", "77", "end"]


def test_printing_into_buffer() -> None:
    """Clang's other form: the host prints after the kernel, and printf returns 0."""
    program = sample("printing", "-mprintf-kind=buffered")
    body, _, _ = output(sample("printing"), "host").rpartition(b"end\n")
    *lines, _ = body.splitlines(keepends=True)
    assert output(program, "device") == b"".join([*lines, b"0 bytes\n", b"end\n"])
    # The buffer cannot contain a null pointer, so this print ends there.
    assert output(program, "odd") == b"null count 5\nby address 6, 7\n77\nend\n"
    *printed, _ = output(program, "lanes", options=("--threads", "4")).decode().splitlines()
    assert sorted(line for line in printed if "bytes" not in line) == sorted(
        line for workgroup in range(3) for line in lines_of(workgroup) if "bytes" not in line
    )


@pytest.mark.parametrize("checks", ["poison,late_loads,hazards", "uninitialised,lds_races"])
def test_checks_accept_library(checks: str) -> None:
    options = ("--checks", checks, "--threads", "1")
    assert output(sample("printing"), "device", options=options) == output(sample("printing"), "host")
    assert output(sample("heap"), "blocks", options=options).count(b"failed 0\n") == 3


@pytest.mark.parametrize("arch", ARCHS)
def test_failed_assertion_is_printed_and_ends_launch(arch: str) -> None:
    done = run(sample("host_calls"), "check", options=("--arch", arch, "--threads", "1"))
    *printed, error = done.stdout.decode().splitlines()
    assert error == "hipErrorLaunchFailure"
    assert printed == ["workgroup 0"] * 64 + ["workgroup 1"] * 64
    message, _, report = done.stderr.decode().partition("\n")
    assert re.fullmatch(r".*host_calls\.hip:\d+: .*values\[.*\] == 0.*", message)  # HIP's headers have another text
    assert "trap fault: the kernel ended itself: abort(), a failed assert or a trap" in report
    assert "workgroup (1, 0, 0) wave 0" in report


# Compiled with and without subnormal f32.
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("level", ["-O0", "-O2"])
@pytest.mark.parametrize("flush", [False, True])
def test_functions_have_promised_precision(arch: str, level: str, flush: bool) -> None:
    subnormals = "-fgpu-flush-denormals-to-zero" if flush else "-fno-gpu-flush-denormals-to-zero"
    arguments = ("1000", "flush") if flush else ("1000",)
    lines = output(sample("functions", level, subnormals), *arguments, options=("--arch", arch)).decode().splitlines()
    assert len(lines) == 16
    assert [line for line in lines if ", 0 wrong" not in line] == []


def test_host_runs_function_for_each_lane() -> None:
    status, *lines = output(sample("host_calls"), "function").decode().splitlines()
    assert status == "hipSuccess"
    assert lines == [f"{lane + 2 + 3 + 4 + 5 + 6 + 7} {lane * 5040}" for lane in range(40)]


def test_unknown_service_is_reported() -> None:
    done = run(sample("host_calls"), "service")
    assert done.stdout == b"hipErrorLaunchFailure\n"
    assert "the kernel asks the host for service 99, which the emulator lacks" in done.stderr.decode()


@pytest.mark.parametrize(("arch", "threads"), [("gfx942", "1"), ("gfx950", "1"), ("gfx950", "4")])
def test_kernels_allocate_and_free(arch: str, threads: str) -> None:
    lines = output(sample("heap"), "blocks", options=("--arch", arch, "--threads", threads)).decode().splitlines()
    assert [line for line in lines if line.startswith("failed")] == ["failed 0"] * 3
    blocks = sorted(tuple(map(int, line.split())) for line in lines if not line.startswith("failed"))
    assert len(blocks) == 3000
    assert all(before + size <= after for (before, size), (after, _) in pairwise(blocks))
    small = [address for address, size in blocks if size <= 3072]
    assert all(address % 8 == 0 for address in small)
    assert len({address // SLAB for address in small}) < 100  # of many blocks each


# Memory of the device: 192 GB (MI300X), 288 GB (MI350); blocks of 64 GiB.
@pytest.mark.parametrize(("arch", "count"), [("gfx942", 2), ("gfx950", 4)])
def test_malloc_without_room_returns_null(arch: str, count: int) -> None:
    assert output(sample("heap"), "exhaust", options=("--arch", arch)).split() == [b"%d" % count, b"1", b"1"]
