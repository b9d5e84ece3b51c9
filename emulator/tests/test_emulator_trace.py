"""The trace of one wave: what it executed, where it is in the code object, and what the destinations held."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from ckpm_emulator.device import EmulatedGpu
from ckpm_emulator.faults import DeviceFaultError
from ckpm_emulator.image import read
from ckpm_emulator.options import Trace
from emulator_assembly import assemble, check_fault, launch, launch_fault
from emulator_child import on_device

# Instructions of 4 bytes, but the first and the last two.
BODY = """
s_load_dwordx2 s[4:5], s[0:1], 0x0
s_mov_b32 s8, 7
v_lshlrev_b32 v1, 2, v0
v_add_u32 v2, s2, v0
s_waitcnt lgkmcnt(0)
global_store_dword v1, v2, s[4:5]
s_endpgm
"""
OFFSETS = [0, 8, 12, 16, 20, 24, 32]


def trace_lines(text: str) -> list[tuple[int, str]]:
    lines = re.findall(r"^([0-9a-f]+)  (.+)$", text, flags=re.MULTILINE)
    return [(int(address, 16), instruction) for address, instruction in lines]


@on_device("gfx942")
def test_one_wave_of_one_workgroup(device: EmulatedGpu, tmp_path: Path) -> None:
    file = tmp_path / "trace.txt"
    device.configure(trace=Trace(file=str(file), kernel="test_k", workgroup=2, wave=1))
    code, out = assemble(BODY), device.upload(np.zeros(128, np.uint32))
    launch(device, code, out, threads=128, groups=3)
    text = file.read_text()
    entry = read(code).functions[0].address
    assert [address - entry for address, _ in trace_lines(text)] == OFFSETS
    assert [instruction for _, instruction in trace_lines(text)][:4] == [
        "s_load_dwordx2 s[4:5], s[0:1]",
        "s_mov_b32 s[8], 7",
        "v_lshlrev_b32_e32 v[1], 2, v[0]",
        "v_add_u32_e32 v[2], s[2], v[0]",
    ]
    # Lanes 0, 1, 2, 3 and 63 of v2 = the workgroup's number + the thread's, in the second wave.
    assert f"v[0]\n        = {66:08x} {67:08x} {68:08x} {69:08x} .. {129:08x}  exec ffffffffffffffff\n" in text
    assert "s_mov_b32 s[8], 7\n        = 00000007" in text


@pytest.mark.parametrize(
    "other", [{"kernel": "another"}, {"workgroup": 1}, {"wave": 1}], ids=["kernel", "workgroup", "wave"]
)
@on_device("gfx942")
def test_nothing_else_is_traced(device: EmulatedGpu, tmp_path: Path, other: dict[str, object]) -> None:
    file = tmp_path / "trace.txt"
    device.configure(trace=Trace(file=str(file), **other))  # type: ignore[arg-type]
    launch(device, assemble(BODY), device.malloc(256))
    assert not file.exists()


@on_device("gfx942")
def test_fault_is_at_last_line_of_trace(device: EmulatedGpu, tmp_path: Path) -> None:
    file = tmp_path / "trace.txt"
    device.configure(trace=Trace(file=str(file)))
    code, out = assemble(BODY), device.malloc(128)
    with pytest.raises(DeviceFaultError) as caught:
        launch(device, code, out)
    fault = caught.value.fault
    assert (fault.pc, fault.text) == trace_lines(file.read_text())[-1]
    assert fault.pc == read(code).functions[0].address + 24
    assert fault.text == "global_store_dword v[1], v[2], s[4:5]"
    assert f"pc {fault.pc:#x}  {fault.text}\n" in fault.message


@on_device("gfx942")
def test_trace_on_full_disk_fails_launch(device: EmulatedGpu) -> None:
    device.configure(trace=Trace(file="/dev/full"))
    fault = launch_fault(device, assemble(BODY), device.malloc(256))
    check_fault(fault, "internal", detail="trace file can't be written: /dev/full: No space left on device")
