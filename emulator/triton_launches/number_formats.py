"""Triton's element types in NumPy: their bits, what they stand for, and the nearest bits to a number."""

from __future__ import annotations

import functools
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

SMALL: dict[str, Any] = {
    "fp8e4nv": ml_dtypes.float8_e4m3fn,
    "fp8e5": ml_dtypes.float8_e5m2,
    "fp8e4b8": ml_dtypes.float8_e4m3fnuz,
    "fp8e5b16": ml_dtypes.float8_e5m2fnuz,
    "fp4": ml_dtypes.float4_e2m1fn,
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
    codes = np.arange(16 if kind == "fp4" else 256, dtype=np.uint8)
    return np.asarray(codes.view(SMALL[kind]), np.float64)


def decode(bits: Array, kind: str) -> Array:
    """The numbers of bits: float64 of floats, the integers themselves."""
    if kind in SMALL:
        return np.asarray(numbers(kind)[bits])
    if kind == "bf16":
        return np.asarray(bits.view(ml_dtypes.bfloat16), np.float64)
    return bits.astype(np.float64) if kind.startswith("fp") else bits


def encode(values: Array, kind: str) -> Array:
    """Bits of the numbers nearest to ``values``, ties to even; they lie within the format's range.

    bf16 and small floats are rounded from float32, to which float64 is rounded first.
    """
    if kind == "bf16":
        return np.asarray(values, np.float32).astype(ml_dtypes.bfloat16).view(np.uint16)
    if kind in SMALL:
        return np.asarray(values).astype(SMALL[kind]).view(np.uint8)
    return np.asarray(values).astype(PLAIN[kind])


def round_to(values: Array, kind: str) -> Array:
    """``values`` as they are after a passage through a type."""
    return decode(encode(values, kind), kind)
