"""The oracle against facts that were typed in or come from numpy, so that it is more than a second opinion.

Property: formats convert as their standards say, and the evaluator gives the results that the listings' opcodes are
known for. Only then is a difference to the emulator worth a look.
"""

from __future__ import annotations

import math
import struct
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tinygrad.renderer.amd.dsl import src
from tinygrad.runtime.autogen.amd.cdna import ins
from tinygrad.runtime.autogen.amd.cdna.str_pcode import PCODE

from oracle import floats, mfma, operands
from oracle.errata import CHANGED
from oracle.floats import BF16, E4M3FN, E4M3FNUZ, E5M2, E5M2FNUZ, F16, F32, F64, Format, Round
from oracle.instruction import execute
from oracle.memory_instructions import transpose
from oracle.operands import State
from oracle.pcode import Cell, Scope, run, text_by_name
from oracle.syntax import ListingError, parse, tokens
from oracle.typed_buffers import f32

ALL = (1 << 64) - 1
BITS32 = st.integers(0, 0xFFFFFFFF)


def as_float(bits: int) -> float:
    return float(struct.unpack("<f", struct.pack("<I", bits))[0])


def value_of(fmt: Format, bits: int) -> float:
    packed = F64.pack(fmt.unpack(bits))
    return float(struct.unpack("<d", struct.pack("<Q", packed))[0])


# --- formats ---


DTYPES: dict[Format, Any] = {
    **{F16: np.float16, BF16: ml_dtypes.bfloat16, E4M3FN: ml_dtypes.float8_e4m3fn, E5M2: ml_dtypes.float8_e5m2},
    **{E4M3FNUZ: ml_dtypes.float8_e4m3fnuz, E5M2FNUZ: ml_dtypes.float8_e5m2fnuz, floats.E2M1: ml_dtypes.float4_e2m1fn},
    **{floats.E2M3: ml_dtypes.float6_e2m3fn, floats.E3M2: ml_dtypes.float6_e3m2fn},
}


def codes_of(fmt: Format) -> np.ndarray:
    return np.arange(1 << fmt.width, dtype=np.uint16 if fmt.width == 16 else np.uint8)


@pytest.mark.parametrize("fmt", DTYPES, ids=lambda fmt: fmt.name)
def test_every_code_has_value_of_its_dtype(fmt: Format) -> None:
    codes = codes_of(fmt)
    with np.errstate(invalid="ignore"):
        expected = codes.view(DTYPES[fmt]).astype(np.float64)
    np.testing.assert_array_equal(mfma.decode(codes.astype(np.uint32), fmt), expected)
    unpacked = [value_of(fmt, code) for code in codes.tolist()[:: max(1, len(codes) >> 8)]]
    np.testing.assert_array_equal(unpacked, expected[:: max(1, len(codes) >> 8)])


@pytest.mark.parametrize("fmt", list(DTYPES)[:6], ids=lambda fmt: fmt.name)
def test_rounding_is_that_of_its_dtype(fmt: Format) -> None:
    """Every number, all halfway between two, a little beside them, and those beyond the largest."""
    values = np.unique(codes_of(fmt).view(DTYPES[fmt]).astype(np.float32))
    values = values[np.isfinite(values)] / 2
    with np.errstate(over="ignore"):
        middle = np.append(values[1:] + values[:-1], values[[0, -1]] * np.float32(2.125))
        values = np.concatenate([2 * values, middle, np.nextafter(middle, np.float32(0)), middle * np.float32(1.001)])
        expected = values.astype(DTYPES[fmt]).view(codes_of(fmt).dtype)
    assert [fmt.pack(floats.from_float(value)) for value in values.tolist()] == expected.tolist()


@given(BITS32, st.sampled_from(list(Round)))
def test_directed_rounding_brackets_value(bits: int, mode: Round) -> None:
    if F32.is_nan(bits) or F32.exponent_field(bits) == 255:
        return
    x, result = as_float(bits), value_of(F16, F16.pack(F32.unpack(bits), mode))
    assert {Round.UP: result >= x, Round.DOWN: result <= x, Round.ZERO: abs(result) <= abs(x), Round.EVEN: True}[mode]


