"""The end of the kernel arguments: LLVM reads their last three dwords as four, where the hardware's segment goes on."""

from __future__ import annotations

import numpy as np
import pytest

from ckpm_emulator.device import EmulatedGpu
from ckpm_emulator.faults import DeviceFaultError
from emulator_assembly import assemble, launch
from emulator_child import on_device

_READ = """\
s_load_dwordx2 s[4:5], s[0:1], 0x0
s_load_dwordx4 s[8:11], s[0:1], {offset}
v_lshlrev_b32 v1, 2, v0
s_waitcnt lgkmcnt(0)
v_mov_b32 v2, s8
global_store_dword v1, v2, s[4:5]
s_endpgm
"""


@on_device("gfx942", whole=True)
def test_wide_load_of_last_three_dwords(device: EmulatedGpu) -> None:
    """Load the dwords of 132 bytes from 120 on: hipCUB's partition kernels have that load, aligned to 8 bytes."""
    out = device.upload(np.ones(64, np.uint32))
    launch(device, assemble(_READ.format(offset=120), kernarg_bytes=132), out)
    assert not device.read(out, np.uint32).any()


@on_device("gfx942", whole=True)
def test_load_after_segment_faults(device: EmulatedGpu) -> None:
    out = device.upload(np.ones(64, np.uint32))
    with pytest.raises(DeviceFaultError, match="load of 16 bytes"):
        launch(device, assemble(_READ.format(offset=144), kernarg_bytes=132), out)
