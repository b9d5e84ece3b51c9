"""Number formats of kernel inputs in NumPy: float64 to bits, rounding to nearest even, and back.

fp8 is OCP's E4M3 on gfx950 and the FNUZ form on gfx942 and gfx90a (AMD CDNA3 and CDNA4 ISA documents, data formats):
other exponent bias, largest number and NaN.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bits = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Fp8:
    """A sign, 4 exponent and 3 mantissa bits. ``nan`` is a byte that is not a number."""

    bias: int
    largest: float
    nan: int


OCP = Fp8(bias=7, largest=448.0, nan=0x7F)
FNUZ = Fp8(bias=8, largest=240.0, nan=0x80)


def fp8_of(arch: str) -> Fp8:
    return OCP if arch == "gfx950" else FNUZ


def bits_type(dtype: str) -> Any:
    """The unsigned NumPy type that holds an element of a kernel dtype's Q, K and V."""
    return {"fp16": np.uint16, "bf16": np.uint16, "fp8bf16": np.uint8, "fp8": np.uint8, "fp32": np.uint32}[dtype]


def encode(values: Floats, dtype: str, arch: str) -> Bits:
    """Bits of ``values`` in a kernel dtype. fp8 saturates, as CK's conversion does; NaN stays NaN."""
    if dtype == "bf16":
        return to_bf16(values)
    if dtype == "fp8bf16":
        return to_fp8(values, fp8_of(arch))
    if dtype == "fp16":
        with np.errstate(over="ignore"):
            return values.astype(np.float16).view(np.uint16)
    return values.astype(np.float32).view(np.uint32)


def decode(bits: Bits, dtype: str, arch: str) -> Floats:
    """The numbers that ``bits`` stand for."""
    if dtype == "bf16":
        return from_bf16(bits)
    if dtype == "fp8bf16":
        return from_fp8(bits, fp8_of(arch))
    kind = np.float16 if dtype == "fp16" else np.float32
    return np.ascontiguousarray(bits).view(kind).astype(np.float64)


def nan_bits(dtype: str, arch: str) -> int:
    """A quiet NaN of a kernel dtype."""
    return {"bf16": 0x7FC0, "fp16": 0x7E00, "fp32": 0x7FC00000, "fp8bf16": fp8_of(arch).nan}[dtype]


def to_bf16(values: Floats) -> Bits:
    """bf16 bits, rounded to nearest even from float32 (to which float64 is rounded first)."""
    with np.errstate(over="ignore"):
        bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    quiet = (bits >> 16) | 0x40
    return np.where(np.isnan(values), quiet, rounded).astype(np.uint16)


def from_bf16(bits: Bits) -> Floats:
    with np.errstate(invalid="ignore"):  # signalling NaNs
        return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


@functools.cache
def _fp8_numbers(form: Fp8) -> Floats:
    """The number of each of the 256 bytes."""
    numbers = np.empty(256)
    for byte in range(256):
        exponent, mantissa = byte >> 3 & 15, byte & 7
        size = (
            mantissa * 2.0 ** (-2 - form.bias) if exponent == 0 else (8 + mantissa) * 2.0 ** (exponent - 3 - form.bias)
        )
        numbers[byte] = -size if byte & 0x80 else size
    numbers[form.nan] = np.nan
    if form is OCP:
        numbers[0xFF] = np.nan
    return numbers


@functools.cache
def _fp8_edges(form: Fp8) -> Floats:
    """[byte]: the largest size that is rounded to it; half-way numbers go to the even neighbour."""
    positive = _fp8_numbers(form)[: 0x7F if form is OCP else 0x80]  # ascending, byte = index
    middle = (positive[:-1] + positive[1:]) / 2  # exact
    return np.where(np.arange(len(middle)) % 2, np.nextafter(middle, 0), middle)


def from_fp8(bits: Bits, form: Fp8) -> Floats:
    numbers: Floats = _fp8_numbers(form)[bits]
    return numbers


def to_fp8(values: Floats, form: Fp8) -> Bits:
    """fp8 bytes, nearest even, saturating at the largest number. FNUZ has no negative zero."""
    byte = np.searchsorted(_fp8_edges(form), np.minimum(np.abs(values), form.largest))
    sign = np.where(np.signbit(values) & ((byte > 0) | (form is OCP)), 0x80, 0)
    return np.where(np.isnan(values), form.nan, byte | sign).astype(np.uint8)
