"""CDNA4's scaled conversions, assembled by the embedded toolchain, give what the formats' standards say.

Expected values: OCP Microscaling Formats 1.0, tables of E2M1, E2M3 and E3M2 and their largest numbers 6, 7.5 and 28;
OCP 8-bit Floating Point Specification 1.0 for E4M3 (448) and E5M2 (57344); the overflow to infinity of widening
conversions from HIP's amd_hip_ocp_host.hpp ("gfx950 HW behavior"). emulator/tests/opcodes has the ISA's pseudocode.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from ckpm_emulator.lowering.lower import lower_one
from emulator_assembly import instructions_of
from emulator_wave import run_wave
from oracle.typed_buffers import f32

E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
E2M3 = [n / 8 for n in range(16)] + [2 + n / 4 for n in range(8)] + [4 + n / 2 for n in range(8)]
E3M2 = [n / 16 for n in range(4)] + [(4 + n % 4) * 2.0 ** (n // 4 - 4) for n in range(28)]
FP16_OVFL = 1 << 23


@pytest.mark.parametrize(("name", "values"), [("fp6", E2M3), ("bf6", E3M2)])
def test_six_bit_codes_have_standards_values(name: str, values: list[float]) -> None:
    codes = [*range(32)]
    packed = sum((code | 32 * (code % 2)) << 6 * code for code in codes)  # every other one negative
    registers = {20 + i: packed >> 32 * i & 0xFFFFFFFF for i in range(6)} | {30: f32(1.0)}
    after = run_wave(f"v_cvt_scalef32_pk32_f32_{name} v[40:71], v[20:25], v30\n", registers)
    result = after.vector[40:72, 5].view(np.float32)
    assert result.tolist() == [-value if code % 2 else value for code, value in zip(codes, values, strict=True)]


def test_four_bit_codes_have_standards_values() -> None:
    for pair in range(4):
        codes = 2 * pair | (2 * pair + 1 | 8) << 4
        after = run_wave("v_cvt_scalef32_pk_f32_fp4 v[40:41], v20, v30\n", {20: codes, 30: f32(4.0)})
        assert after.vector[40:42, 0].view(np.float32).tolist() == [4 * E2M1[2 * pair], -4 * E2M1[2 * pair + 1]]


@pytest.mark.parametrize(("name", "largest", "code"), [("fp4", 6.0, 0x7), ("fp8", 448.0, 0x7E), ("bf8", 57344.0, 0x7B)])
@pytest.mark.parametrize("exponent", [-20, 0, 100])
def test_largest_number_times_scale_comes_back(name: str, largest: float, code: int, exponent: int) -> None:
    scale = 2.0**exponent
    registers = {20: f32(largest * scale), 21: f32(-largest * scale), 30: f32(1.5 * scale), 40: 0}
    after = run_wave(f"v_cvt_scalef32_pk_{name}_f32 v40, v20, v21, v30\n", registers)
    width = 4 if name == "fp4" else 8
    assert after.vector[40, 9] == code | (code | 1 << (width - 1)) << width


TOO_LARGE = [("fp4", 0, 0x7), ("fp4", FP16_OVFL, 0x7), ("fp8", 0, 0x7F), ("fp8", FP16_OVFL, 0x7E)]
TOO_LARGE += [("bf8", 0, 0x7C), ("bf8", FP16_OVFL, 0x7B)]


@pytest.mark.parametrize(("name", "mode", "code"), TOO_LARGE)
@pytest.mark.parametrize("value", [1e6, 3e38, math.inf])
def test_what_is_too_large(name: str, mode: int, code: int, value: float) -> None:
    registers = {20: f32(value), 21: 0, 30: f32(1.0), 40: 0}
    after = run_wave(f"v_cvt_scalef32_pk_{name}_f32 v40, v20, v21, v30\n", registers, mode=0xF0 | mode)
    assert after.vector[40, 0] == code


def test_widening_overflows_to_infinity_and_scale_255_is_nan() -> None:
    assembly = "v_cvt_scalef32_pk_f16_fp8 v40, v20, v30\n"
    after = run_wave(assembly, {20: 0xFE7E, 30: [f32(2.0**n) for n in range(64)]})
    low, high = after.vector[40].astype(np.uint16).view(np.float16), (after.vector[40] >> 16).astype(np.uint16)
    assert [float(x) for x in low] == [448.0 * 2**n if 448 * 2**n < 65520 else math.inf for n in range(64)]
    assert high.tolist() == [int(x) | 0x8000 for x in low.view(np.uint16)]
    none = run_wave(assembly, {20: 0x0000, 30: f32(math.inf)})
    assert np.isnan(none.vector[40].astype(np.uint16).view(np.float16)).all()


def test_random_bits_decide_as_often_as_value_says() -> None:
    """1.0625 lies a sixteenth of the way from 1 to 2 in FP4's steps of half a unit: an eighth of 0.5."""
    seeds = np.arange(64, dtype=np.uint32) << 26
    after = run_wave(
        "v_cvt_scalef32_sr_pk_fp4_f32 v40, v[20:21], v30, v31\n", {20: f32(1.0625), 21: 0, 30: seeds, 31: f32(1), 40: 0}
    )
    assert (after.vector[40] & 15).tolist() == [2 + (n >= 56) for n in range(64)]


@pytest.mark.parametrize(("mode", "code"), [(0xF0, 0x30), (0xE0, 0x00)])
def test_mode_decides_on_subnormal_f32_sources(mode: int, code: int) -> None:
    """CDNA4 ISA, section 6.7.1: "Conversion from F32 supports MODE-based denormal control"."""
    registers = {20: 1 << 22, 21: 0, 30: 1 << 23, 40: 0}  # 2**-127 with a scale of 2**-126
    after = run_wave("v_cvt_scalef32_pk_fp8_f32 v40, v20, v21, v30\n", registers, mode=mode)
    assert after.vector[40, 0] == code  # 0.5 in E4M3


def test_segment_of_two_over_pi() -> None:
    """The leading segments add up to 2 / pi, typed in from its continued decimal expansion."""
    total = 0.0
    for segment in (2, 1, 0):
        after = run_wave(f"v_trig_preop_f64 v[40:41], v[20:21], {segment}\n", {20: 0, 21: 0x3FF00000})
        part = int(after.vector[41, 0]) << 32 | int(after.vector[40, 0])
        total += float(np.uint64(part).view(np.float64))
    assert total == 0.6366197723675813430755350534900574


@pytest.mark.parametrize(("value", "expected"), [(-(2.0**-60), 0x3FEFFFFFFFFFFFFF), (2.75, 0x3FE8000000000000)])
def test_fract_of_f64_stays_below_one(value: float, expected: int) -> None:
    bits = int(np.float64(value).view(np.uint64))
    after = run_wave("v_fract_f64 v[40:41], v[20:21]\n", {20: bits & 0xFFFFFFFF, 21: bits >> 32})
    assert int(after.vector[41, 0]) << 32 | int(after.vector[40, 0]) == expected


def test_constants_whose_meaning_is_not_documented_are_refused() -> None:
    (instruction, *_) = instructions_of({"test": "v_cvt_scalef32_pk_fp8_bf16 v1, 1.0, v3\n"}, "gfx950")["test"]
    assert "constant" in lower_one(instruction)[1]