@pytest.mark.parametrize("fmt", DTYPES, ids=lambda fmt: fmt.name)
def test_packing_what_was_unpacked_is_identity(fmt: Format) -> None:
    codes = [code for code in range(1 << fmt.width) if not fmt.is_nan(code)]
    assert [fmt.pack(fmt.unpack(code)) for code in codes] == codes


def test_saturation_to_fp8() -> None:
    assert E4M3FN.pack(floats.from_float(1e9), saturate=True) == 0x7E
    assert E4M3FNUZ.pack(floats.from_float(-1e9), saturate=True) == 0xFF


# --- arithmetic ---


@given(BITS32, BITS32)
def test_sum_product_and_quotient_are_numpys(a: int, b: int) -> None:
    x, y = np.uint32(a).view(np.float32), np.uint32(b).view(np.float32)
    with np.errstate(all="ignore"):
        expected = [x + y, x * y, x / y]
    left, right = F32.unpack(a), F32.unpack(b)
    results = [floats.add(left, right), floats.multiply(left, right), floats.divide(left, right)]
    for number, want in zip(results, expected, strict=True):
        got = as_float(F32.pack(number))
        assert (math.isnan(got) and np.isnan(want)) or F32.pack(number) == f32(float(want))


@given(st.integers(0, 0x7F7FFFFF))
def test_square_root_is_numpys(bits: int) -> None:
    assert F32.pack(floats.square_root(F32.unpack(bits))) == f32(np.sqrt(np.uint32(bits).view(np.float32)))


def test_fma_rounds_once() -> None:
    # (1 + 2^-12)^2 - (1 + 2^-11) = 2^-24: a rounded product would give 0
    a, c = f32(1 + 2.0**-12), f32(-(1 + 2.0**-11))
    assert as_float(run_one("v_fma_f32", S0=a, S1=a, S2=c)["D0"]) == 2.0**-24


def test_signs_of_zero_sums_follow_rounding_mode() -> None:
    assert floats.add(F32.unpack(f32(1.0)), F32.unpack(f32(-1.0)), Round.DOWN).sign == 1
    assert floats.add(F32.unpack(f32(1.0)), F32.unpack(f32(-1.0)), Round.EVEN).sign == 0


# --- the evaluator ---


def run_one(name: str, *, d0: int = 0, vcc: int = 0, scc: int = 0, lane: int = 5, **sources: int) -> dict[str, int]:
    """Run one listing on 32-bit operands (64-bit if the name has it)."""
    wide = name.endswith(("64",)) and not name.startswith("v_mad")
    scope = Scope()
    for key, bits in sources.items():
        scope.set(key, "b", 64 if wide else 32, bits)
    scope.cells["D0"] = Cell(64 if wide else 32, d0, register=True)
    scope.cells["D1"] = Cell(1, 0, register=True)
    scope.cells["VCC"] = Cell(64, vcc, register=True)
    scope.cells["EXEC"] = Cell(64, ALL, register=True)
    scope.set("WAVE_MODE.IEEE", "u", 1, 1)
    scope.set("SCC", "u", 1, scc)
    scope.set("laneId", "u", 32, lane)
    text = text_by_name(name)
    assert text is not None
    run(text, scope)
    return {key: cell.bits for key, cell in scope.cells.items()}


