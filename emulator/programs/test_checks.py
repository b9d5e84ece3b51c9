"""Correct programs pass all checks, and what the hardware refuses does not."""

from __future__ import annotations

import pytest

from programs.program_builder import ARCHS, sample
from programs.test_programs import output, run

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
