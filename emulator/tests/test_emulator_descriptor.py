"""Kernels that need registers that their descriptor doesn't grant, or misaligned tuples of registers, are refused.

So are kernels whose descriptor contradicts the metadata.

The message has the instruction, the register and the count.
"""

from __future__ import annotations

import struct

import numpy as np
import pytest

from ckpm_emulator import image
from ckpm_emulator.device import EmulatedGpu
from ckpm_emulator.faults import DeviceFaultError
from ckpm_emulator.lowering.descriptor import Granted
from emulator_assembly import assemble, launch
from emulator_child import on_device

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
LDS, KERNARG, ENTRY, RSRC3, RSRC1, RSRC2, PROPERTIES = 0, 8, 16, 44, 48, 52, 56  # bytes in the descriptor


def edit_descriptor(code: bytes, at: int, field: int, low: int, value: int) -> bytes:
    """The code with another value in a field of the kernel's descriptor."""
    return edit_word(code, at, descriptor_word(code, at) & ~(((1 << field) - 1) << low) | value << low)


def refusal_message(device: EmulatedGpu, code: bytes) -> str:
    """The device's message about a kernel that it doesn't launch."""
    with pytest.raises(DeviceFaultError) as caught:
        launch(device, code)
    device.clear_fault()
    assert caught.value.fault.kind == "registers"
    assert caught.value.fault.lane is None
    return caught.value.fault.message


@on_device("gfx942")
def test_kernel_with_what_it_needs_runs(device: EmulatedGpu) -> None:
    launch(device, assemble(KERNEL))


@on_device("gfx942")
def test_code_without_accumulation_has_all_vectors(device: EmulatedGpu) -> None:
    """64 registers, of which ACCUM_OFFSET leaves 32 as vector registers: AITER's forward kernels use the rest so."""
    launch(device, edit_descriptor(assemble("v_mov_b32 v63, 1\ns_endpgm\n"), RSRC3, 6, 0, 7))
    both = assemble("v_mov_b32 v63, 1\nv_accvgpr_write_b32 a0, 1\ns_endpgm\n")
    assert "v63 is beyond the 32 vector registers" in refusal_message(device, edit_descriptor(both, RSRC3, 6, 0, 7))


NOTHING = "s_endpgm\n"  # needs no register itself


@pytest.mark.parametrize(
    ("body", "word", "field", "low", "value", "reason"),
    [
        (KERNEL, RSRC1, 6, 0, 3, "v_accvgpr_write v[31], v[31]: a31 is beyond the 0 accumulation registers"),
        (KERNEL, RSRC1, 6, 0, 1, "v_mov_b32_e32 v[31], 1: v31 is beyond the 16 vector registers"),
        (KERNEL, RSRC3, 6, 0, 3, "v_mov_b32_e32 v[31], 1: v31 is beyond the 16 vector registers"),
        (KERNEL, RSRC3, 6, 0, 8, "a31 is beyond the 28 accumulation registers"),
        (KERNEL, RSRC1, 4, 6, 4, "s_mov_b32 s[60], 1: s60 is beyond the 48 scalar registers"),
        # the arguments' address takes two, followed by the workgroup's number
        (KERNEL, RSRC2, 5, 1, 1, "1 user SGPRs, where the descriptor enables 2"),
        (NOTHING, RSRC1, 6, 0, 6, "the metadata count 64 vector registers, the kernel's descriptor grants 56"),
        (NOTHING, RSRC1, 4, 6, 4, "the metadata count 64 scalar registers, the kernel's descriptor grants 48"),
    ],
)
@on_device("gfx942")
def test_registers_beyond_descriptors_count_stop_launch(
    device: EmulatedGpu, body: str, word: int, field: int, low: int, value: int, reason: str
) -> None:
    message = refusal_message(device, edit_descriptor(assemble(body), word, field, low, value))
    assert reason in message
    assert "kernel test_kernel" in message
    assert "workgroup" not in message


@on_device("gfx942")
def test_scratch_that_is_not_enabled_stops_launch(device: EmulatedGpu) -> None:
    code = assemble("scratch_store_dword off, v0, off\ns_endpgm\n")
    launch(device, edit_descriptor(code, RSRC2, 1, 0, 1))
    message = refusal_message(device, edit_descriptor(code, RSRC2, 1, 0, 0))
    assert "scratch_store_dword" in message
    assert "the kernel's descriptor enables no scratch" in message


