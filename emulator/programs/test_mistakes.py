"""Mistakes with memory are reported with what happened and end with an exit code; correct programs pass."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from programs.program_builder import ARCHS, sample
from programs.test_programs import output, run

REPORTED = 8
BLOCK = "(heap, 24 bytes"  # what the kernel allocates


@pytest.mark.parametrize(
    ("how", "parts"),
    [
        ("double", ("heap fault: free of 0x", ", which was freed before: allocation", BLOCK)),
        ("inside", ("heap fault: free of 0x", ", which lies 8 bytes inside allocation", BLOCK)),
        ("foreign", ("heap fault: free of 0x", ", which lies 4 bytes inside allocation 1 (device, 1024 bytes)")),
        ("overrun", ("store of 4 bytes", "right after the end of allocation", "(heap, 40 bytes")),
        ("reuse", ("load of 4 bytes", "inside allocation", "(heap, 40 bytes", "freed before")),
    ],
)
def test_misuse_of_kernels_heap_is_fault(how: str, parts: tuple[str, ...]) -> None:
    for checks in ("heap", "all"):
        done = run(sample("mistakes"), how, options=("--checks", checks))
        report = done.stderr.decode()
        assert done.returncode == 1, report  # the program's own: its wait for the device fails
        assert all(part in report for part in parts), report
        assert "lane 0" in report


def test_correct_use_of_kernels_heap_passes_and_is_freed() -> None:
    assert output(sample("mistakes"), "sizes", options=("--checks", "all")) == b"hipSuccess\n"
    for checks in ("heap,leaks", "leaks"):  # slabs of the device library do not leak
        output(sample("mistakes"), "sizes", options=("--checks", checks))
    assert output(sample("heap"), "exhaust", options=("--checks", "heap")) == output(sample("heap"), "exhaust")


@pytest.mark.parametrize("how", ["twice", "later"])
def test_memory_freed_twice_by_host_is_reported(how: str) -> None:
    done = run(sample("mistakes"), how, options=("--checks", "all"))
    assert (done.returncode, done.stdout) == (REPORTED, b"hipErrorInvalidValue\n")
    assert "which was freed before: allocation 1 (device, 1024 bytes)" in done.stderr.decode()
    assert output(sample("mistakes"), how, options=("--checks", "all", "--quiet")) == done.stdout


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("past", r"hipMemcpy: the destination \[0x\w+, \+1028\) ends 4 bytes past the allocation of 1024 bytes"),
        ("source", r"hipMemcpyAsync: the source \[0x\w+, \+1024\) ends 4 bytes past the allocation of 1024 bytes"),
        ("direction", r"hipMemcpy: the source \[0x\w+, \+1024\) is a pointer of the host"),
        ("clear", r"hipMemset: the destination \[0x\w+, \+1025\) ends 1 bytes past the allocation of 1024 bytes"),
        ("variable", r"hipMemcpyToSymbol: 36 bytes from byte 0 of the variable variable, which has 32"),
    ],
)
def test_call_outside_of_memory_is_reported(how: str, reason: str) -> None:
    done = run(sample("mistakes"), how, options=("--checks", "all"))
    assert (done.returncode, done.stdout) == (REPORTED, b"hipErrorInvalidValue\n")
    assert re.search(f"emulator: heap: {reason}", done.stderr.decode())
    assert output(sample("mistakes"), how, options=("--checks", "all", "--quiet")) == done.stdout
    assert output(sample("mistakes"), how) == done.stdout


def test_launch_on_destroyed_stream_is_reported() -> None:
    report = run(sample("mistakes"), "destroyed").stderr.decode()
    assert report == "emulator: hipLaunchKernel: hipErrorInvalidHandle: not a live stream\n"


def test_memory_that_kernel_allocates_begins_uninitialised() -> None:
    report = run(sample("mistakes"), "fresh", options=("--checks", "all")).stderr.decode()
    assert "uninitialised fault: what is stored" in report


def test_leaks_end_with_exit_code_if_named() -> None:
    done = run(sample("mistakes"), "leak", options=("--checks", "heap,leaks"))
    assert done.returncode == REPORTED
    assert "never freed: 32 allocations of 1280 bytes together" in done.stderr.decode()


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("null", "outside the allocations: a null pointer\n"),
        ("host", "a pointer of the host, to memory that the device can't reach: [stack]\n"),
        (
            "grid",
            "a null pointer and 32 bytes; the kernel synchronises its grid, which takes hipLaunchCooperativeKernel",
        ),
    ],
)
def test_pointer_outside_of_device_is_named(how: str, reason: str) -> None:
    report = run(sample("mistakes"), how).stderr.decode()
    assert reason in report
    assert "nearest" not in report


def test_endless_count_ends_at_limit() -> None:
    done = run(sample("mistakes"), "endless", options=("--max-instructions", "100000"))
    assert done.stdout == b"hipErrorLaunchTimeOut\n"
    assert "timeout fault: the wave has executed 100000 instructions, which is the limit" in done.stderr.decode()
    output(sample("mistakes"), "set", options=("--max-instructions", "100000"))


@pytest.mark.parametrize("program", ["twice", "null", "leak"])
def test_exit_code_of_reports_is_chosen(program: str) -> None:
    chosen = ("--checks", "heap,leaks", "--error-exitcode", "99")
    assert run(sample("mistakes"), program, options=chosen).returncode == 99
    assert run(sample("mistakes"), "sizes", options=chosen).returncode == 0


# Unaligned copies are reported on request.
@pytest.mark.parametrize(
    ("options", "reported"),
    [
        ((), True),
        (("--kernel", "bytes"), True),
        (("--kernel", "another"), False),
        (("--launch-count", "1"), True),
        (("--launch-skip", "1"), False),
    ],
)
def test_launches_to_check_are_chosen(options: tuple[str, ...], reported: bool) -> None:
    done = run(sample("allowed"), "bytes", options=("--checks", "unaligned", *options))
    assert (b"alignment fault" in done.stderr) == reported


@pytest.mark.parametrize(
    ("line", "reported"), [("unaligned", False), ("unaligned bytes", False), ("unaligned another", True), ("", True)]
)
def test_suppressed_check_of_kernel_is_off(tmp_path: Path, line: str, reported: bool) -> None:
    file = tmp_path / "suppressions"
    file.write_text(f"# why\n{line}\n")
    done = run(sample("allowed"), "bytes", options=("--checks", "unaligned", "--suppressions", str(file)))
    assert (b"alignment fault" in done.stderr) == reported


@pytest.mark.parametrize("check", ["nonsense", "hazards", "poison_memory"])
def test_suppression_of_unknown_check_or_of_process_is_refused(tmp_path: Path, check: str) -> None:
    file = tmp_path / "suppressions"
    file.write_text(f"{check} kernel\n")
    done = run(sample("saxpy"), options=("--suppressions", str(file)))
    assert done.returncode == 3
    assert f"'{check} kernel' has no check of poison, late_loads" in done.stderr.decode()


# ---- correct programs

THREADS = 128
RESULTS = {  # of each thread
    "atomics": [THREADS + THREADS - 1 + 7] * THREADS,  # the sum, the greatest value before it, the first exchange
    "bytes": [(5 * thread + 1) % 256 for thread in range(THREADS)],
    "list": [3 + 4 + 5] * THREADS,
    "generic": [5] * THREADS,
    "wide": list(range(THREADS)),
    "padding": [THREADS - 1 - thread + 2 for thread in range(THREADS)],
}


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("how", RESULTS)
def test_allowed_accesses_pass_all_checks(how: str, arch: str) -> None:
    printed = output(sample("allowed"), how, options=("--arch", arch, "--checks", "all"))
    assert [int(line) for line in printed.split()] == RESULTS[how]


@pytest.mark.parametrize("how", ["bytes", "wide"])
def test_unaligned_accesses_are_reported_on_request(how: str) -> None:
    for checks in ("unaligned", "all,unaligned"):
        done = run(sample("allowed"), how, options=("--checks", checks))
        assert b"alignment fault" in done.stderr


def test_expected_fault_leaves_exit_code_of_program() -> None:
    done = run(sample("failures"), "write", options=("--expect-faults",))
    assert done.returncode == 0
    assert b"hipErrorIllegalAddress" in done.stdout
    assert b"ignored a fault" not in done.stderr
