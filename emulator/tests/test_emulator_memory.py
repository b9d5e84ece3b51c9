"""Device memory: pools cost the pages touched, lie where asked, and every address is known to be inside or not."""

from __future__ import annotations

import ctypes
import itertools
import json
import mmap
import resource
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckpm_emulator.device import Buffer, EmulatedGpu
from ckpm_emulator.errors import DeviceError
from emulator_child import on_device
from emulator_small import open_small
from emulator_small import small as small

GIB = 1 << 30
PAGE = 4096


def _resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


def _is_mapped(device: EmulatedGpu, address: int, size: int = 1) -> bool:
    return bool(device._hip_runtime.c.emu_mapped(address, size))


def _nearest(device: EmulatedGpu, address: int) -> tuple[int, int, int, bool]:
    base, size, distance, freed = ctypes.c_uint64(), ctypes.c_uint64(), ctypes.c_int64(), ctypes.c_uint32()
    results = (ctypes.byref(x) for x in (base, size, distance, freed))
    assert device._hip_runtime.c.emu_nearest(address, *results) == 0
    return base.value, size.value, distance.value, bool(freed.value)


def _srd_mapped(device: EmulatedGpu, base: int, records: int, stride: int = 0) -> int | None:
    """None if the resource's range is mapped, else the first address that is not."""
    resource = (ctypes.c_uint32 * 4)(base & 0xFFFFFFFF, base >> 32 | stride << 16, records, 0)
    unmapped = ctypes.c_uint64()
    good = device._hip_runtime.c.emu_srd_mapped(resource, ctypes.byref(unmapped))
    return None if good else unmapped.value


@pytest.mark.parametrize("poison", [False, True])
@on_device()
def test_pool_costs_pages_touched(device: EmulatedGpu, poison: bool) -> None:
    device.configure(poison_memory=poison)
    before = _resident()
    pool = device.malloc(6 * GIB, "K pool")
    data = device.view(pool, np.uint8)
    for line in (2 * GIB, 4 * GIB):  # of the pool: where 31 and 32 bits end
        data[line - 3 : line + 3] = np.arange(6)
        assert list(device.read(pool, np.uint8, 6, line - 3)) == [0, 1, 2, 3, 4, 5]
        assert data[line - 4] == data[line + 3] == (255 if poison else 0)
    assert data[0] == data[-1] == (255 if poison else 0)
    device.fill(pool, 0)
    assert data[2 * GIB] == data[-1] == 0
    assert _resident() - before < 20 << 20
    device.free(pool)


@on_device()
def test_fill_keeps_neighbours(device: EmulatedGpu) -> None:
    buffer = device.malloc(1 << 20)
    device.fill(buffer, 7)
    device._hip(device._hip_runtime.c.hipMemset(buffer.address + 100, 0, (1 << 20) - 300), "hipMemset")
    data = device.read(buffer, np.uint8)
    assert (data[:100] == 7).all()
    assert (data[100:-200] == 0).all()
    assert (data[-200:] == 7).all()


@on_device()
def test_low_addresses(device: EmulatedGpu) -> None:
    with device.place_allocations("low"):
        buffers = [device.malloc(size) for size in (100, 1 << 30, 5000)]
    assert all(buffer.address + buffer.bytes <= 4 * GIB for buffer in buffers)


@pytest.mark.parametrize("size", [64, 1 << 20, 2 * GIB - PAGE, 6 * GIB])
@on_device()
def test_high_addresses(device: EmulatedGpu, size: int) -> None:
    with device.place_allocations("high"):
        buffers = [device.malloc(size) for _ in range(3)]
    for buffer in buffers:
        assert buffer.address >> 40 >= 0x60
        assert buffer.address & 0x80000000


@pytest.mark.parametrize("size", [17, PAGE, 3 * PAGE + 1, 6 * GIB])
@pytest.mark.parametrize("line", [1, 3, 0x4000])
@on_device()
def test_crossing_chosen_line(device: EmulatedGpu, size: int, line: int) -> None:
    at = line * 4 * GIB
    with device.place_allocations("crossing", at=at):
        buffer = device.malloc(size)
    middle = buffer.address + size // 2
    nearest = (middle + 2 * GIB) // (4 * GIB) * (4 * GIB)
    assert nearest >= at
    assert buffer.address < nearest < buffer.address + size
    data = device.view(buffer, np.uint8)
    data[0] = data[-1] = 1


