"""A workgroup whose waves have more registers than a compute unit has for all of them: it runs all the same."""

from __future__ import annotations

import numpy as np

from ckpm_emulator.device import EmulatedGpu
from emulator_assembly import assemble, launch
from emulator_child import on_device

_STORE = """\
s_load_dwordx2 s[4:5], s[0:1], 0x0
v_lshlrev_b32 v1, 2, v0
s_waitcnt lgkmcnt(0)
global_store_dword v1, v0, s[4:5]
s_endpgm
"""


@on_device("gfx942", whole=True)
def test_sixteen_waves_of_all_registers(device: EmulatedGpu) -> None:
    """1024 threads of 512 registers: four waves fit on a compute unit."""
    out = device.upload(np.zeros(1024, np.uint32))
    launch(device, assemble(_STORE, vgprs=512), out, threads=1024)
    assert device.read(out, np.uint32).tolist() == list(range(1024))