QUIET, SIGNALLING, INFINITY = 0x7FC00000, 0x7F800001, 0x7F800000
KNOWN = [  # opcode, operands, result: worked by hand
    ("v_add_f32", (f32(1), f32(2)), f32(3)),
    ("v_subrev_f32", (f32(1), f32(2)), f32(1)),
    ("v_min_f32", (f32(1), QUIET), f32(1)),
    ("v_min_f32", (SIGNALLING, f32(1)), 0x7FC00001),
    ("v_min_f32", (0, 0x80000000), 0x80000000),
    ("v_max_f32", (0x80000000, 0), 0),
    ("v_max3_f32", (f32(1), f32(-5), f32(3)), f32(3)),
    ("v_med3_f32", (f32(7), f32(-5), f32(3)), f32(3)),
    ("v_cvt_i32_f32", (f32(-2.9),), 0xFFFFFFFE),
    ("v_cvt_i32_f32", (f32(3e9),), 0x7FFFFFFF),
    ("v_cvt_i32_f32", (QUIET,), 0),
    ("v_cvt_u32_f32", (f32(-1),), 0),
    ("v_cvt_u32_f32", (INFINITY,), 0xFFFFFFFF),
    ("v_cvt_f32_i32", (0xFFFFFFFF,), f32(-1)),
    ("v_cvt_f32_u32", (0xFFFFFFFF,), f32(2.0**32)),
    ("v_cvt_f16_f32", (f32(65520),), 0x7C00),
    ("v_cvt_f32_f16", (0x3C00,), f32(1)),
    ("v_cvt_pk_bf16_f32", (0x3F808000, 0x3F818000), 0x3F823F80),
    ("v_cvt_pkrtz_f16_f32", (f32(65535), f32(-1.9999999)), 0xBFFF7BFF),
    ("v_rndne_f32", (f32(2.5),), f32(2)),
    ("v_rndne_f32", (f32(-0.25),), 0x80000000),
    ("v_rndne_f32", (f32(8388609),), f32(8388609)),
    ("v_floor_f32", (f32(-0.5),), f32(-1)),
    ("v_ceil_f32", (f32(-0.5),), 0x80000000),
    ("v_exp_f32", (f32(-3),), f32(0.125)),
    ("v_exp_f32", (f32(128),), INFINITY),
    ("v_log_f32", (f32(8),), f32(3)),
    ("v_log_f32", (0,), 0xFF800000),
    ("v_rcp_f32", (0x80000000,), 0xFF800000),
    ("v_rcp_f32", (f32(3),), f32(1 / 3)),
    ("v_rsq_f32", (f32(4),), f32(0.5)),
    ("v_ldexp_f32", (f32(1.5), 4), f32(24)),
    ("v_ldexp_f32", (f32(1), 0xFFFFFF6B), 1),  # 2^-149
    ("v_frexp_mant_f32", (f32(6),), f32(0.75)),
    ("v_frexp_exp_i32_f32", (f32(6),), 3),
    ("v_perm_b32", (0x11223344, 0x55667788, 0x0C0D0007), 0x00FF8811),
    ("v_bfe_i32", (0xF0, 4, 4), 0xFFFFFFFF),
    ("v_bfe_u32", (0xF0, 4, 4), 0xF),
    ("v_bfi_b32", (0xFF00, 0x1234, 0xABCD), 0x12CD),
    ("v_alignbit_b32", (0x11112222, 0x33334444, 16), 0x22223333),
    ("v_alignbyte_b32", (0x11223344, 0x55667788, 1), 0x44556677),
    ("v_sad_u16", (0x00010002, 0x00030001, 7), 10),
    ("v_sad_u8", (0x01020304, 0x04030201, 0), 8),
    ("v_mbcnt_lo_u32_b32", (0xFFFFFFFF, 3), 8),
    ("v_mad_i32_i24", (0x00FFFFFF, 5, 7), 2),  # -1 * 5 + 7
    ("v_mul_hi_u32", (0xFFFFFFFF, 0xFFFFFFFF), 0xFFFFFFFE),
    ("v_mul_hi_i32", (0xFFFFFFFF, 0xFFFFFFFF), 0),
    ("v_lshl_add_u32", (3, 4, 1), 49),
    ("v_add_lshl_u32", (3, 4, 1), 14),
    ("v_ashrrev_i32", (4, 0x80000000), 0xF8000000),
    ("v_ffbh_u32", (0x10,), 27),
    ("v_ffbl_b32", (0,), 0xFFFFFFFF),
    ("v_bfrev_b32", (1,), 0x80000000),
    ("v_cvt_pk_u16_u32", (0x12345, 5), 0x0005FFFF),
    ("v_cvt_pk_i16_i32", (0xFFFF0000, 5), 0x00058000),
    ("v_cvt_rpi_i32_f32", (f32(8388609),), 8388609),  # an f32 can not hold 8388609.5
    ("v_cvt_rpi_i32_f32", (f32(0.5 - 2.0**-25),), 0),
    ("v_cvt_rpi_i32_f32", (f32(-1.5),), 0xFFFFFFFF),
    ("v_div_fixup_f32", (f32(9), f32(0), f32(1)), INFINITY),
    ("v_div_fixup_f32", (f32(9), f32(0), f32(0)), 0xFFC00000),
    ("v_div_fixup_f32", (f32(-9), f32(2), f32(3)), f32(9)),
    ("v_div_fixup_f32", (f32(math.nan), f32(-(2.0**-100)), f32(2.0**100)), 0xFF800000),
    ("v_pk_add_f16", (0x3C003C00, 0x40003C00), 0x42004000),
    ("v_pk_max_i16", (0x80000001, 0x00018000), 0x00010001),
    ("v_dot2_f32_f16", (0x3C003C00, 0x40004000, f32(1)), f32(5)),
    ("s_bfe_i32", (0xF0, 0x00040004), 0xFFFFFFFF),
    ("s_bfm_b32", (4, 8), 0xF00),
    ("s_brev_b32", (1,), 0x80000000),
    ("s_ff1_i32_b32", (0x50,), 4),
    ("s_flbit_i32_b32", (0x50,), 25),
    ("s_flbit_i32", (0xFFFFFFFF,), 0xFFFFFFFF),
    ("s_pack_ll_b32_b16", (0x11112222, 0x33334444), 0x44442222),
    ("s_abs_i32", (0xFFFFFFFE,), 2),
]