@on_device()
def test_limit_of_addresses_is_named(device: EmulatedGpu) -> None:
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * PAGE
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (mapped + GIB, before[1]))
    pointer, malloc = ctypes.c_void_p(), device._hip_runtime.c.hipMalloc
    try:
        assert malloc(ctypes.byref(pointer), ctypes.c_size_t(8 * GIB)) == 2
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
    assert "in use; this process gets no more addresses there (ulimit -v limits them)" in device.last_error()
    assert malloc(ctypes.byref(pointer), ctypes.c_size_t(8 * GIB)) == 0


@on_device()
def test_given_base_is_for_one(device: EmulatedGpu) -> None:
    with device.place_allocations("fixed", at=0x5555_0000_1230):
        here, elsewhere = device.malloc(100), device.malloc(100)
    assert here.address == 0x5555_0000_1230
    assert elsewhere.address != here.address
    with (
        device.place_allocations("fixed", at=here.address + 50),
        pytest.raises(DeviceError, match="no room for 100 bytes"),
    ):
        device.malloc(100)
    with (
        device.place_allocations("fixed", at=ctypes.addressof(ctypes.c_int())),
        pytest.raises(DeviceError, match="no room"),
    ):
        device.malloc(100)


@on_device()
def test_addresses_are_not_used_again_at_once(device: EmulatedGpu) -> None:
    first = device.malloc(PAGE)
    device.free(first)
    second = device.malloc(PAGE)
    assert second.address != first.address
    assert _nearest(device, first.address + 10) == (first.address, PAGE, 0, True)


@on_device()
def test_guards_between_allocations(device: EmulatedGpu) -> None:
    buffers = sorted(device.malloc(size).address for size in (1, 1 << 30, PAGE, 5 << 20))
    ends = {row.base: row.base + row.bytes for row in device.allocations()}
    assert all(high - ends[low] >= 4 * GIB for low, high in itertools.pairwise(buffers))


@on_device()
def test_page_granularity_joins_neighbours(device: EmulatedGpu) -> None:
    base = 0x5C00_0000_0000  # between the regions for code and for rows that cross 4 GiB: no other test allocates there
    for at, size in ((base, 2 * PAGE), (base + 2 * PAGE, 100)):
        with device.place_allocations("fixed", at=at):
            device.malloc(size)
    assert not _is_mapped(device, base + 2 * PAGE - 8, 16)
    device.configure(granularity=PAGE)
    assert _is_mapped(device, base + 2 * PAGE - 8, 16)
    assert not _is_mapped(device, base + 3 * PAGE - 8, 16)


@on_device()
def test_resource_range(device: EmulatedGpu) -> None:
    buffer = device.malloc(10 * PAGE + 4)
    base, page_end = buffer.address, buffer.address + 11 * PAGE
    assert _srd_mapped(device, base, 0) is None
    assert _srd_mapped(device, base, 10 * PAGE + 4) is None
    assert _srd_mapped(device, base, 11 * PAGE) is None  # the page is there
    assert _srd_mapped(device, base, 11 * PAGE + 1) == page_end
    assert _srd_mapped(device, base, 0xFFFFFFF0) == page_end
    assert _srd_mapped(device, base - 1, 2) == base - 1
    assert _srd_mapped(device, base, 704, stride=64) is None  # records of 64 bytes
    assert _srd_mapped(device, base, 705, stride=64) == page_end
    device.free(buffer)
    assert _srd_mapped(device, base, 16) == base  # no verdict outlives the allocation


@on_device()
def test_capacity(device: EmulatedGpu) -> None:
    device.configure(memory_bytes=1 << 20)
    kept = device.malloc(1 << 19)
    with pytest.raises(
        DeviceError, match=r"'V pool': no room for 524289 bytes .*\(524288 of 1048576 in use\)"
    ) as caught:
        device.malloc((1 << 19) + 1, "V pool")
    assert caught.value.error == 2
    device.free(kept)
    device.malloc(1 << 20)


@on_device()
def test_impossible_sizes(device: EmulatedGpu) -> None:
    for size in (0, 1 << 47, (1 << 64) - 1):
        device.configure(memory_bytes=1 << 62)
        with pytest.raises(DeviceError, match="no room"):
            device.malloc(size)


@on_device()
def test_wrong_release(device: EmulatedGpu) -> None:
    buffer = device.malloc(100)
    with pytest.raises(DeviceError, match="is not the start of an allocation"):
        device.free(Buffer(buffer.address + 1, 1))
    device.free(buffer)
    with pytest.raises(DeviceError):
        device.free(buffer)


