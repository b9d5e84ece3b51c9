"""A small HIP library on the whole emulator: its own host code launches, its machine code runs, its faults are told."""

from __future__ import annotations

import ctypes
import mmap
from pathlib import Path

import numpy as np
import pytest

from ckpm_emulator.device import EmulatedGpu
from ckpm_emulator.faults import DeviceFaultError
from emulator_child import on_device
from emulator_small import fat_binary, open_small
from emulator_small import small as small


def _touch(device: EmulatedGpu, path: Path, out: int, value: int, groups: int, threads: int) -> int:
    return int(open_small(device, path).small_touch(out, value, groups, threads, 0))


@pytest.mark.parametrize("threads", [1, 64, 100, 256])
@on_device("gfx950", whole=True)
def test_kernel_writes_its_elements(device: EmulatedGpu, small: Path, threads: int) -> None:
    out = device.malloc(8 * threads * 5 + 8)
    assert _touch(device, small, out.address, 0xFEDCBA9876543210, 5, threads) == 0
    data = device.read(out, np.uint64)
    assert (data[:-1] == 0xFEDCBA9876543210).all()
    assert data[-1] == 0


def _peak_bytes() -> int:
    """The most memory that this process had at a time since _forget_peak."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def _forget_peak() -> int:
    Path("/proc/self/clear_refs").write_text("5")  # proc(5)
    return _peak_bytes()


def test_peak_of_memory_is_seen() -> None:
    before = _forget_peak()
    with mmap.mmap(-1, 64 << 20) as pages:  # new memory: malloc could give freed memory again
        pages[:] = bytes(64 << 20)
    assert _peak_bytes() - before > 60 << 20
    assert _forget_peak() - before < 30 << 20


@on_device("gfx950", whole=True)
def test_memory_of_launch_does_not_grow_with_its_grid(device: EmulatedGpu, small: Path) -> None:
    """Registers and LDS are a host thread's, not a workgroup's: of 16,384 they would be 2 GB."""
    grown = []
    for groups in (64, 16384):
        out = device.malloc(8 * 64 * groups)
        before = _forget_peak()
        assert _touch(device, small, out.address, 7, groups, 64) == 0
        grown.append(_peak_bytes() - before - 8 * 64 * groups)
        assert (device.read(out, np.uint64) == 7).all()
        device.free(out)
    assert grown[1] - grown[0] < 8 << 20


@on_device("gfx942", whole=True)
def test_other_arch_runs_its_own_code(device: EmulatedGpu, small: Path) -> None:
    out = device.malloc(8 * 128)
    assert _touch(device, small, out.address, 3, 2, 64) == 0
    assert (device.read(out, np.uint64) == 3).all()


@on_device("gfx950", whole=True)
def test_fault_names_lane(device: EmulatedGpu, small: Path) -> None:
    out = device.malloc(8 * 250, "out")
    assert _touch(device, small, out.address, 3, 2, 128) == 700
    fault = device.last_fault()
    assert fault
    assert fault.nearest
    assert (fault.kind, fault.access, fault.kernel, fault.bytes) == ("memory", "store", "_Z5touchPmm", 8)
    assert (fault.workgroup, fault.wave, fault.lane) == ((1, 0, 0), 1, 250 - 192)
    assert fault.address == out.address + 8 * 250
    assert (fault.nearest.label, fault.nearest.distance) == ("out", 1)
    assert "store_dwordx2" in fault.text
    with pytest.raises(DeviceFaultError, match="right after the end of"):
        device.synchronize()


@on_device("gfx950", whole=True)
def test_pages_hide_it(device: EmulatedGpu, small: Path) -> None:
    device.configure(granularity=4096)
    out = device.malloc(8 * 250)
    assert _touch(device, small, out.address, 3, 2, 128) == 0


@on_device("gfx950", whole=True)
def test_pool_over_4_gib(device: EmulatedGpu, small: Path) -> None:
    pool = device.malloc(6 << 30)
    for line in (1 << 31, 1 << 32):
        assert _touch(device, small, pool.address + line - 64, line, 1, 16) == 0
        assert (device.read(pool, np.uint64, 16, line - 64) == line).all()


@on_device("gfx950", whole=True)
def test_modules_variables_and_counters(device: EmulatedGpu, small: Path) -> None:
    library = device.load_library(small)
    assert library.small_table(ctypes.c_uint64(99)) == 0
    module = device.load_module(fat_binary(small))
    assert module.variable("table").bytes == 256
    out = device.malloc(64)
    device.reset_counters()
    module.launch("_Z10trap_afterPi", (1,), (1,), [ctypes.c_uint64(out.address)])
    assert device.read(out, np.int32)[0] == 1
    assert device.counters()