def edit_word(code: bytes, at: int, value: int) -> bytes:
    """The code with another 32-bit word in the kernel's descriptor. Its segment lies in the file as in memory."""
    (kernel,) = image.read(code).kernels
    start = kernel.descriptor_address + at
    return code[:start] + struct.pack("<I", value) + code[start + 4 :]


def descriptor_word(code: bytes, at: int) -> int:
    """A 32-bit word of the kernel's descriptor."""
    (kernel,) = image.read(code).kernels
    word: int
    (word,) = struct.unpack_from("<I", code, kernel.descriptor_address + at)
    return word


@pytest.mark.parametrize(
    ("at", "change", "reason"),
    [
        (ENTRY, 4, "enters it 4 bytes from its start"),
        (ENTRY, -256, "enters it -256 bytes from its start"),
        (LDS, -512, "the metadata have 1024 bytes of LDS, the kernel's descriptor 512"),
        (LDS, 4, "the metadata have 1024 bytes of LDS, the kernel's descriptor 1028"),
        (KERNARG, 8, "the metadata have 16 bytes of arguments, the descriptor 8"),
        (PROPERTIES, 1 << 10, "waves of 32 lanes, where gfx9 has 64"),
    ],
)
@on_device("gfx942")
def test_descriptor_that_contradicts_metadata_stops_launch(
    device: EmulatedGpu, at: int, change: int, reason: str
) -> None:
    code = assemble(KERNEL, lds_bytes=1024)
    message = refusal_message(device, edit_word(code, at, descriptor_word(code, at) + change))
    assert reason in message
    assert "kernel test_kernel" in message


@on_device("gfx942")
def test_more_registers_than_metadata_count_run(device: EmulatedGpu) -> None:
    """LLVM grants more where a kernel shall have fewer waves at a time."""
    launch(device, edit_descriptor(assemble("s_endpgm\n"), RSRC1, 6, 0, 31))


@on_device("gfx942")
def test_arguments_beyond_their_segment_stop_launch(device: EmulatedGpu) -> None:
    """The kernel takes two addresses."""
    message = refusal_message(device, assemble("s_endpgm\n", kernarg_bytes=0))
    assert "the arguments take 16 bytes, of which the kernel's segment has 0" in message


# Of 1 + 3/4 of its last place, and of the same negative: down and up, and to zero (ISA: nearest, +inf, -inf, zero).
ABOVE, ONE = 0x3F800001, 0x3F800000
ROUNDED = {0: (ABOVE, ABOVE), 1: (ABOVE, ONE), 2: (ONE, ABOVE), 3: (ONE, ONE)}
SUMS = {
    "add": "v_add_f32 v4, v2, v3\nv_sub_f32 v5, -v2, v3",
    "fma": "v_fma_f32 v4, 1.0, v2, v3\nv_fma_f32 v5, -1.0, v2, -v3",
    "fmac": "v_mov_b32 v4, v2\nv_fmac_f32 v4, 1.0, v3\nv_xor_b32 v5, 0x80000000, v2\nv_fmac_f32 v5, -1.0, v3",
    "packed": "v_mov_b32 v8, v2\nv_xor_b32 v9, 0x80000000, v2\nv_mov_b32 v10, v3\nv_xor_b32 v11, 0x80000000, v3\n"
    "v_pk_add_f32 v[4:5], v[8:9], v[10:11]",
}


@pytest.mark.parametrize("rounding", ROUNDED)
@pytest.mark.parametrize("name", SUMS)
@on_device("gfx942")
def test_rounding_of_f32_is_descriptors(device: EmulatedGpu, name: str, rounding: int) -> None:
    """The two lowest bits of FLOAT_MODE, bits 12 and 13 of compute_pgm_rsrc1."""
    body = f"""s_load_dwordx2 s[4:5], s[0:1], 0x0
v_mov_b32 v2, 1.0
v_mov_b32 v3, 0x33c00000
{SUMS[name]}
v_mov_b32 v1, 0
s_waitcnt lgkmcnt(0)
global_store_dwordx2 v1, v[4:5], s[4:5]
s_endpgm
"""
    out = device.malloc(8)
    launch(device, edit_descriptor(assemble(body), RSRC1, 2, 12, rounding), out)
    up, down = ROUNDED[rounding]
    assert [hex(word) for word in device.read(out, "u4")] == [hex(up), hex(down | 1 << 31)]