@pytest.mark.parametrize(("name", "operands_", "result"), KNOWN, ids=lambda x: x if isinstance(x, str) else "")
def test_known_results(name: str, operands_: tuple[int, ...], result: int) -> None:
    got = run_one(name, **{f"S{n}": bits for n, bits in enumerate(operands_)})["D0"]
    assert got == result, f"{got:#x}"


def test_carries_and_flags() -> None:
    assert run_one("s_add_u32", S0=0xFFFFFFFF, S1=1)["SCC"] == 1
    assert run_one("s_add_i32", S0=0x7FFFFFFF, S1=1)["SCC"] == 1
    assert run_one("s_add_i32", S0=0xFFFFFFFF, S1=1)["SCC"] == 0
    assert run_one("s_addc_u32", S0=0xFFFFFFFF, S1=0, scc=1)["SCC"] == 1
    assert run_one("s_addc_u32", S0=0xFFFFFFFF, S1=0, scc=1)["D0"] == 0
    assert run_one("s_subb_u32", S0=0, S1=0, scc=1)["SCC"] == 1
    assert run_one("v_add_co_u32", S0=0xFFFFFFFF, S1=1)["VCC"] == 1 << 5
    assert run_one("v_cndmask_b32", S0=1, S1=2, vcc=1 << 5)["D0"] == 2


# Of gfx11 and gfx12: tinygrad's test/amd/hw/test_vop3.py, and rocm-systems' pull request 11613.
SCALES = [  # S0, denominator, numerator; the result, and whether v_div_fmas is to scale
    (3.0, 3.0, 7.0, 3.0, 0),
    (1.0, 4.0, 1.0, 1.0, 0),
    (1.0, 1.0, 2.0**127, 2.0**64, 1),  # far apart: the denominator is scaled alone
    (2.0**127, 1.0, 2.0**127, 2.0**127, 1),
    (1.0, 2.0**127, 1.0, 1.0, 1),  # the inverse of the denominator is subnormal
    (2.0**127, 2.0**127, 1.0, 2.0**63, 1),
    (2.0**127, 2.0**127, 2.0**100, 2.0**63, 0),
    (2.0**-126, 1.0, 2.0**-126, 2.0**-62, 1),
    (0.0, 1.0, 0.0, math.nan, 1),
    (1.0, 0.0, 1.0, math.nan, 1),
]


@pytest.mark.parametrize(("value", "denominator", "numerator", "result", "flag"), SCALES)
def test_division_scales_operands_that_are_far_apart(
    value: float, denominator: float, numerator: float, result: float, flag: int
) -> None:
    scaled = run_one("v_div_scale_f32", S0=f32(value), S1=f32(denominator), S2=f32(numerator))
    assert scaled["VCC"] == flag
    assert as_float(scaled["D0"]) == pytest.approx(result, rel=0, abs=0, nan_ok=True)


@pytest.mark.parametrize(("addend", "scale"), [(1.0, 2.0**-64), (2.0, 2.0**64)])
def test_division_scales_its_result_as_addend_says(addend: float, scale: float) -> None:
    operands_ = {"S0": f32(2), "S1": f32(3), "S2": f32(addend)}
    assert run_one("v_div_fmas_f32", **operands_, vcc=1 << 5)["D0"] == f32((6 + addend) * scale)
    assert run_one("v_div_fmas_f32", **operands_)["D0"] == f32(6 + addend)


