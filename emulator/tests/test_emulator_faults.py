"""Faults of launches that touched foreign memory: the report's fields and text."""

from __future__ import annotations

import ctypes
import json

import pytest

from ckpm_emulator.device import Buffer, EmulatedGpu
from ckpm_emulator.faults import DeviceFaultError, FaultReport
from emulator_assembly import assemble, launch
from emulator_child import on_device

PAGE = 4096


# Lane 3 of the second wave of workgroup 6 loads 16 bytes at the first argument.
TOUCH = """
s_load_dwordx2 s[4:5], s[0:1], 0x0
s_cmp_eq_u32 s2, 6
s_cbranch_scc0 1f
v_cmp_eq_u32 vcc, 67, v0
s_and_saveexec_b64 s[20:21], vcc
v_mov_b32 v1, 0
s_waitcnt lgkmcnt(0)
global_load_dwordx4 v[4:7], v1, s[4:5]
1: s_endpgm
"""
# Lanes load the first dword of a buffer: its start is the first argument, its bytes the second.
SRD = """
s_load_dwordx4 s[4:7], s[0:1], 0x0
s_waitcnt lgkmcnt(0)
s_mov_b32 s7, 0x27000
buffer_load_dword v4, off, s[4:7], 0
s_endpgm
"""


def _touch(device: EmulatedGpu, address: int, body: str = TOUCH, second: int = 0) -> FaultReport | None:
    """Launch; the fault that it ends in, None if it ends well."""
    module = device.load_module(assemble(body, device.options.arch))
    try:
        module.launch("test_kernel", (7,), (128,), [ctypes.c_uint64(address), ctypes.c_uint64(second)])
    except DeviceFaultError as error:
        return error.fault
    finally:
        device.clear_fault()
        module.unload()
    return None


@on_device("gfx950")
def test_all_fields_and_message(device: EmulatedGpu) -> None:
    pool = device.malloc(100, "K pool")
    fault = _touch(device, pool.address + 117)
    assert fault
    assert (fault.kind, fault.access, fault.kernel) == ("memory", "load", "test_kernel")
    assert (fault.workgroup, fault.wave, fault.lane) == ((6, 0, 0), 1, 3)
    assert (fault.address, fault.bytes, fault.error) == (pool.address + 117, 16, 700)
    near = fault.nearest
    assert near
    assert (near.base, near.bytes, near.label, near.kind) == (pool.address, 100, "K pool", "device")
    assert (near.freed, near.distance, near.overrun) == (False, 18, 0)
    assert fault.message == (
        f"load of 16 bytes at {pool.address + 117:#x} outside the allocations\n"
        "  kernel test_kernel\n"
        f"  pc {fault.pc:#x}  global_load_dwordx4 v[4:7], v[1], s[4:5]\n"
        "  workgroup (6, 0, 0) wave 1 lane 3\n"
        f"  nearest: 17 bytes past the end of allocation {near.id} 'K pool' (device, 100 bytes at {pool.address:#x})"
    )


@pytest.mark.parametrize(
    ("offset", "distance", "overrun", "position"),
    [
        (-1, -1, 0, "1 byte before the start of"),
        (-4000, -4000, 0, "4000 bytes before the start of"),
        (90, 0, 6, "inside, with its last 6 bytes past the end of"),
        (100, 1, 0, "right after the end of"),
    ],
)
@on_device("gfx950")
def test_byte_exact(device: EmulatedGpu, offset: int, distance: int, overrun: int, position: str) -> None:
    buffer = device.malloc(100)
    assert _touch(device, buffer.address + 84) is None
    fault = _touch(device, buffer.address + offset)
    assert fault
    assert fault.nearest
    assert (fault.nearest.distance, fault.nearest.overrun) == (distance, overrun)
    assert (
        f"nearest: {position} allocation {fault.nearest.id} (device, 100 bytes at {buffer.address:#x})" in fault.message
    )


@on_device("gfx950")
def test_page_granular(device: EmulatedGpu) -> None:
    device.configure(granularity=PAGE)
    buffer = device.malloc(100)
    assert _touch(device, buffer.address + PAGE - 16) is None
    assert _touch(device, buffer.address + PAGE - 15)
    assert _touch(device, buffer.address - 1)


@on_device("gfx950")
def test_use_after_free_is_named(device: EmulatedGpu) -> None:
    buffer = device.malloc(100, "V pool")
    device.free(buffer)
    fault = _touch(device, buffer.address + 20)
    assert fault
    assert fault.nearest
    assert fault.nearest.freed
    assert "inside allocation" in fault.message
    assert "'V pool'" in fault.message
    assert "freed before" in fault.message


@on_device("gfx950")
def test_nothing_allocated_and_null(device: EmulatedGpu) -> None:
    fault = _touch(device, 0)
    assert fault
    assert (fault.kind, fault.address) == ("memory", 0)


