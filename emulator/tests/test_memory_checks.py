"""Device memory that neither the host nor a kernel has written: found where a value of it is used."""

from __future__ import annotations

import numpy as np
import pytest

from ckpm_emulator.device import EmulatedGpu
from ckpm_emulator.faults import FaultReport
from emulator_assembly import assemble, check_fault, launch, launch_fault
from emulator_child import on_device
from test_emulator_checks import ARGUMENTS, RESOURCE, WAIT_OTHERS, WAIT_VECTOR

# v2 = in[i], or a part of it
LOADS = {
    "global": f"global_load_dword v2, v1, s[4:5]\n{WAIT_VECTOR}",
    "byte": f"global_load_ubyte v2, v1, s[4:5]\n{WAIT_VECTOR}",
    "buffer": f"{RESOURCE}buffer_load_dword v2, v1, s[8:11], 0 offen\n{WAIT_VECTOR}",
    "short": f"{RESOURCE}buffer_load_ushort v2, v1, s[8:11], 0 offen\n{WAIT_VECTOR}",
    "lds-dma": f"{RESOURCE}s_mov_b32 m0, 0\nbuffer_load_dword v1, s[8:11], 0 offen lds\n{WAIT_VECTOR}\n"
    f"ds_read_b32 v2, v1\n{WAIT_OTHERS}",
    "scalar": f"s_load_dword s12, s[4:5], 0xfc\n{WAIT_OTHERS}\nv_mov_b32 v2, s12",
}
STORE = "global_store_dword v1, v2, s[6:7]"
DROP = "v_and_b32 v2, 0, v2\nglobal_store_dword v1, v2, s[6:7]"


def fault_of(device: EmulatedGpu, body: str, written: int, *, late: bool = False) -> FaultReport | None:
    """The fault of a kernel that reads 64 dwords, of which the host has written the first ones."""
    device.configure(uninitialised_memory=True, poison_memory=True, late_loads=late)
    source, out = device.malloc(256), device.malloc(256)
    device.write(source, np.arange(written, dtype=np.uint32))
    return launch_fault(device, assemble(f"{ARGUMENTS}{body}\ns_endpgm", "gfx942", lds_bytes=1024), source, out)


@pytest.mark.parametrize("late", [False, True], ids=["at-once", "late"])
@pytest.mark.parametrize("name", LOADS)
@on_device("gfx942", whole=True)
def test_use_of_unwritten_memory_is_found(device: EmulatedGpu, name: str, late: bool) -> None:
    body = f"{LOADS[name]}\n{STORE}"
    assert fault_of(device, body, 64, late=late) is None
    detail = "depends on a register, LDS, scratch or memory that was never written"
    fault = fault_of(device, body, 63, late=late)
    check_fault(fault, "uninitialised", "global_store_dword ", detail, lane=0 if name == "scalar" else 63)


@pytest.mark.parametrize("name", LOADS)
@on_device("gfx942", whole=True)
def test_unwritten_memory_that_decides_nothing_passes(device: EmulatedGpu, name: str) -> None:
    assert fault_of(device, f"{LOADS[name]}\n{DROP}", 1) is None


@on_device("gfx942", whole=True)
def test_memory_that_kernel_or_memset_wrote_passes(device: EmulatedGpu) -> None:
    device.configure(uninitialised_memory=True)
    copy = assemble(f"{ARGUMENTS}{LOADS['global']}\n{STORE}\ns_endpgm", "gfx942")
    first, second, third = device.malloc(256), device.malloc(256), device.malloc(256)
    device.fill(first, 0)
    launch(device, copy, first, second)
    launch(device, copy, second, third)
    assert not device.read(third, np.uint32).any()
