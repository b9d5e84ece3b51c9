"""The settled rules of docs/reference/device-semantics.md, each as its source states it.

Assembled by the embedded toolchain, run on one wave.
"""

from __future__ import annotations

import contextlib
import struct
from fractions import Fraction

import numpy as np
import pytest

from emulator_wave import memory_base, run_wave
from oracle.typed_buffers import f32

WORDS = np.arange(1, 65, dtype=np.uint32)  # memory: dword n holds n + 1
DATA = WORDS.tobytes()


def resource(records: int, stride: int = 0) -> dict[int, int]:
    """A buffer resource in s[40:43] at the start of memory."""
    base = memory_base()
    return {40: base & 0xFFFFFFFF, 41: base >> 32 | stride << 16, 42: records, 43: 0x00020000}


def load_dword(operands: str, vectors: dict[int, int], scalars: dict[int, int]) -> int:
    """The dword that the first lane gets by ``buffer_load_dword v30, OPERANDS``."""
    return int(run_wave(f"buffer_load_dword v30, {operands}\n", vectors, scalars, memory=DATA).vector[30, 0])


@pytest.mark.parametrize(("records", "expected"), [(4, [2, 0]), (7, [2, 0]), (8, [2, 3]), (3, [0, 0]), (0, [0, 0])])
def test_dword_that_straddles_num_records_is_out_of_range(records: int, expected: list[int]) -> None:
    """LLVM, buffer out-of-bounds modes: bytes of a dword that reaches beyond the end are out of bounds, too."""
    scalars = resource(records) | {40: (memory_base() + 4) & 0xFFFFFFFF}
    after = run_wave("buffer_load_dwordx2 v[30:31], v20, s[40:43], 0 offen\n", {20: 0}, scalars, memory=DATA)
    assert after.vector[30:32, 17].tolist() == expected


def test_of_straddling_store_dwords_in_range_are_written() -> None:
    assembly = "buffer_store_dwordx2 v[30:31], v20, s[40:43], 0 offen\n"
    after = run_wave(assembly, {20: 0, 30: 0xAA, 31: 0xBB}, resource(6), memory=DATA)
    assert struct.unpack_from("<3I", after.memory[memory_base()]) == (0xAA, 2, 3)