@on_device("gfx950")
def test_gfx950_faults_for_whole_range(device: EmulatedGpu) -> None:
    buffer = device.malloc(3 * PAGE - 100, "K")
    assert _touch(device, buffer.address, SRD, 3 * PAGE) is None
    fault = _touch(device, buffer.address, SRD, 0xFFFFFFF0)
    assert fault
    assert (fault.kind, fault.address, fault.error) == ("srd_range", buffer.address + 3 * PAGE, 700)
    assert "the range of a buffer resource touches an unmapped page" in fault.message
    device.configure(srd_range_rule=False)
    assert _touch(device, buffer.address, SRD, 0xFFFFFFF0) is None


# num_records that Triton and FlyDSL give each of their resources, whatever lies after the pointer.
NO_SIZE, UNLIMITED = 2**31 - 2, 2**32 - 1


@on_device("gfx950")
def test_resource_without_size_has_no_range_to_judge(device: EmulatedGpu) -> None:
    """The rule of ranges stays on: one record more or less is a size again."""
    buffer = device.malloc(3 * PAGE - 100, "K")
    for size in (NO_SIZE, UNLIMITED):
        assert _touch(device, buffer.address, SRD, size) is None
    for size in (NO_SIZE - 1, NO_SIZE + 1, UNLIMITED - 1):
        fault = _touch(device, buffer.address, SRD, size)
        assert fault
        assert fault.kind == "srd_range"


@on_device("gfx942")
def test_gfx942_checks_addressed_bytes(device: EmulatedGpu) -> None:
    buffer = device.malloc(PAGE)
    assert _touch(device, buffer.address, SRD, 0xFFFFFFF0) is None
    device.configure(srd_range_rule=True)
    assert _touch(device, buffer.address, SRD, 0xFFFFFFF0)


def _range_of_a_head_in_the_last_page(device: EmulatedGpu) -> tuple[FaultReport | None, int]:
    """docs/upstream/num-records.md: the fault of a range of a whole page that begins at a head's offset in a pool's
    last page, and the pool's end. Pages of 16 keys, 2 heads of 128 elements of 2 bytes; the pool has 3.
    """
    head, page = 128 * 2, 16 * 2 * 128 * 2
    pool = device.malloc(3 * page, "K pool")
    assert (pool.address % PAGE, 3 * page % PAGE) == (0, 0)
    last = pool.address + 2 * page
    for start, length in ((last, page), (last + head, page - head), (last - page + head, page)):
        assert _touch(device, start, SRD, length) is None
    return _touch(device, last + head, SRD, page), pool.address + 3 * page


@on_device("gfx950")
def test_gfx950_faults_for_page_s_range_that_begins_at_head(device: EmulatedGpu) -> None:
    fault, end = _range_of_a_head_in_the_last_page(device)
    assert fault
    assert (fault.kind, fault.address) == ("srd_range", end)


@on_device("gfx942")
def test_gfx942_takes_range_that_no_lane_goes_to_end_of(device: EmulatedGpu) -> None:
    fault, _ = _range_of_a_head_in_the_last_page(device)
    assert fault is None


@on_device("gfx950")
def test_first_fault_stays(device: EmulatedGpu) -> None:
    module = device.load_module(assemble(TOUCH, "gfx950"))
    for address in (16, 32):
        with pytest.raises(DeviceFaultError) as caught:
            module.launch("test_kernel", (7,), (128,), [ctypes.c_uint64(address), ctypes.c_uint64(0)])
        assert caught.value.fault.address == 16


@on_device("gfx950")
def test_text_is_json_whatever_it_holds(device: EmulatedGpu) -> None:
    odd = 'a "b" \\ \n\t é'
    buffer = device.malloc(10, odd)
    _touch(device, buffer.address + 20)
    assert [row.label for row in device.allocations() if row.kind == "device"] == [odd]
    fault = _touch(device, buffer.address + 20)
    assert fault
    assert fault.nearest
    assert fault.nearest.label == odd


@on_device("gfx950")
def test_memory_can_be_released_after_fault(device: EmulatedGpu) -> None:
    buffer, other = device.malloc(10), device.malloc(10)
    with pytest.raises(DeviceFaultError):
        launch(device, assemble(TOUCH, "gfx950"), threads=128, groups=7)
    device.free(buffer)
    assert device._hip_runtime.c.hipFree(other.address) == 700  # and it is gone
    assert not [row for row in device.allocations() if row.kind == "device"]
    with pytest.raises(DeviceFaultError):
        device.read(Buffer(8, 8), "u1")


def test_fault_without_allocations_reads() -> None:
    data = dict.fromkeys(("pc", "instruction", "wave", "address", "bytes", "error"), 0)
    texts = dict.fromkeys(("kind", "access", "kernel", "text", "source", "detail", "message"), "")
    rest = {"workgroup": [0, 0, 0], "lane": None, "nearest": None}
    assert FaultReport.from_json(json.loads(json.dumps({**data, **texts, **rest}))).nearest is None
