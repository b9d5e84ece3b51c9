"""Number formats of kernel inputs in NumPy: float64 to bits, rounding to nearest even, and back.

fp8 is OCP's E4M3 on gfx950 and the FNUZ form on gfx942 and gfx90a (AMD CDNA3 and CDNA4 ISA documents, data formats):
other exponent bias, largest number and NaN.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bits = NDArray[Any]


def number_type(dtype: str, arch: str) -> Any:
    """The NumPy type of the elements of Q, K and V, which have one dtype."""
    fp8 = ml_dtypes.float8_e4m3fn if arch == "gfx950" else ml_dtypes.float8_e4m3fnuz
    numbers = {"fp16": np.float16, "bf16": ml_dtypes.bfloat16, "fp8bf16": fp8, "fp8": fp8, "fp32": np.float32}
    return np.dtype(numbers[dtype])


def bits_type(dtype: str) -> Any:
    """The unsigned NumPy type that holds an element of a kernel dtype's Q, K and V."""
    return np.dtype(f"u{number_type(dtype, 'gfx950').itemsize}")


def largest(dtype: str, arch: str) -> float:
    """The largest number of a kernel dtype."""
    return float(ml_dtypes.finfo(number_type(dtype, arch)).max)


def encode(values: Floats, dtype: str, arch: str) -> Bits:
    """Bits of ``values`` in a kernel dtype. fp8 saturates, as CK's conversion does; NaN stays NaN.

    bf16 and fp8 are rounded from float32, to which float64 is rounded first.
    """
    kind = number_type(dtype, arch)
    if kind.itemsize == 1:
        values = np.clip(values, -largest(dtype, arch), largest(dtype, arch))
    with np.errstate(over="ignore"):
        return values.astype(kind).view(bits_type(dtype))


def decode(bits: Bits, dtype: str, arch: str) -> Floats:
    """The numbers of ``bits``."""
    numbers: Bits = bits.astype(bits_type(dtype), copy=False).view(number_type(dtype, arch))
    with np.errstate(invalid="ignore"):  # signalling NaNs
        return numbers.astype(np.float64)


def nan_bits(dtype: str, arch: str) -> int:
    """A quiet NaN of a kernel dtype."""
    return int(encode(np.array([np.nan]), dtype, arch)[0])