def test_division_rounds_subnormal_result_once() -> None:
    """2**-86 + 2**-110, scaled by 2**-64, is above half of the least number; rounded to f32 before, it is that half."""
    assert run_one("v_div_fmas_f32", S0=f32(2.0**-30), S1=f32(2.0**-80), S2=f32(2.0**-86), vcc=1 << 5)["D0"] == 1


def test_mad_u64_u32_has_65th_bit() -> None:
    scope = Scope()
    for name, bits, width in (("S0", 0xFFFFFFFF, 32), ("S1", 0xFFFFFFFF, 32), ("S2", ALL, 64)):
        scope.set(name, "b", width, bits)
    scope.cells["D0"], scope.cells["D1"] = Cell(64, 0, register=True), Cell(64, 0, register=True)
    run(str(text_by_name("v_mad_u64_u32")), scope)
    total = 0xFFFFFFFF**2 + ALL
    assert (scope.cells["D0"].bits, scope.cells["D1"].bits) == (total & ALL, total >> 64)


# --- the parser ---


def test_every_listing_parses_but_prose() -> None:
    broken = []
    for op, text in PCODE.items():
        try:
            parse(text)
        except ListingError:
            broken.append(op.name)
    assert broken == ["DS_SWIZZLE_B32", "S_WAITCNT", "S_SLEEP", "S_TRAP"]


def test_tokens() -> None:
    assert [text for _, text in tokens("tmp[15 : 0].f16 = 32'U(0x1fLL) ** 6'4U; // end")] == [
        *("tmp", "[", "15", ":", "0", "]", ".", "f16", "=", "32'U", "(", "0x1fLL", ")", "**", "6'4U", ";", "")
    ]


@pytest.mark.parametrize("name", sorted(CHANGED))
def test_every_erratum_still_applies(name: str) -> None:
    _, new, reason = CHANGED[name]
    text = text_by_name(name.strip())
    assert text is not None
    assert new.split("\n")[0] in text
    assert reason


# --- operand modifiers ---


def test_inline_constants() -> None:
    assert operands.constant(129, "B32", 32) == 1
    assert operands.constant(193, "B32", 32) == 0xFFFFFFFF
    assert operands.constant(193, "B64", 64) == ALL
    assert operands.constant(242, "F16", 16) == 0x3C00
    assert operands.constant(242, "F32", 32) == f32(1)
    assert operands.constant(247, "F64", 64) == 0xC010000000000000
    assert operands.literal(0x3FF00000, "F64", 64) == 0x3FF00000 << 32
    assert operands.literal(0x80000000, "I64", 64) == 0xFFFFFFFF80000000


def test_sdwa_selects_and_places() -> None:
    assert operands.select(0x11228344, 1, False) == 0x83
    assert operands.select(0x11228344, 1, True) == 0xFFFFFF83
    assert operands.select(0x8122_8344, 5, True) == 0xFFFF8122
    assert operands.insert(0x11223344, 0xAB, 2, 2) == 0x11AB3344
    assert operands.insert(0x11223344, 0xAB, 2, 0) == 0x00AB0000
    assert operands.insert(0x11223344, 0xAB, 2, 1) == 0xFFAB0000


def test_dpp_lanes() -> None:
    assert [operands.dpp_source(0b00011011, lane) for lane in range(4)] == [3, 2, 1, 0]
    assert operands.dpp_source(0x101, 15) is None
    assert operands.dpp_source(0x101, 14) == 15
    assert operands.dpp_source(0x118, 24) == 16
    assert operands.dpp_source(0x121, 16) == 31
    assert operands.dpp_source(0x140, 17) == 30
    assert operands.dpp_source(0x141, 8) == 15


def test_clamp_and_omod() -> None:
    assert operands.clamp(f32(1.5), F32, True) == f32(1)
    assert operands.clamp(f32(-1.5), F32, True) == 0
    assert operands.clamp(QUIET, F32, True) == 0
    assert operands.scale_output(f32(3), 3, F32, Round.EVEN) == f32(1.5)


def state_with(mode: int = 0xF0) -> State:
    state = State(np.zeros((512, 64), np.uint32), np.zeros(256, np.uint32), mode)
    state.set_pair(126, ALL)
    return state


