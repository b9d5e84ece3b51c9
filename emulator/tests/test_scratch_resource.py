"""Scratch as gfx90a's kernels reach it: through a buffer resource that their first four scalars hold."""

from __future__ import annotations

import numpy as np
import pytest

from ckpm_emulator.device import EmulatedGpu
from ckpm_emulator.faults import DeviceFaultError
from emulator_assembly import assemble, launch
from emulator_child import on_device
from test_emulator_descriptor import RSRC2, edit_descriptor

PROPERTIES = 56  # byte in the descriptor
# The resource in s[0:3], the arguments' address in s[4:5], the workgroup in s6, where the wave's scratch begins in s7.
PROLOGUE = """
s_load_dwordx4 s[8:11], s[4:5], 0x0
s_add_u32 s0, s0, s7
s_addc_u32 s1, s1, 0
v_lshlrev_b32 v1, 2, v0
v_and_b32 v3, 12, v1
s_waitcnt lgkmcnt(0)
"""
WAIT = "s_waitcnt vmcnt(0)\n"


def kernel(body: str) -> bytes:
    code = assemble(f"{PROLOGUE}{body}{WAIT}s_endpgm\n", "gfx90a")
    return edit_descriptor(edit_descriptor(code, PROPERTIES, 1, 0, 1), RSRC2, 5, 1, 6)


@on_device("gfx90a", whole=True)
def test_each_lane_of_each_wave_has_bytes_of_its_own(device: EmulatedGpu) -> None:
    """A lane's offset is its own, that of a scalar counts the bytes of 64 lanes."""
    body = (
        "v_mul_u32_u24 v2, 3, v0\nbuffer_store_dword v2, v3, s[0:3], 0 offen offset:16\n"
        "s_movk_i32 s12, 0x800\nbuffer_store_byte v0, off, s[0:3], s12 offset:3\n"
        f"{WAIT}buffer_load_dword v4, v3, s[0:3], 0 offen offset:16\nbuffer_load_ubyte v5, off, s[0:3], 0 offset:35\n"
        f"{WAIT}v_lshl_add_u32 v4, v4, 8, v5\nglobal_store_dword v1, v4, s[10:11]\n"
    )
    source, out = device.malloc(4), device.malloc(512)
    launch(device, kernel(body), source, out, threads=128)
    lanes = np.arange(128, dtype=np.uint32)
    assert np.array_equal(device.read(out, np.uint32), (3 * lanes << 8) + lanes)


@pytest.mark.parametrize(
    ("body", "kind", "reason"),
    [
        ("buffer_load_dword v4, off, s[0:3], 0 offset:62\n", "scratch", "bytes 62 to 65 of the 64 bytes of scratch"),
        ("s_movk_i32 s12, 0x84\nbuffer_load_dword v4, off, s[0:3], s12\n", "unknown", "a part of a dword of all lanes"),
        ("s_mov_b32 s0, 64\nbuffer_load_dword v4, off, s[0:3], 0\n", "unknown", "swizzle or add_tid_enable"),
    ],
)
@on_device("gfx90a", whole=True)
def test_what_is_not_scratch_of_lane_stops_launch(device: EmulatedGpu, body: str, kind: str, reason: str) -> None:
    with pytest.raises(DeviceFaultError) as caught:
        launch(device, kernel(body), device.malloc(4), device.malloc(4))
    assert (caught.value.fault.kind, reason in caught.value.fault.message) == (kind, True)


@on_device("gfx90a", whole=True)
def test_copy_through_scratch_is_no_use(device: EmulatedGpu) -> None:
    """v9 is never written. What scratch keeps of it is dropped, what it keeps of v2 is used."""
    device.configure(poison=True, uninitialised=True)
    body = (
        "v_mov_b32 v2, 7\nbuffer_store_dword v2, off, s[0:3], 0\nbuffer_store_short v9, off, s[0:3], 0 offset:4\n"
        f"{WAIT}buffer_load_dword v4, off, s[0:3], 0\nbuffer_load_dword v5, off, s[0:3], 0 offset:4\n"
        f"{WAIT}global_store_dword v1, v4, s[10:11]\n"
    )
    source, out = device.malloc(4), device.malloc(256)
    launch(device, kernel(body), source, out)
    assert np.array_equal(device.read(out, np.uint32), np.full(64, 7))
    with pytest.raises(DeviceFaultError, match="depends on"):
        launch(device, kernel(body.replace("v1, v4", "v1, v5")), source, out)
