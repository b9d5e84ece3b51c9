"""MODE changes some results of floating point and leaves others alone, as measurements and AMD's documents have it.

The rules are rows of docs/reference/device-semantics.md.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest

from emulator_wave import memory_base, run_wave
from oracle.typed_buffers import f32

KEEP, FLUSH_F32, FLUSH_F16, FLUSH = 0xF0, 0xC0, 0x30, 0x00  # MODE's field FP_DENORM
ROUND_UP_F32, FP16_OVFL = 1, 1 << 23


def f16(value: float) -> int:
    return int(np.float16(value).view(np.uint16))


def first_lane(assembly: str, vectors: dict[int, Any], *, mode: int = KEEP, arch: str = "gfx950") -> int:
    """The first lane of v30 after ``assembly``."""
    return int(run_wave(assembly, vectors, mode=mode, arch=arch).vector[30, 0])


# --- frexp ---


@pytest.mark.parametrize("mode", [KEEP, FLUSH_F32, 0xE0, 0xD0, FLUSH])
@pytest.mark.parametrize(
    ("bits", "exponent", "mantissa"),
    [
        (0x00400000, -126, 0x3F000000),
        (0x00000001, -148, 0x3F000000),
        (0x007FFFFF, -126, 0x3F7FFFFE),
        (0x80000001, -148, 0xBF000000),
        (0x00800000, -125, 0x3F000000),
        (0xFF7FFFFF, 128, 0xBF7FFFFF),
        (0x80000000, 0, 0x80000000),
        (0xFF800000, 0, 0xFF800000),
    ],
)
def test_frexp_of_f32_counts_subnormals_in_every_mode(bits: int, exponent: int, mantissa: int, mode: int) -> None:
    """SemiAnalysisAI/FuzzX, m077: on a gfx950 "denormal-aware regardless of f32 flush mode", as APFloat's frexp."""
    assert first_lane("v_frexp_exp_i32_f32 v30, v20\n", {20: bits}, mode=mode) == exponent & 0xFFFFFFFF
    assert first_lane("v_frexp_mant_f32 v30, v20\n", {20: bits}, mode=mode) == mantissa


@pytest.mark.parametrize("mode", [KEEP, FLUSH_F16])
def test_frexp_of_f64_flushes_its_source_by_mode(mode: int) -> None:
    """rocjitsu, compared with a gfx1201: the exponent. 0x0008000000000000 is 2**-1023, of which the mantissa is 0.5."""
    assembly = "v_frexp_exp_i32_f64 v30, v[20:21]\nv_frexp_mant_f64 v[32:33], v[20:21]\n"
    after = run_wave(assembly, {20: 0, 21: 0x80080000}, mode=mode)
    exponent, low, high = (int(after.vector[row, 0]) for row in (30, 32, 33))
    assert (exponent, low, high) == ((-1022 & 0xFFFFFFFF, 0, 0xBFE00000) if mode == KEEP else (0, 0, 0x80000000))


# --- FP16_OVFL ---

BIG, MOST, INFINITE = f16(60000.0), 0x7BFF, 0x7C00
OVERFLOWS = [  # of finite sources: v20 is an f32 of 1e6, v21 two f16 of 60000, v22 the greatest u16
    "v_cvt_f16_f32 v30, v20",
    "v_cvt_pk_f16_f32 v30, v20, v20",
    "v_cvt_f16_u16 v30, v22",
    "v_add_f16 v30, v21, v21",
    "v_mul_f16 v30, v21, v21",
    "v_fma_f16 v30, v21, v21, v21",
    "v_mad_f16 v30, v21, v21, v21",
    "v_ldexp_f16 v30, v21, 4",
    "v_exp_f16 v30, v21",
    "v_rcp_f16 v30, v23",
    "v_pk_add_f16 v30, v21, v21",
    "v_pk_mul_f16 v30, v21, v21",
    "v_pk_fma_f16 v30, v21, v21, v21",
    "v_fma_mixlo_f16 v30, v20, 1.0, 0",
    "v_fma_mixlo_f16 v30, v24, v24, 0",
]
SOURCES = {20: f32(1e6), 21: BIG * 0x10001, 22: 0xFFFF, 23: 1, 24: f32(3e38)}