# (bytes of an instruction, the same with another register, what is said of it)
MISPLACED = {
    "an operand of an MFMA": ("v[2:3]", "02090204", "03090204", "2 registers can't begin at v3"),
    "the result of an MFMA": ("a[0:3]", "0080cdd3", "0180cdd3", "4 registers can't begin at a1"),
    "a shift of 64 bits": ("v[6:7]", "06008fd2", "07008fd2", "2 registers can't begin at v7"),
    "four scalars": ("s[4:7]", "00010ac0", "80010ac0", "4 registers can't begin at s6"),
}


@pytest.mark.parametrize("case", MISPLACED)
@on_device("gfx942")
def test_tuple_where_none_may_begin_stops_launch(device: EmulatedGpu, case: str) -> None:
    _, before, after, reason = MISPLACED[case]
    code = assemble(KERNEL)
    assert code.count(bytes.fromhex(before)) == 1
    assert reason in refusal_message(device, code.replace(bytes.fromhex(before), bytes.fromhex(after)))


@on_device("gfx942")
def test_code_that_kernel_does_not_reach_is_not_judged(device: EmulatedGpu) -> None:
    launch(device, assemble(KERNEL + "v_mov_b32 v60, 1\n"))


def test_counts_of_descriptor() -> None:
    """LLVM's guide: GRANULATED_WORKITEM_VGPR_COUNT max(0, ceil(n / 8) - 1), GRANULATED_WAVEFRONT_SGPR_COUNT
    2 * max(0, ceil(n / 16) - 1), ACCUM_OFFSET in fours, less one."""
    assert Granted.of(rsrc1=63 | 12 << 6, rsrc3=63) == Granted(112, 256, 256)
    assert Granted.of(rsrc1=0, rsrc3=0) == Granted(16, 4, 4)
    assert Granted.of(rsrc1=31, rsrc3=63) == Granted(16, 256, 0)


# ---- scratch as gfx90a's kernels reach it: through a buffer resource that their first four scalars hold

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


def scratch_kernel(body: str) -> bytes:
    code = assemble(f"{PROLOGUE}{body}{WAIT}s_endpgm\n", "gfx90a")
    return edit_descriptor(edit_descriptor(code, PROPERTIES, 1, 0, 1), RSRC2, 5, 1, 6)


@on_device("gfx90a")
def test_each_lane_of_each_wave_has_bytes_of_its_own(device: EmulatedGpu) -> None:
    """A lane's offset is its own, that of a scalar counts the bytes of 64 lanes."""
    body = (
        "v_mul_u32_u24 v2, 3, v0\nbuffer_store_dword v2, v3, s[0:3], 0 offen offset:16\n"
        "s_movk_i32 s12, 0x800\nbuffer_store_byte v0, off, s[0:3], s12 offset:3\n"
        f"{WAIT}buffer_load_dword v4, v3, s[0:3], 0 offen offset:16\nbuffer_load_ubyte v5, off, s[0:3], 0 offset:35\n"
        f"{WAIT}v_lshl_add_u32 v4, v4, 8, v5\nglobal_store_dword v1, v4, s[10:11]\n"
    )
    source, out = device.malloc(4), device.malloc(512)
    launch(device, scratch_kernel(body), source, out, threads=128)
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
@on_device("gfx90a")
def test_what_is_not_scratch_of_lane_stops_launch(device: EmulatedGpu, body: str, kind: str, reason: str) -> None:
    with pytest.raises(DeviceFaultError) as caught:
        launch(device, scratch_kernel(body), device.malloc(4), device.malloc(4))
    assert (caught.value.fault.kind, reason in caught.value.fault.message) == (kind, True)


@on_device("gfx90a")
def test_copy_through_scratch_is_no_use(device: EmulatedGpu) -> None:
    """v9 is never written. What scratch keeps of it is dropped, what it keeps of v2 is used."""
    device.configure(poison=True, uninitialised=True)
    body = (
        "v_mov_b32 v2, 7\nbuffer_store_dword v2, off, s[0:3], 0\nbuffer_store_short v9, off, s[0:3], 0 offset:4\n"
        f"{WAIT}buffer_load_dword v4, off, s[0:3], 0\nbuffer_load_dword v5, off, s[0:3], 0 offset:4\n"
        f"{WAIT}global_store_dword v1, v4, s[10:11]\n"
    )
    source, out = device.malloc(4), device.malloc(256)
    launch(device, scratch_kernel(body), source, out)
    assert np.array_equal(device.read(out, np.uint32), np.full(64, 7))
    with pytest.raises(DeviceFaultError, match="depends on"):
        launch(device, scratch_kernel(body.replace("v1, v4", "v1, v5")), source, out)