@pytest.mark.parametrize(
    ("soffset", "voffset", "expected"),
    [(64, 8, 64 // 4 + 3), (64, 12, 64 // 4 + 4), (64, 16, 0), (80, 0, 0), (0xFFFFFFF0, 32, 0), (4, 0xFFFFFFFC, 0)],
)
def test_soffset_counts_in_range_check_without_wrapping(soffset: int, voffset: int, expected: int) -> None:
    """ROCm/rocm-systems, pull request 10928: SOFFSET counts, and only VOFFSET + inst_offset wraps at 32 bits."""
    assert load_dword("v20, s[40:43], s50 offen", {20: voffset}, resource(80) | {50: soffset}) == expected


def test_store_beyond_records_by_soffset_is_dropped() -> None:
    assembly = "buffer_store_dwordx2 v[30:31], v20, s[40:43], s50 offen\n"
    after = run_wave(assembly, {20: 0, 30: 0xAA, 31: 0xBB}, resource(8) | {50: 4}, memory=DATA)
    assert struct.unpack_from("<4I", after.memory[memory_base()]) == (1, 0xAA, 3, 4)


@pytest.mark.parametrize(("voffset", "expected"), [(0xFFFFFFF0, 1), (0xFFFFFFF4, 2), (0xFFFFFFEC, 0)])
def test_voffset_and_instruction_offset_wrap(voffset: int, expected: int) -> None:
    """ROCm/rocm-systems, pull request 10928."""
    assert load_dword("v20, s[40:43], 0 offen offset:16", {20: voffset}, resource(256)) == expected


@pytest.mark.parametrize(("voffset", "expected"), [(4, 2), (8, 0)])
def test_index_without_stride_leaves_bytes_checked(voffset: int, expected: int) -> None:
    """CDNA4 ISA 9.1.5.1: a structured buffer has a stride. The index 100 is not compared."""
    assert load_dword("v[20:21], s[40:43], 0 idxen offen", {20: 100, 21: voffset}, resource(8)) == expected


@pytest.mark.parametrize(("offset", "expected"), [(4, 2), (8, 0)])
def test_num_records_without_index_counts_bytes_at_any_stride(offset: int, expected: int) -> None:
    """CDNA4 ISA 9.1.5.1: a raw buffer is one with IdxEn 0."""
    assert load_dword("v20, s[40:43], 0 offen", {20: offset}, resource(8, stride=16)) == expected


@pytest.mark.parametrize(("index", "expected"), [(7, 7 * 16 // 4 + 1), (8, 0)])
def test_with_index_num_records_counts_elements(index: int, expected: int) -> None:
    """CDNA4 ISA 9.1.5.1: Index(vgpr) >= NumRecords."""
    assert load_dword("v20, s[40:43], 0 idxen", {20: index}, resource(8, stride=16)) == expected


@pytest.mark.parametrize(("word", "expected"), [(0, 0), (0x7000, 0), (0x8000, 2), (0x27000, 2)])
def test_resource_of_invalid_format_is_unbound(word: int, expected: int) -> None:
    """CDNA4 ISA 9.1.4: the format INVALID means "unbound resource" and is not replaced by the opcode's."""
    assembly = "buffer_load_dwordx2 v[30:31], v20, s[40:43], 0 offen\nbuffer_store_dword v21, v20, s[40:43], 0 offen\n"
    after = run_wave(assembly, {20: 4, 21: 0xAA}, resource(256) | {43: word}, memory=DATA)
    assert after.vector[30:32, 17].tolist() == [expected, expected and 3]
    assert struct.unpack_from("<2I", after.memory[memory_base()]) == (1, 0xAA if expected else 2)


def test_resource_beyond_memory_faults_only_if_lane_is_on() -> None:
    """LLVM, SIInstrInfo::hasUnwantedEffectsWhenEXECEmpty: a vector memory instruction has no effect with EXEC 0."""
    assembly, beyond = "buffer_load_dword v30, v20, s[40:43], 0 offen\n", resource(0xFFFFFFF0)
    options = {"srd_range_rule": 1}
    run_wave(assembly, {20: 0}, beyond, execute=0, memory=DATA, options=options)
    with pytest.raises(RuntimeError, match="buffer"):
        run_wave(assembly, {20: 0}, beyond, execute=1, memory=DATA, options=options)


NO_SIZE = (
    2**31 - 2
)  # num_records of every resource that Triton makes; a lane that is masked off has the offset 2**31 - 1


def test_resource_without_size_is_checked_by_lane_addresses() -> None:
    """The rule of ranges is on: a masked lane reads 0, and an overrun is found by its address."""
    assembly, options = "buffer_load_dword v30, v20, s[40:43], 0 offen\n", {"srd_range_rule": 1}
    offsets = np.where(np.arange(64) == 0, 4, NO_SIZE + 1)
    after = run_wave(assembly, {20: offsets}, resource(NO_SIZE), memory=DATA, options=options)
    assert after.vector[30].tolist() == [2, *[0] * 63]
    with pytest.raises(RuntimeError, match="outside the allocations"):
        run_wave(assembly, {20: 1 << 30}, resource(NO_SIZE), memory=DATA, options=options)


@pytest.mark.parametrize(("arch", "m0"), [("gfx950", 0xABC40100), ("gfx942", 0xABC30100)])
def test_loads_to_lds_use_low_bits_of_m0(arch: str, m0: int) -> None:
    """CDNA4 ISA 9.1.9: LDS_offset is M0[17:0]; CDNA3 ISA 9.1.9: M0[15:0]."""
    lanes = np.arange(64) * 4
    assembly = "buffer_load_dword v20, s[40:43], 0 offen lds\n"
    after = run_wave(assembly, {20: lanes}, resource(256) | {124: m0}, arch=arch, lds=2048, memory=DATA)
    assert after.lds[0x100:0x200] == DATA


def test_seventeenth_bit_of_m0_counts_on_gfx950() -> None:
    assembly = "buffer_load_dword v20, s[40:43], 0 offen lds\n"
    scalars = resource(256) | {124: 0x20000}
    after = run_wave(assembly, {20: np.arange(64) * 4}, scalars, lds=0x20100, memory=DATA)
    assert after.lds[0x20000:0x20100] == DATA


def test_three_dwords_to_lds_leave_fourth_alone() -> None:
    """CDNA4 ISA 9.1.9: TIDinWave * 16; "LOAD_DWORDX3 writes 3 dwords and skips the 4th"."""
    assembly = "buffer_load_dwordx3 v20, s[40:43], 0 offen lds\n"
    after = run_wave(assembly, {20: 0}, resource(256) | {124: 0}, lds=1024, memory=DATA)
    assert np.frombuffer(after.lds, np.uint32).reshape(64, 4).tolist() == [[1, 2, 3, 0]] * 64


@pytest.mark.parametrize(("execute", "last"), [(0xFFFFFFFF, 31), (1, 0), (1 << 20 | 1 << 9, 20), (0, -1)])
@pytest.mark.parametrize(("form", "bytes_a_lane"), [("dword", 4), ("dwordx3", 16), ("dwordx4", 16)])
def test_load_to_lds_needs_room_for_lanes_that_are_on(execute: int, last: int, form: str, bytes_a_lane: int) -> None:
    """CDNA4 ISA 9.1.9.1: out of range is looked at for each lane that writes; M0 + TIDinWave * 4 or * 16."""
    assembly, lanes = f"buffer_load_{form} v20, s[40:43], 0 offen lds\n", np.arange(64) * 4
    room = last * bytes_a_lane + (12 if form == "dwordx3" else bytes_a_lane) if execute else 0
    after = run_wave(assembly, {20: lanes}, resource(256) | {124: 0}, execute=execute, lds=max(room, 4), memory=DATA)
    for lane in (lane for lane in range(64) if execute >> lane & 1):
        assert struct.unpack_from("<I", after.lds, lane * bytes_a_lane) == (lane + 1,)
    with pytest.raises(RuntimeError, match="of LDS that the workgroup has"):
        run_wave(assembly, {20: lanes}, resource(256) | {124: 4}, execute=execute | 1, lds=max(room, 4), memory=DATA)


@pytest.mark.parametrize(("m0", "there"), [(0, False), (4, True)])
def test_load_to_lds_below_workgroups_lds_stops_launch(m0: int, there: bool) -> None:
    """CDNA3 ISA 9.1.9: LDS_ADDR = LDSbase + LDS_OFFSET + inst_offset + ..., of which inst_offset is signed here."""
    assembly, state = "global_load_lds_dword v20, s[40:41] offset:-4\n", resource(0) | {124: m0}
    stops = pytest.raises(RuntimeError, match="bytes 4294967292 to 4294967295 of the 256 bytes of LDS")
    with contextlib.nullcontext() if there else stops:
        after = run_wave(assembly, {20: 4}, state, arch="gfx942", execute=1, lds=256, memory=DATA)
        assert after.lds[:8] == DATA[:4] + bytes(4)


@pytest.mark.parametrize(("execute", "room"), [(0xFFFFFFFF, 128), (1, 4), (1 << 20 | 1 << 9, 84)])
def test_access_by_thread_needs_room_for_lanes_that_are_on(execute: int, room: int) -> None:
    """CDNA4 ISA 11.3: LDS_ADDR = offset + M0 + TIDinWave * 4, of lanes that EXEC has on."""
    assembly = "ds_write_addtid_b32 v20\nds_read_addtid_b32 v21\ns_waitcnt lgkmcnt(0)\n"
    after = run_wave(assembly, {20: WORDS, 21: 0}, {124: 0}, execute=execute, lds=room)
    assert after.vector[21].tolist() == [lane + 1 if execute >> lane & 1 else 0 for lane in range(64)]
    with pytest.raises(RuntimeError, match="of LDS that the workgroup has"):
        run_wave(assembly, {20: WORDS}, {124: 4}, execute=execute, lds=room)


FLAT = """
{load} v40, v[20:21]{off}
s_waitcnt {first}
v_mov_b32 v41, v40
s_waitcnt vmcnt(0) lgkmcnt(0)
v_mov_b32 v42, v40
"""


@pytest.mark.parametrize(
    ("load", "first", "there"),
    [
        ("flat_load_dword", "vmcnt(0)", False),
        ("flat_load_dword", "lgkmcnt(0)", False),
        ("flat_load_dword", "vmcnt(0) lgkmcnt(0)", True),
        ("global_load_dword", "vmcnt(0)", True),
        ("global_load_dword", "lgkmcnt(0)", False),
    ],
)
def test_flat_is_done_when_both_counters_are(load: str, first: str, there: bool) -> None:
    """CDNA4 ISA 10.2: they increment VM_CNT and LGKM_CNT, and are not done until both have been decremented."""
    assembly = FLAT.format(load=load, first=first, off=", off" if load.startswith("global") else "")
    vectors = {20: memory_base() & 0xFFFFFFFF, 21: memory_base() >> 32}
    after = run_wave(assembly, vectors, memory=DATA, options={"late_loads": 1})
    assert bool(after.vector[41, 0] == 1) is there
    assert after.vector[42, 0] == 1


@pytest.mark.parametrize(
    ("first", "second", "wait", "there"),
    [
        ("flat_load_dword v40, v[20:21]", "flat_load_dword v42, v[20:21]", "vmcnt(1) lgkmcnt(1)", False),
        ("flat_load_dword v40, v[20:21]", "flat_load_dword v42, v[20:21]", "vmcnt(0) lgkmcnt(1)", False),
        ("flat_load_dword v40, v[20:21]", "global_load_dword v42, v[20:21], off", "vmcnt(1) lgkmcnt(0)", False),
        ("global_load_dword v40, v[20:21], off", "flat_load_dword v42, v[20:21]", "vmcnt(1)", False),
        ("ds_read_b32 v40, v22", "flat_load_dword v42, v[20:21]", "lgkmcnt(1)", False),
        ("global_load_dword v40, v[20:21], off", "global_load_dword v42, v[20:21], off", "vmcnt(1)", True),
    ],
)
def test_partial_wait_covers_no_operation_that_flat_may_outlast(
    first: str, second: str, wait: str, there: bool
) -> None:
    """CDNA3 ISA 10.2.2: "the only sensible S_WAITCNT value to use after FLAT instructions is zero"."""
    assembly = f"{first}\n{second}\ns_waitcnt {wait}\nv_mov_b32 v41, v40\ns_waitcnt vmcnt(0) lgkmcnt(0)\n"
    vectors = {20: memory_base() & 0xFFFFFFFF, 21: memory_base() >> 32, 22: 0}
    after = run_wave(assembly, vectors, lds=64, memory=DATA, options={"late_loads": 1})
    assert bool(after.vector[41, 0] in (0, 1)) is there
    assert after.vector[42, 0] == 1


@pytest.mark.parametrize(
    ("loads", "expected"),
    [
        ("flat_load_dword v40, v[20:21]\ns_waitcnt lgkmcnt(0)\nglobal_load_dword v40, v[20:21], off offset:4", 2),
        ("flat_load_dword v40, v[20:21]\nglobal_load_dword v40, v[20:21], off offset:4", None),
        ("flat_load_dword v40, v[20:21]\nflat_load_dword v40, v[20:21] offset:4", None),
        ("global_load_dword v40, v[20:21], off\nflat_load_dword v40, v[20:21] offset:4", None),
    ],
)
def test_load_into_register_of_flat_waits_for_its_lds_part(loads: str, expected: int | None) -> None:
    """LLVM's SIInsertWaitcnts.cpp: one write after another needs no wait if memory returns both, and FLAT may not."""
    assembly = f"{loads}\ns_waitcnt vmcnt(0) lgkmcnt(0)\nv_mov_b32 v41, v40\n"
    vectors = {20: memory_base() & 0xFFFFFFFF, 21: memory_base() >> 32}
    with pytest.raises(RuntimeError, match="was overwritten") if expected is None else contextlib.nullcontext():
        after = run_wave(assembly, vectors, memory=DATA, options={"late_loads": 1})
        assert after.vector[41, 0] == expected


def f16(value: float) -> int:
    return int(np.float16(value).view(np.uint16))


BETWEEN = 1 + 2.0**-11 + 2.0**-13  # nearer to the upper of 1 and 1 + 2**-10
UPPER = 1 + 2.0**-10


@pytest.mark.parametrize(("rounding", "by_mode"), [(0, UPPER), (1, UPPER), (2, 1.0), (3, 1.0)])
def test_packed_f16_conversions_round_by_themselves(rounding: int, by_mode: float) -> None:
    """CDNA4 ISA, listings: V_CVT_PK_F16_F32 to nearest even, V_CVT_PKRTZ_F16_F32 to zero, V_CVT_F16_F32 by MODE."""
    assembly = "v_cvt_pk_f16_f32 v30, v20, v20\nv_cvt_pkrtz_f16_f32 v31, v20, v20\nv_cvt_f16_f32 v32, v20\n"
    after = run_wave(assembly, {20: f32(BETWEEN)}, mode=0xF0 | rounding << 2)
    assert after.vector[30, 0] == f16(UPPER) * 0x10001
    assert after.vector[31, 0] == f16(1.0) * 0x10001
    assert after.vector[32, 0] & 0xFFFF == f16(by_mode)


# 2.0 is 0x40000000 as f32, whose lower half is 0 as f16, and 0x4000 as f16
@pytest.mark.parametrize(("op_sel_hi", "expected"), [("[1,1,1]", 3 * 2 + 5), ("[1,0,1]", 3 * 2 + 5)])
def test_inline_constant_of_fma_mix_has_type_of_op_sel_hi(op_sel_hi: str, expected: float) -> None:
    """LLVM makes of ``fpext(a) + fpext(b)`` an fma by 1.0 with all bits of op_sel_hi set."""
    after = run_wave(f"v_fma_mix_f32 v30, v20, 2.0, v21 op_sel_hi:{op_sel_hi}\n", {20: f16(3), 21: f16(5)})
    assert after.vector[30, 0] == f32(expected)


@pytest.mark.parametrize("constants", ["0.5, 1.0", "-4.0, 2.0", "0.15915494309189532, -0.5"])
def test_two_inline_constants_of_f64_operation(constants: str) -> None:
    """CDNA3 ISA, "Scalar ALU operands": of a 64-bit operation the constants are the numbers in f64."""
    low, high = struct.unpack("<II", struct.pack("<d", 3.0))
    after = run_wave(f"v_fma_f64 v[30:31], v[20:21], {constants}\n", {20: low, 21: high})
    (value,) = struct.unpack("<d", struct.pack("<II", after.vector[30, 0], after.vector[31, 0]))
    first, second = (Fraction(float(word)) for word in constants.split(","))  # 1 / (2 * pi) as the ISA document has it
    assert value == float(3 * first + second)


@pytest.mark.parametrize(("mode", "expected"), [(0xF0, 4 * 2.0**-129), (0xC0, 0.0), (0xD0, 4 * 2.0**-129)])
def test_mode_decides_on_subnormal_f32_factors(mode: int, expected: float) -> None:
    """CDNA4 ISA 7.4: MODE's denormal field of f32 inputs holds for A and B; four products of 2**-149 and 2**20."""
    assembly = "v_mfma_f32_16x16x4_f32 v[40:43], v20, v21, 0\ns_nop 15\n"
    after = run_wave(assembly, {20: 1, 21: f32(2.0**20)}, mode=mode, arch="gfx942")
    assert after.vector[40:44].view(np.float32).tolist() == [[expected] * 64] * 4