@pytest.mark.parametrize("rounding", [0, 1])
@pytest.mark.parametrize("instruction", OVERFLOWS)
def test_too_large_f16_becomes_largest_with_fp16_ovfl(instruction: str, rounding: int) -> None:
    """AMD, MODE.FP16_OVFL: "an overflowed FP16 result is clamped to +/- MAX_FP16, regardless of round mode"."""
    mode = KEEP | rounding << 2
    assert first_lane(f"{instruction}\n", SOURCES, mode=mode) & 0xFFFF == INFINITE
    assert first_lane(f"{instruction}\n", SOURCES, mode=mode | FP16_OVFL) & 0xFFFF == MOST


@pytest.mark.parametrize(
    "instruction",
    [
        *("v_cvt_f16_f32 v30, v20", "v_cvt_pk_f16_f32 v30, v20, v20", "v_fma_mixlo_f16 v30, v20, 1.0, 0"),
        *("v_add_f16 v30, v21, v22", "v_exp_f16 v30, v21", "v_pk_mul_f16 v30, v21, v22", "v_pk_max_f16 v30, v21, v22"),
        *("v_rcp_f16 v30, v23", "v_rsq_f16 v30, v23"),
    ],
)
def test_fp16_ovfl_preserves_infinity(instruction: str) -> None:
    """AMD, MODE.FP16_OVFL: "still preserving true INF values"; RDNA3: so does a division by zero."""
    sources = {20: f32(float("inf")), 21: INFINITE * 0x10001, 22: BIG * 0x10001, 23: 0}
    assert first_lane(f"{instruction}\n", sources, mode=KEEP | FP16_OVFL) & 0xFFFF == INFINITE


def test_negative_overflow_keeps_its_sign_with_fp16_ovfl() -> None:
    assembly = "v_cvt_f16_f32 v30, -v20\n"
    assert first_lane(assembly, {20: f32(1e6)}, mode=KEEP | FP16_OVFL) & 0xFFFF == 0x8000 | MOST


# --- subnormals of f16: wooseoklee's measurements of -2**-24 * 2**-14, llvm-project pull request 205101 ---

PRODUCT = {20: 0x8001, 21: 0x0400}
KEPT = 0xAC800000  # -2**-38


@pytest.mark.parametrize("arch", ["gfx90a", "gfx950"])
@pytest.mark.parametrize(("mode", "expected"), [(KEEP, KEPT), (FLUSH_F32, KEPT), (FLUSH_F16, 0), (FLUSH, 0)])
def test_fma_mix_flushes_f16_sources_by_mode(mode: int, expected: int, arch: str) -> None:
    assembly = "v_fma_mix_f32 v30, v20, v21, 0 op_sel_hi:[1,1,0]\n"
    assert first_lane(assembly, PRODUCT, mode=mode, arch=arch) == expected


@pytest.mark.parametrize(("mode", "expected"), [(KEEP, 0x8001), (FLUSH_F32, 0x8001), (FLUSH_F16, 0x8000)])
def test_fma_mix_flushes_f16_result_by_mode(mode: int, expected: int) -> None:
    """CDNA3 ISA, MODE: FP_DENORM[3:2] is of f64 and f16."""
    assembly = "v_fma_mixlo_f16 v30, v20, 1.0, 0\n"
    assert first_lane(assembly, {20: f32(-(2.0**-24))}, mode=mode) & 0xFFFF == expected


@pytest.mark.parametrize("mode", [KEEP, FLUSH_F32, FLUSH])
@pytest.mark.parametrize(("arch", "expected"), [("gfx90a", 0), ("gfx950", KEPT)])
@pytest.mark.parametrize("instruction", ["v_dot2_f32_f16 v30, v20, v21, 0", "v_dot2c_f32_f16 v30, v20, v21"])
def test_dot_product_of_f16_flushes_on_gfx90a_alone(instruction: str, arch: str, expected: int, mode: int) -> None:
    assert first_lane(f"{instruction}\n", PRODUCT | {30: 0}, mode=mode, arch=arch) == expected


ONE_F16, ONE_BF16, LEAST_F16, LEAST_BF16 = 0x3C00, 0x3F80, 0x0001, 0x0001