@on_device()
def test_allocations_snapshot(device: EmulatedGpu) -> None:
    first, second = device.malloc(10, "q"), device.malloc(20)
    rows = [row for row in device.allocations() if row.kind != "code"]
    assert [(row.base, row.bytes, row.kind, row.label) for row in rows] == [
        (first.address, 10, "device", "q"),
        (second.address, 20, "device", ""),
    ]
    device.reset()
    assert not [row for row in device.allocations() if row.kind != "code"]


_UNITS = 64
_INTERVALS = st.lists(st.tuples(st.integers(0, _UNITS * 4 - 1), st.integers(1, 40), st.booleans()), max_size=12)
_QUERIES = st.lists(st.tuples(st.integers(-8, _UNITS * 4 + 8), st.integers(0, 80)), min_size=1, max_size=20)


@pytest.mark.parametrize("granularity", [1, PAGE])
@on_device()
def test_intervals_agree_with_model(device: EmulatedGpu, granularity: int) -> None:
    """Allocations at chosen places (units of 1 KiB), some released: mapped and nearest as a list of bytes has them."""
    unit, origin = 1024, 0x4444_0000_0000

    @settings(max_examples=150, deadline=None)
    @given(_INTERVALS, _QUERIES)
    def agree(intervals: list[tuple[int, int, bool]], queries: list[tuple[int, int]]) -> None:
        device.reset()
        device.configure(granularity=granularity)
        live: list[tuple[int, int]] = []
        gone: list[tuple[int, int]] = []
        for start, count, freed in intervals:
            begin, end = origin + start * unit, origin + (start + count) * unit - 7
            first, last = begin // PAGE * PAGE, -(-end // PAGE) * PAGE
            if any(first < -(-e // PAGE) * PAGE and b // PAGE * PAGE < last for b, e in live):
                continue  # it would share a page with another
            with device.place_allocations("fixed", at=begin):
                buffer = device.malloc(end - begin)
            assert buffer.address == begin
            live.append((begin, end))
            if freed:
                device.free(buffer)
                gone.append(live.pop())
        runs = live
        if granularity == PAGE:
            runs = []
            for b, e in sorted((b // PAGE * PAGE, -(-e // PAGE) * PAGE) for b, e in live):
                if runs and runs[-1][1] == b:
                    runs[-1] = (runs[-1][0], e)
                else:
                    runs.append((b, e))
        for step, size in queries:
            address = origin + step * unit - 5
            inside = any(b <= address < e and address + size <= e for b, e in runs)
            assert _is_mapped(device, address, size) == inside
            if live:
                base, length, distance, freed = _nearest(device, address)
                nearest = min(max(b - address, address - e + 1, 0) for b, e in live)
                assert abs(distance) <= nearest
                assert freed or abs(distance) == nearest
                expected = address - base if address < base else max(0, address - base - length + 1)
                assert distance == expected
                assert length > 0

    agree()


@on_device()
def test_addresses_and_numbers_begin_again_whatever_was_before(device: EmulatedGpu) -> None:
    def number(buffer: Buffer) -> int:
        listed = json.loads(device._hip_runtime.text("emu_allocations_json"))
        return next(int(row["id"]) for row in listed if row["base"] == buffer.address)

    def allocate() -> list[tuple[int, int]]:
        buffers = [device.malloc(size) for size in (64, 3 * GIB, PAGE + 1)]
        result = [(buffer.address, number(buffer)) for buffer in buffers]
        for buffer in buffers:
            device.free(buffer)
        return result

    device.restart_addresses()
    first = allocate()
    assert allocate() != first  # freed addresses come back late
    device.restart_addresses()
    assert allocate() == first
    device.restart_addresses()
    kept = device.malloc(64)
    device.restart_addresses()
    later = allocate()
    assert kept.address not in {address for address, _ in later}
    assert number(kept) not in {identity for _, identity in later}


def _touch(device: EmulatedGpu, path: Path, out: int, value: int, groups: int, threads: int) -> int:
    return int(open_small(device, path).small_touch(out, value, groups, threads, 0))


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


@on_device("gfx950")
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


@on_device("gfx950")
def test_pool_over_4_gib(device: EmulatedGpu, small: Path) -> None:
    pool = device.malloc(6 << 30)
    for line in (1 << 31, 1 << 32):
        assert _touch(device, small, pool.address + line - 64, line, 1, 16) == 0
        assert (device.read(pool, np.uint64, 16, line - 64) == line).all()
