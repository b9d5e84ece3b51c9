"""The option interleaved: a wave that waits lets the others go on, as on hardware, before its results land."""

from __future__ import annotations

import numpy as np
import pytest

from ckpm_emulator.device import EmulatedGpu
from emulator_assembly import assemble, launch
from emulator_child import on_device

# Two waves: each writes 1 to its dword of LDS. After the barrier it reads the other's dword, waits, and overwrites its
# own with 2, without a second barrier. On hardware both reads are served before one of the waves has waited.
_BODY = """\
s_load_dwordx2 s[4:5], s[0:1], 0x0
v_lshrrev_b32 v1, 6, v0
v_lshlrev_b32 v2, 2, v1
v_xor_b32 v3, 4, v2
v_mov_b32 v4, 1
ds_write_b32 v2, v4
s_waitcnt lgkmcnt(0)
s_barrier
ds_read_b32 v5, v3
s_waitcnt lgkmcnt(0)
v_mov_b32 v4, 2
ds_write_b32 v2, v4
s_waitcnt lgkmcnt(0)
global_store_dword v2, v5, s[4:5]
s_endpgm
"""


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize(("interleaved", "read"), [(False, [1, 2]), (True, [1, 1])])
@on_device("gfx942", whole=True)
def test_waves_read_before_one_has_waited(device: EmulatedGpu, interleaved: bool, read: list[int], late: bool) -> None:
    device.configure(interleaved=interleaved, late_loads=late)
    out = device.malloc(8)
    launch(device, assemble(_BODY, lds_bytes=8), out, threads=128)
    assert device.read(out, np.uint32).tolist() == read