@pytest.mark.parametrize(
    ("instruction", "a", "b", "c", "kept"),
    [
        ("v_mfma_f32_16x16x16f16 v[30:33], v[20:21], v[22:23], v[24:27]", LEAST_F16, ONE_F16, 0, 2.0**-24 * 16),
        ("v_mfma_f32_4x4x4f16 v[30:33], v[20:21], v[22:23], v[24:27]", LEAST_F16, ONE_F16, 0, 2.0**-24 * 4),
        ("v_mfma_f32_16x16x16f16 v[30:33], v[20:21], v[22:23], v[24:27]", 0, ONE_F16, 1, 2.0**-149),
        ("v_mfma_f32_16x16x1f32 v[30:45], v20, v22, v[46:61]", 1, f32(1.0), 0, 2.0**-149),
    ],
    ids=["f16", "f16 of several blocks", "addend", "f32"],
)
@pytest.mark.parametrize("arch", ["gfx90a", "gfx942"])
def test_matrix_unit_of_gfx90a_flushes_f16(instruction: str, a: int, b: int, c: int, kept: float, arch: str) -> None:
    """AMD, MIOpen's "MI200 MFMA behavior specifics": F16 and BF16 "flush subnormal input/output data to zero"."""
    packed = 1 if "f32 v[30:45]" in instruction else 0x10001
    vectors = {20: a * packed, 21: a * packed, 22: b * packed, 23: b * packed}
    addends = dict.fromkeys((*range(24, 28), *range(46, 62)), c)
    assembly = (
        instruction if arch == "gfx90a" else instruction.replace("f16 v[3", "_f16 v[3").replace("1f32", "1_4b_f32")
    )
    assembly = assembly.replace("4x4x4_f16", "4x4x4_16b_f16") + "\ns_nop 15\ns_nop 15\n"
    flushes = arch == "gfx90a" and "f16" in instruction
    assert first_lane(assembly, vectors | addends, arch=arch) == (0 if flushes else f32(kept))


# --- atomics ---


def sum_in_memory(name: str, value: int, addend: int, mode: int) -> int:
    """The dword that ``global_atomic_NAME`` leaves."""
    base = memory_base()
    scalars = {4: base & 0xFFFFFFFF, 5: base >> 32}
    assembly = f"global_atomic_{name} v20, v21, s[4:5]\ns_waitcnt vmcnt(0)\n"
    memory = struct.pack("<I", value)
    after = run_wave(assembly, {20: 0, 21: addend}, scalars, mode=mode, execute=1, memory=memory)
    return int(struct.unpack("<I", after.memory[base])[0])


def sum_in_lds(value: int, addend: int, mode: int) -> int:
    assembly = "ds_write_b32 v20, v21\ns_waitcnt lgkmcnt(0)\nds_add_f32 v20, v22\ns_waitcnt lgkmcnt(0)\n"
    after = run_wave(assembly, {20: 0, 21: value, 22: addend}, mode=mode, execute=1, lds=64)
    return int(struct.unpack_from("<I", after.lds)[0])


def test_atomic_sum_of_f32_rounds_to_nearest_in_every_mode() -> None:
    """LLVM, pull request 89468, of LDS: "They don't respect the rounding mode". 1 + 2**-24 is half way."""
    value, half = f32(1.0), f32(2.0**-24)
    assert sum_in_memory("add_f32", value, half, KEEP | ROUND_UP_F32) == value
    assert sum_in_lds(value, half, KEEP | ROUND_UP_F32) == value


def test_mode_flushes_atomic_sums_of_f32_in_lds_alone() -> None:
    """LLVM, pull request 89468: in LDS they respect the denormal mode; RDNA4 ISA: in memory they "ignore this mode"."""
    assert sum_in_memory("add_f32", 3, 1, FLUSH) == 4
    assert sum_in_lds(3, 1, FLUSH) == 0
    assert sum_in_lds(3, 1, KEEP) == 4


def test_mode_leaves_packed_atomic_sums_in_memory_alone() -> None:
    """RDNA4 ISA: memory atomics "ignore this mode". The bf16 are subnormal."""
    assert sum_in_memory("pk_add_bf16", 0x00030001, 0x00010001, FLUSH) == 0x00040002


# --- conversions that the host does ---


@pytest.mark.parametrize("mode", [KEEP, KEEP | ROUND_UP_F32, KEEP | 2, KEEP | 3])
def test_normalised_component_rounds_to_nearest_in_every_mode(mode: int) -> None:
    """Graphics APIs' unorm: the quotient of the f32 1 / 255 lies below its nearest number. MODE is of the VALU."""
    base = memory_base()
    unorm8 = 1 << 15 | 4  # DATA_FORMAT 8, NUM_FORMAT UNORM; the first component is that of memory
    scalars = {40: base & 0xFFFFFFFF, 41: base >> 32, 42: 64, 43: unorm8}
    after = run_wave(
        "buffer_load_format_x v30, v20, s[40:43], 0 offen\n", {20: 0}, scalars, mode=mode, memory=bytes([1, 2, 3, 4])
    )
    assert after.vector[30, 0] == f32(float(np.float32(1 / 255)))
