"""Kernels that need registers that their descriptor doesn't grant, or misaligned tuples of registers, are refused.

The message has the instruction, the register and the count.
"""

from __future__ import annotations

import struct

import pytest

from ckpm_emulator import image
from ckpm_emulator.device import EmulatedGpu
from ckpm_emulator.faults import DeviceFaultError
from ckpm_emulator.lowering.descriptor import Granted
from tests.emulator.emulator_assembly import assemble, launch
from tests.emulator.emulator_child import on_device

# 64 vector and accumulation registers, of which 32 are accumulation registers, and 80 scalar registers.
KERNEL = """
s_mov_b32 s60, 1
v_mov_b32 v31, 1
v_accvgpr_write_b32 a31, v31
v_mfma_f32_16x16x16_f16 a[0:3], v[2:3], v[4:5], a[0:3]
s_cbranch_scc1 1f
v_lshlrev_b64 v[6:7], 1, v[8:9]
1: s_load_dwordx4 s[4:7], s[0:1], 0x0
s_endpgm
"""
RSRC3, RSRC1, RSRC2 = 44, 48, 52  # bytes in the descriptor


def edit_descriptor(code: bytes, at: int, field: int, low: int, value: int) -> bytes:
    """The code with another value in a field of the kernel's descriptor."""
    (kernel,) = image.read(code).kernels
    words = struct.pack("<6I", *(getattr(kernel, name) for name in ("rsrc3", "rsrc1", "rsrc2")), 0, 0, 0)[:12]
    start = code.index(words) - RSRC3 + at
    (word,) = struct.unpack_from("<I", code, start)
    word = word & ~(((1 << field) - 1) << low) | value << low
    return code[:start] + struct.pack("<I", word) + code[start + 4 :]


def refusal_message(device: EmulatedGpu, code: bytes) -> str:
    """The device's message about a kernel that it doesn't launch."""
    with pytest.raises(DeviceFaultError) as caught:
        launch(device, code)
    device.clear_fault()
    assert caught.value.fault.kind == "registers"
    assert caught.value.fault.lane is None
    return caught.value.fault.message


@on_device("gfx942", whole=True)
def test_kernel_with_what_it_needs_runs(device: EmulatedGpu) -> None:
    launch(device, assemble(KERNEL))


@pytest.mark.parametrize(
    ("word", "field", "low", "value", "said"),
    [
        (RSRC1, 6, 0, 3, "v_accvgpr_write v[31], v[31]: a31 is beyond the 0 accumulation registers"),
        (RSRC1, 6, 0, 1, "v_mov_b32_e32 v[31], 1: v31 is beyond the 16 vector registers"),
        (RSRC3, 6, 0, 3, "v_mov_b32_e32 v[31], 1: v31 is beyond the 16 vector registers"),
        (RSRC3, 6, 0, 8, "a31 is beyond the 28 accumulation registers"),
        (RSRC1, 4, 6, 4, "s_mov_b32 s[60], 1: s60 is beyond the 48 scalar registers"),
    ],
    ids=["halved", "quartered", "fewer before the accumulation registers", "more before them", "scalars"],
)
@on_device("gfx942", whole=True)
def test_registers_beyond_descriptors_count_stop_launch(
    device: EmulatedGpu, word: int, field: int, low: int, value: int, said: str
) -> None:
    message = refusal_message(device, edit_descriptor(assemble(KERNEL), word, field, low, value))
    assert said in message
    assert "kernel test_kernel" in message
    assert "workgroup" not in message


@on_device("gfx942", whole=True)
def test_fewer_user_scalars_than_are_enabled_stop_launch(device: EmulatedGpu) -> None:
    """The arguments' address takes two, followed by the workgroup's number."""
    message = refusal_message(device, edit_descriptor(assemble(KERNEL), RSRC2, 5, 1, 1))
    assert "1 user SGPRs, where the descriptor enables 2" in message


@on_device("gfx942", whole=True)
def test_scratch_that_is_not_enabled_stops_launch(device: EmulatedGpu) -> None:
    code = assemble("scratch_store_dword off, v0, off\ns_endpgm\n")
    launch(device, edit_descriptor(code, RSRC2, 1, 0, 1))
    message = refusal_message(device, edit_descriptor(code, RSRC2, 1, 0, 0))
    assert "scratch_store_dword" in message
    assert "the kernel's descriptor enables no scratch" in message


# (bytes of an instruction, the same with another register, what is said of it)
MISPLACED = {
    "an operand of an MFMA": ("v[2:3]", "02090204", "03090204", "2 registers can't begin at v3"),
    "the result of an MFMA": ("a[0:3]", "0080cdd3", "0180cdd3", "4 registers can't begin at a1"),
    "a shift of 64 bits": ("v[6:7]", "06008fd2", "07008fd2", "2 registers can't begin at v7"),
    "four scalars": ("s[4:7]", "00010ac0", "80010ac0", "4 registers can't begin at s6"),
}


@pytest.mark.parametrize("case", MISPLACED)
@on_device("gfx942", whole=True)
def test_tuple_where_none_may_begin_stops_launch(device: EmulatedGpu, case: str) -> None:
    _, before, after, said = MISPLACED[case]
    code = assemble(KERNEL)
    assert code.count(bytes.fromhex(before)) == 1
    assert said in refusal_message(device, code.replace(bytes.fromhex(before), bytes.fromhex(after)))


@on_device("gfx942", whole=True)
def test_code_that_kernel_does_not_reach_is_not_judged(device: EmulatedGpu) -> None:
    launch(device, assemble(KERNEL + "v_mov_b32 v60, 1\n"))


def test_counts_of_descriptor() -> None:
    """LLVM's guide: GRANULATED_WORKITEM_VGPR_COUNT max(0, ceil(n / 8) - 1), GRANULATED_WAVEFRONT_SGPR_COUNT
    2 * max(0, ceil(n / 16) - 1), ACCUM_OFFSET in fours, less one."""
    assert Granted.of(rsrc1=63 | 12 << 6, rsrc3=63) == Granted(112, 256, 256)
    assert Granted.of(rsrc1=0, rsrc3=0) == Granted(16, 4, 4)
    assert Granted.of(rsrc1=31, rsrc3=63) == Granted(16, 256, 0)
