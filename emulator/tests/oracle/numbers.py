"""Test values: corner cases and random numbers of each operand format, as bit patterns."""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

from oracle import floats
from oracle.floats import Format
from oracle.operands import Operand

Words = npt.NDArray[np.uint32]
_SMALL = [0, 1, 2, 3, 4, 5, 7, 8, 15, 16, 24, 31, 32, 33, 63, 64, 65, 127, 128, 255, 256]
_FLOAT_VALUES = [
    1.0, 1.5, 2.0, 2.5, 3.5, 0.5, 0.75, 1 / 3, 1e-3, 448.0, 464.0, 240.0, 248.0, 57344.0, 61440.0, 65504.0, 65519.0,
    65520.0, 2147483647.0, 2147483648.0, 4294967040.0, 4294967296.0, 32767.5, 65535.0, 0.999999, 126.5, 149.5,
    8388609.0, 4194304.5, 0.49999997, 6.1035156e-05, 6.09e-05, 5.9604645e-08, 2.9802322e-08, 2.98023259e-08, 2.0**-10,
    2.0**-9,
]  # fmt: skip


def corners(fmt: Format) -> list[int]:
    """Zeros, denormals, limits, infinities, quiet and signalling NaNs, halfway cases of the narrower formats."""
    unit = fmt.pack(floats.from_int(1))
    positive = [
        0, 1, 2, fmt.smallest_normal - 1, fmt.smallest_normal, fmt.smallest_normal + 1, unit - 1, unit, unit + 1,
        fmt.largest, fmt.largest - 1, fmt.infinity, fmt.quiet_nan, fmt.quiet_nan | 5, fmt.infinity | 1,
        fmt.infinity | 1 << (fmt.mantissa_bits - 2),
    ]  # fmt: skip
    if fmt.mantissa_bits > 10:  # halfway between two f16 (13 bits cut) and two bf16 (16 bits cut) numbers
        positive += [
            unit + 0x1000,
            unit + 0x3000,
            unit + 0x1001,
            unit + 0x0FFF,
            unit + 0x8000,
            unit + 0x18000,
            unit + 0x8001,
        ]
    positive += [fmt.pack(floats.from_float(x)) for x in _FLOAT_VALUES]
    top = 1 << (fmt.width - 1)
    return positive + [bits | top for bits in positive]


def _floats(fmt: Format, ordinary: bool, rng: np.random.Generator) -> list[int]:
    """A pool: nearly half corner cases, some random bits, the rest numbers whose exponents are close to each other."""
    table = corners(fmt)
    spread = min(12, (1 << fmt.exponent_bits) // 4)
    low = (1 << (fmt.mantissa_bits // 2)) - 1
    chosen: list[int] = []
    if not ordinary:
        chosen += [table[n % len(table)] for n in range(450)]
        chosen += [int.from_bytes(rng.bytes(fmt.width // 8), "little") for _ in range(100)]
    for n in range(550):
        field = fmt.bias + int(rng.integers(-spread, spread))
        fraction = int.from_bytes(rng.bytes(8), "little") & ((1 << fmt.mantissa_bits) - 1)
        if n % 3 == 0:  # few significant bits: ties happen
            fraction &= ~low
        chosen.append((n & 1) << (fmt.width - 1) | field << fmt.mantissa_bits | fraction)
    return chosen


def _integers(bits: int, rng: np.random.Generator) -> list[int]:
    mask = (1 << bits) - 1
    table = [n & mask for n in _SMALL] + [-n & mask for n in _SMALL[1:]]
    table += [1 << (bits - 1), (1 << (bits - 1)) - 1, mask, mask - 1, (1 << (bits - 1)) + 1]
    return [table[n % len(table)] for n in range(500)] + [
        int.from_bytes(rng.bytes(bits // 8), "little") for _ in range(500)
    ]


@cache
def pool(kind: Operand, ordinary: bool) -> Words:
    """Operand values as 32-bit words, [word, value]. Made once, the same in every run."""
    rng = np.random.default_rng(4711)
    bits, fmt = max(kind.bits, 32), kind.format
    if fmt is None:
        values = _integers(bits, rng)
    else:
        parts = [_floats(fmt, ordinary, rng) for _ in range(bits // fmt.width)]
        for column in parts[1:]:
            rng.shuffle(column)
        values = [sum(part << n * fmt.width for n, part in enumerate(row)) for row in zip(*parts, strict=True)]
    dwords = [[value >> 32 * n & 0xFFFFFFFF for value in values] for n in range(bits // 32)]
    return np.array(dwords, dtype=np.uint32)


def draw(kind: Operand, count: int, rng: np.random.Generator, ordinary: bool = False) -> Words:
    """`count` operand values, [word, value]; `ordinary` leaves out everything but normal numbers."""
    values = pool(kind, ordinary)
    return values[:, rng.integers(0, values.shape[1], count)]
