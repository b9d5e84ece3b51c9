"""Option exact_mfma: sums of gfx942's MFMA as MMA-Sim (arXiv 2511.10909) describes them, in exact fractions.

On CDNA3, products of 8 values of k are cut to 24 places after their greatest exponent and added. For formats of 8 bits
these are 16 values, even and odd ones apart. The sum is rounded down to 31 and the addend to 24 places after the
greater exponent of the two. Then both are added, and rounded once to nearest even. f32 operands are a chain of fma.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest

from ckpm_emulator.errors import DeviceError
from ckpm_emulator.options import Options
from emulator_wave import run_wave
from oracle import floats, mfma
from oracle.operands import State

LEAST = {"F16": -14, "BF16": -126, "FP8": -7, "BF8": -15, "F32": -126}
SHAPES = [
    *("32x32x8_f16", "16x16x16_f16", "32x32x8_bf16", "16x16x16_bf16"),
    *("32x32x16_fp8_fp8", "16x16x32_fp8_bf8", "32x32x16_bf8_fp8", "16x16x32_bf8_bf8"),
]
Product = tuple[Fraction, int]  # significand, exponent


def parts(value: float, least: int) -> Product:
    """Significand in [1, 2) and exponent; of a subnormal number the least exponent, of zero -126."""
    if value == 0:
        return Fraction(0), -126
    exponent = max(math.frexp(value)[1] - 1, least)
    return Fraction(value) / Fraction(2) ** exponent, exponent


def add(products: Sequence[Product]) -> Product:
    greatest = max(exponent for _, exponent in products)
    units = [math.trunc(s * Fraction(2) ** (24 + e - greatest)) for s, e in products]
    return Fraction(sum(units), 2**24), greatest


def down(value: Product, greatest: int, places: int) -> Fraction:
    return Fraction(math.floor(value[0] * Fraction(2) ** (places + value[1] - greatest)), 2**places)


def group(products: Sequence[Product], addend: Product, small: bool) -> Fraction:
    total = add(products)
    if small:
        even, odd = add(products[0::2]), add(products[1::2])
        greatest = max(even[1], odd[1])
        total = down(even, greatest, 24) + down(odd, greatest, 24), greatest
    greatest = max(total[1], addend[1])
    last = down(addend, greatest, 24) if not small or addend[1] >= greatest - 25 else Fraction(0)
    return (down(total, greatest, 31) + last) * Fraction(2) ** greatest


def round_to_f32(value: Fraction) -> float:
    """Round an exact value to f32, to nearest even."""
    power = 400
    number = floats.finite(int(value < 0), abs(value.numerator) * 2**power // value.denominator, -power)
    return float(np.uint32(floats.F32.pack(number)).view(np.float32))


def expected_sum(a: Sequence[float], b: Sequence[float], c: float, names: tuple[str, str]) -> float:
    small = names[0] in ("FP8", "BF8")
    size = 16 if small else 8
    for first in range(0, len(a), size):
        x, y = a[first : first + size], b[first : first + size]
        whole = [p * q for p, q in zip(x, y, strict=True)]
        special = sum(whole) + c
        if not math.isfinite(special):
            c = special
            continue
        beyond = {math.copysign(math.inf, p) for p in whole if abs(p) >= 2.0**128}
        if beyond:
            c = sum(beyond)
            continue
        left, right = [parts(v, LEAST[names[0]]) for v in x], [parts(v, LEAST[names[1]]) for v in y]
        products = [(p[0] * q[0], p[1] + q[1]) for p, q in zip(left, right, strict=True)]
        c = round_to_f32(group(products, parts(c, LEAST["F32"]), small))
    return c


def codes(rng: np.random.Generator, name: str, count: int, kind: str) -> np.ndarray:
    """Random codes: near 1, over the whole range of exponents, or all of them with infinities and NaNs."""
    width = {"F16": 16, "BF16": 16, "F32": 32}.get(name, 8)
    bits = rng.integers(0, 1 << width, count, dtype=np.uint64)
    fmt = mfma.format_by_name(name, State(None, None, arch="gfx942").modes())  # type: ignore[arg-type]
    if kind != "all":
        fields, mantissa = fmt.exponent_bits, fmt.mantissa_bits
        spread = 3 if kind == "near" else 1 << max(fields - 2, 1)
        low, high = max(0, fmt.bias - spread), min((1 << fields) - 2, fmt.bias + spread)
        exponent = rng.integers(low, high + 1, count, dtype=np.uint64)
        bits = bits & ~np.uint64(((1 << fields) - 1) << mantissa) | exponent << np.uint64(mantissa)
        bits[rng.random(count) < 0.1] = 0
    return bits.astype(np.uint32)


def pack(values: np.ndarray, width: int) -> np.ndarray:
    """Registers [register, lane] of codes [register * per + part, lane]."""
    per = 32 // width
    parts_of = values.reshape(-1, per, 64).astype(np.uint64)
    shifts = (np.arange(per, dtype=np.uint64) * np.uint64(width))[None, :, None]
    together: np.ndarray = (parts_of << shifts).sum(axis=1).astype(np.uint32)
    return together


@pytest.mark.parametrize("kind", ["near", "far", "all"])
@pytest.mark.parametrize("name", SHAPES)
def test_sums_are_those_of_model(name: str, kind: str) -> None:
    rng = np.random.default_rng(len(name) * 100 + len(kind))
    shape = mfma.shape_of(f"V_MFMA_F32_{name.upper()}")
    vectors: dict[int, np.ndarray] = {}
    for row, form in ((0, shape.a), (8, shape.b)):
        width = 16 if form in ("F16", "BF16") else 8
        registers = pack(codes(rng, form, shape.elements * 64, kind).reshape(-1, 64), width)
        vectors |= {row + i: registers[i] for i in range(len(registers))}
    addends = codes(rng, "F32", shape.registers * 64, kind).reshape(-1, 64)
    vectors |= {16 + i: addends[i] for i in range(shape.registers)}
    dwords = shape.elements * (16 if shape.a in ("F16", "BF16") else 8) // 32
    last = 15 + shape.registers
    assembly = f"v_mfma_f32_{name} v[40:{24 + last}], v[0:{dwords - 1}], v[8:{7 + dwords}], v[16:{last}]\n"
    after = run_wave(assembly, vectors, arch="gfx942", options={"exact_mfma": 1})
    before = State(np.zeros((512, 64), np.uint32), np.zeros(256, np.uint32), arch="gfx942")
    for row, values in vectors.items():
        before.vector[row] = values
    a, b = mfma.gather(before, 0, shape, shape.a)[0], mfma.gather(before, 8, shape, shape.b)[0]
    _, rows, columns = mfma.positions(shape)
    result = after.vector[40 : 40 + shape.registers].view(np.float32)
    differing = []
    for register in range(shape.registers):
        for lane in range(0, 64, 4 if shape.n == 32 else 1):
            c = float(addends[register, lane].view(np.float32))
            i, j = rows[register, lane], columns[register, lane]
            want = expected_sum(a[i].tolist(), b[j].tolist(), c, (shape.a, shape.b))
            got = float(result[register, lane])
            if np.float32(want).view(np.uint32) != np.float32(got).view(np.uint32) and not (
                want != want and got != got
            ):
                differing.append((register, lane, want, got))
    assert differing == []


@pytest.mark.parametrize("name", ["32x32x2_f32", "16x16x4_f32"])
def test_f32_sums_are_chain_of_fma(name: str) -> None:
    rng = np.random.default_rng(7)
    shape = mfma.shape_of(f"V_MFMA_F32_{name.upper()}")
    before = State(np.zeros((512, 64), np.uint32), np.zeros(256, np.uint32), arch="gfx942")
    for row in (0, 8, *range(16, 16 + shape.registers)):
        before.vector[row] = codes(rng, "F32", 64, "near")
    last = 15 + shape.registers
    assembly = f"v_mfma_f32_{name} v[40:{24 + last}], v0, v8, v[16:{last}]\n"
    after = run_wave(assembly, dict(enumerate(before.vector)), arch="gfx942")
    a, b = mfma.gather(before, 0, shape, "F32")[0], mfma.gather(before, 8, shape, "F32")[0]
    _, rows, columns = mfma.positions(shape)
    for register in range(shape.registers):
        for lane in range(0, 64, 8):
            total = Fraction(float(before.vector[16 + register, lane].view(np.float32)))
            for x, y in zip(a[rows[register, lane]], b[columns[register, lane]], strict=True):
                total = Fraction(round_to_f32(Fraction(x) * Fraction(y) + total))
            assert float(after.vector[40 + register, lane].view(np.float32)) == float(total)


def test_model_differs_from_chain_of_f32_sums() -> None:
    """2**24 + 1 + 1: a chain of f32 sums loses each 1; 24 places after 2**24 the model keeps both."""
    large, unit = 0x6C00, 0x3C00  # 2**12 and 1 in f16
    first = np.arange(64) < 16  # the lanes with k from 0 to 3
    operand = {0: np.where(first, large | unit << 16, 0), 1: np.where(first, unit, 0)}
    vectors = operand | {8 + i: values for i, values in operand.items()}
    assembly = "v_mfma_f32_16x16x16_f16 v[40:43], v[0:1], v[8:9], 0\n"
    plain = run_wave(assembly, vectors, arch="gfx942")
    exact = run_wave(assembly, vectors, arch="gfx942", options={"exact_mfma": 1})
    assert plain.vector[40, 0].view(np.float32) == 2.0**24
    assert exact.vector[40, 0].view(np.float32) == 2.0**24 + 2


@pytest.mark.parametrize("arch", ["gfx950", "gfx90a"])
def test_model_is_of_gfx942_alone(arch: str) -> None:
    with pytest.raises(DeviceError, match="gfx942"):
        Options(arch=arch, exact_mfma=True)
