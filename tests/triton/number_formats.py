"""Triton's element types in NumPy: their bits, what they stand for, and the nearest bits to a number.

Small floats by their definitions: OCP's 8-bit and microscaling formats (OCP MX specification 1.0), and the FNUZ forms
of CDNA3's ISA document, which have one NaN, in the place of minus zero, and no infinity.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ckpm.attention.launch import encodings

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class SmallFloat:
    """A sign, exponent and mantissa bits. ``special``: codes that are not numbers: ``ieee``, ``nan`` (the last), none
    (``finite``) or the one of minus zero (``fnuz``).
    """

    exponent: int
    mantissa: int
    bias: int
    special: str


SMALL = {
    "fp8e4nv": SmallFloat(4, 3, 7, "nan"),
    "fp8e5": SmallFloat(5, 2, 15, "ieee"),
    "fp8e4b8": SmallFloat(4, 3, 8, "fnuz"),
    "fp8e5b16": SmallFloat(5, 2, 16, "fnuz"),
    "fp4": SmallFloat(2, 1, 1, "finite"),
}
PLAIN: dict[str, Any] = {
    **{"fp16": np.float16, "fp32": np.float32, "fp64": np.float64},
    **{f"i{bits}": np.dtype(f"int{bits}") for bits in (8, 16, 32, 64)},
    **{f"u{bits}": np.dtype(f"uint{bits}") for bits in (8, 16, 32, 64)},
}


def storage(kind: str) -> Any:
    """The NumPy type that holds an element's bits."""
    return PLAIN.get(kind) or (np.uint16 if kind == "bf16" else np.uint8)


@functools.cache
def numbers(kind: str) -> Array:
    """The value of each code of a small float, by code; float64."""
    form = SMALL[kind]
    width = form.exponent + form.mantissa
    made = np.empty(2 << width)
    for code in range(2 << width):
        exponent, mantissa = code >> form.mantissa & ((1 << form.exponent) - 1), code & ((1 << form.mantissa) - 1)
        fraction = mantissa / (1 << form.mantissa)
        size = fraction * 2.0 ** (1 - form.bias) if exponent == 0 else (1 + fraction) * 2.0 ** (exponent - form.bias)
        if form.special == "ieee" and exponent == (1 << form.exponent) - 1:
            size = np.nan if mantissa else np.inf
        if form.special == "nan" and code & ((1 << width) - 1) == (1 << width) - 1:
            size = np.nan
        made[code] = -size if code >> width else size
    if form.special == "fnuz":
        made[1 << width] = np.nan
    return made


def decode(bits: Array, kind: str) -> Array:
    """The numbers of bits: float64 of floats, the integers themselves."""
    if kind in SMALL:
        return np.asarray(numbers(kind)[bits])
    if kind == "bf16":
        return encodings.decode(bits, kind, "gfx950")
    return bits.astype(np.float64) if kind.startswith("fp") else bits


def encode(values: Array, kind: str) -> Array:
    """Bits of the numbers nearest to ``values``, ties to even; they lie within the format's range."""
    if kind == "bf16":
        return encodings.encode(np.asarray(values), kind, "gfx950")
    if kind not in SMALL:
        return np.asarray(values).astype(PLAIN[kind])
    table = numbers(kind)
    half = len(table) // 2
    upwards = table[:half][np.isfinite(table[:half])]
    place = np.clip(np.searchsorted(upwards, np.abs(values)), 1, len(upwards) - 1)
    below, above = upwards[place - 1], upwards[place]
    size = np.abs(values)
    up = (above - size < size - below) | ((above - size == size - below) & (place % 2 == 0))
    code = np.where(up, place, place - 1)
    negative = np.signbit(values) & ((code > 0) | (SMALL[kind].special != "fnuz"))
    return np.asarray(code | np.where(negative, half, 0)).astype(np.uint8)


def round_to(values: Array, kind: str) -> Array:
    """``values`` as they are after a passage through a type."""
    return decode(encode(values, kind), kind)