def test_mode_flushes_denormals_on_either_side() -> None:
    multiply = ins.VOP2(ins.VOP2Op.V_MUL_F32, vdst=src[266], src0=src[256], vsrc1=src[257])
    for field, tiny_in, tiny_out in ((0, 0, 0), (1, f32(2.0**-126), 0), (2, 0, 1 << 22), (3, f32(2.0**-126), 1 << 22)):
        state = state_with(field << 4)
        state.vector[0, 0], state.vector[1, 0] = 1 << 22, f32(2)  # denormal * 2
        state.vector[0, 1], state.vector[1, 1] = 1 << 23, f32(0.5)  # denormal result
        execute(multiply, state)
        assert (int(state.vector[10, 0]), int(state.vector[10, 1])) == (tiny_in, tiny_out)


def test_inactive_lanes_stay_and_compare_to_zero() -> None:
    state = state_with()
    state.set_pair(126, 0b1010)
    state.set_pair(106, ALL)
    state.vector[10] = 7
    execute(ins.VOP1(ins.VOP1Op.V_MOV_B32, vdst=src[266], src0=src[130]), state)
    execute(ins.VOPC(ins.VOPCOp.V_CMP_EQ_U32, src0=src[130], vsrc1=src[266]), state)
    assert state.vector[10, :4].tolist() == [7, 2, 7, 2]
    assert state.pair(106) == 0b1010


def test_negation_follows_absolute_value() -> None:
    state = state_with()
    state.vector[0] = f32(-3)
    execute(ins.VOP3(ins.VOP3Op.V_ADD_F32, vdst=src[266], src0=src[256], src1=src[128], neg=1, abs=1), state)
    assert int(state.vector[10, 0]) == f32(-3)


def test_packed_operand_halves() -> None:
    state = state_with()
    state.vector[0], state.vector[1] = 0x00020001, 0x00200010
    inst = ins.VOP3P(ins.VOP3POp.V_PK_ADD_U16, vdst=src[266], src0=src[256], src1=src[257], opsel=1, opsel_hi=2)
    execute(inst, state)
    assert int(state.vector[10, 0]) == 0x0021_0012  # low: high of a + low of b; high: low of a + high of b


# --- matrices ---


def test_matrix_layout_of_32x32x8() -> None:
    """Row 5 of A times column 9 of B, set at the positions of the facts file."""
    state = state_with()
    for k in range(8):
        lane, element = 32 * (k // 4), k % 4
        for row, index in ((20, 5), (30, 9)):
            half = 16 * (element % 2)
            state.vector[row + element // 2, index + lane] |= int(np.float16(k + 1).view(np.uint16)) << half
    inst = ins.VOP3P_MFMA(
        ins.VOP3POp.V_MFMA_F32_32X32X8_F16,
        vdst=src[320:335],
        src0=src[276:277],
        src1=src[286:287],
        src2=src[336:351],
        acc=0,
        acc_cd=0,
    )
    d, slack, shape = mfma.reference(inst, state)
    rows, lanes = np.nonzero(d)
    assert (shape.elements, shape.registers) == (4, 16)
    assert (rows.tolist(), lanes.tolist()) == ([1], [32 + 9])  # row 5 = 4 * 1 + 1
    assert d[1, 41] == sum(k * k for k in range(1, 9))
    assert slack[1, 41] < 1e-3


@pytest.mark.parametrize("name", ["V_MFMA_F32_32X32X16_BF16", "V_MFMA_F32_16X16X16_F16", "V_MFMA_F32_32X32X4_2B_F16"])
def test_every_element_of_d_has_one_place(name: str) -> None:
    shape = mfma.shape_of(name)
    places = {mfma.position(shape, r, lane) for r in range(shape.registers) for lane in range(64)}
    assert len(places) == shape.registers * 64 == shape.blocks * shape.n**2


def test_transposed_read_is_transposition() -> None:
    """Four rows of 16 elements, four a lane: lane l of the group gets column l."""
    loaded = [sum((16 * (lane // 4) + 4 * (lane % 4) + e) << 16 * e for e in range(4)) for lane in range(16)] * 4
    assert [transpose(loaded, 18, 16) >> 16 * e & 0xFFFF for e in range(4)] == [2, 18, 34, 50]
