"""Ordinary HIP programs, compiled unmodified by either toolchain (`--toolchain rocm`: hipcc)."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from ckpm_emulator import code_object
from programs.program_builder import ARCHS, sample
from programs.test_programs import output

THREADS, N = 192, 1000  # of a workgroup, as in the program; the last workgroup is not full


@pytest.mark.parametrize("arch", ARCHS)
def test_ordinary_program_prints_statistics(arch: str) -> None:
    *printed, total, bins, largest, events = (
        output(sample("whole"), str(N), options=("--arch", arch)).decode().split("\n")[:-1]
    )
    x = (np.arange(N) + 0.5) * (5.0 / N)
    values = np.sin(x) ** 2 + x**1.5 * np.tanh(x) / np.sqrt(x + 1)
    sums = {int(line.split()[1].rstrip(":")): float(line.split()[2]) for line in printed}
    assert len(printed) == len(sums) == -(-N // THREADS)
    for workgroup, value in sums.items():
        assert value == pytest.approx(values[workgroup * THREADS :][:THREADS].sum(), rel=1e-14)
    assert float(total.removeprefix("sum ")) == pytest.approx(values.sum(), rel=1e-14)
    assert [int(word) for word in bins.split()] == np.bincount(values.astype(int), minlength=6).tolist()
    (top,) = struct.unpack("<d", struct.pack("<Q", int(largest.removeprefix("largest "), 16)))
    assert top == pytest.approx(values.max(), rel=1e-15)
    assert events == "events in order"


@pytest.mark.parametrize("arch", ARCHS)
def test_launches_between_events(arch: str, tmp_path: Path) -> None:
    """The time of an unrecorded event is hipErrorInvalidHandle (HIP's manual, hipEventElapsedTime)."""
    program, module = sample("launching"), tmp_path / "module"
    module.write_bytes(dict(code_object.code_objects(program))[arch])
    *results, values = output(program, module, options=("--arch", arch, "--quiet")).decode().splitlines()
    recorded, not_recorded = "hipSuccess", "hipErrorInvalidHandle"
    assert results == [not_recorded, recorded, recorded, recorded, recorded, not_recorded, recorded]
    assert values == f"{1 + 10 + 2 * 100 + 2 * 1000} {1 + 10 + 2 * 100 + 2 * 1000}"
