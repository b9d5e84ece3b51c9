"""Floating-point formats and arithmetic on bit patterns, exact and rounded once.

A finite number is (-1)**sign * magnitude * 2**exponent with integers of any size, so every sum, product and fused
multiply-add is exact before the one rounding. Rounding is that of IEEE 754-2019 section 4.3. E4M3 and E5M2 are from
OCP's "8-bit Floating Point Specification" 1.0, formats without NaN and infinity from OCP MX 1.0. The FNUZ variants are
those of "FP8 Formats for Deep Learning" and LLVM's APFloat: one NaN 0x80, no infinity, no negative zero, bias one
higher.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from functools import cached_property


class Round(enum.IntEnum):
    """MODE.FP_ROUND (CDNA3 ISA, section 3.3 "Mode register")."""

    EVEN = 0
    UP = 1
    DOWN = 2
    ZERO = 3


class Kind(enum.Enum):
    ZERO = 0
    FINITE = 1
    INFINITE = 2
    NAN = 3


@dataclass(frozen=True, slots=True)
class Number:
    """An exact real number, an infinity or a NaN. `sticky`: the magnitude is a little larger than said."""

    kind: Kind
    sign: int
    magnitude: int = 0
    exponent: int = 0
    sticky: bool = False


NAN = Number(Kind.NAN, 0)


def finite(sign: int, magnitude: int, exponent: int, sticky: bool = False) -> Number:
    """A number that may turn out to be zero."""
    if magnitude == 0 and not sticky:
        return Number(Kind.ZERO, sign)
    return Number(Kind.FINITE, sign, magnitude, exponent, sticky)


@dataclass(frozen=True)
class Format:
    """Layout of a format; `style`: ieee, fn (one NaN code per sign, no infinity), fnuz, or none (neither)."""

    name: str
    exponent_bits: int
    mantissa_bits: int
    bias: int
    style: str = "ieee"

    @cached_property
    def width(self) -> int:
        return 1 + self.exponent_bits + self.mantissa_bits

    @cached_property
    def infinity(self) -> int:
        return ((1 << self.exponent_bits) - 1) << self.mantissa_bits

    @cached_property
    def largest(self) -> int:
        """Bits of the largest finite number."""
        every = (1 << (self.width - 1)) - 1
        return {"ieee": self.infinity - 1, "fn": every - 1, "fnuz": every, "none": every}[self.style]

    @cached_property
    def quiet_nan(self) -> int:
        """The NaN that an invalid operation makes (positive, quiet bit only)."""
        every = (1 << (self.width - 1)) - 1
        ieee = self.infinity | (1 << (self.mantissa_bits - 1))
        return {"ieee": ieee, "fn": every, "fnuz": every + 1, "none": 0}[self.style]

    @cached_property
    def smallest_normal(self) -> int:
        return 1 << self.mantissa_bits

    def is_nan(self, bits: int) -> bool:
        magnitude = bits & ((1 << (self.width - 1)) - 1)
        if self.style == "ieee":
            return magnitude > self.infinity
        if self.style == "fnuz":
            return bits == 1 << (self.width - 1)
        return self.style == "fn" and magnitude == (1 << (self.width - 1)) - 1

    def is_signalling(self, bits: int) -> bool:
        return self.style == "ieee" and self.is_nan(bits) and not bits >> (self.mantissa_bits - 1) & 1

    def quieten(self, bits: int) -> int:
        return bits | 1 << (self.mantissa_bits - 1) if self.style == "ieee" else bits

    def is_denormal(self, bits: int) -> bool:
        magnitude = bits & ((1 << (self.width - 1)) - 1)
        return 0 < magnitude < self.smallest_normal

    def sign(self, bits: int) -> int:
        return bits >> (self.width - 1) & 1

    def exponent_field(self, bits: int) -> int:
        return bits >> self.mantissa_bits & ((1 << self.exponent_bits) - 1)

    def unpack(self, bits: int) -> Number:
        if self.is_nan(bits):
            return NAN
        sign = self.sign(bits)
        field = self.exponent_field(bits)
        fraction = bits & ((1 << self.mantissa_bits) - 1)
        if self.style == "ieee" and field == (1 << self.exponent_bits) - 1:
            return Number(Kind.INFINITE, sign)
        if field:
            return Number(Kind.FINITE, sign, fraction | 1 << self.mantissa_bits, field - self.bias - self.mantissa_bits)
        return finite(sign, fraction, 1 - self.bias - self.mantissa_bits)

    def pack(self, number: Number, mode: Round = Round.EVEN, saturate: bool = False) -> int:
        """Round once. Overflow gives the result of IEEE 754 section 7.4 for `mode`, or the largest number."""
        top = number.sign << (self.width - 1)
        if number.kind is Kind.NAN:
            return self.quiet_nan
        if number.kind is Kind.ZERO:
            return 0 if self.style == "fnuz" else top
        if number.kind is Kind.INFINITE:
            return self._overflow(number.sign, Round.EVEN, saturate and self.style != "ieee")
        magnitude = self._round(number, mode)
        if magnitude > self.largest:
            return self._overflow(number.sign, mode, saturate)
        return 0 if magnitude == 0 and self.style == "fnuz" else top | magnitude

    def _round(self, number: Number, mode: Round) -> int:
        """Bits of the rounded magnitude; beyond `largest` when it overflows."""
        magnitude, exponent = number.magnitude << 2 | number.sticky, number.exponent - 2
        leading = exponent + magnitude.bit_length() - 1
        if leading > self.bias + 8:
            return self.largest + 1
        unit = max(leading, 1 - self.bias) - self.mantissa_bits
        shift = unit - exponent
        if shift <= 0:
            quotient, rest, half = magnitude << -shift, 0, 1
        else:
            shift = min(shift, magnitude.bit_length() + 2)
            quotient, rest, half = magnitude >> shift, magnitude & ((1 << shift) - 1), 1 << (shift - 1)
        if mode is Round.EVEN:
            quotient += rest > half or (rest == half and quotient & 1)
        elif (mode is Round.UP and not number.sign) or (mode is Round.DOWN and number.sign):
            quotient += rest > 0
        # The encoding is monotonic: a carry out of the fraction moves into the exponent by itself.
        return quotient + ((max(leading, 1 - self.bias) + self.bias - 1) << self.mantissa_bits)

    def _overflow(self, sign: int, mode: Round, saturate: bool) -> int:
        top = sign << (self.width - 1)
        towards_zero = mode is Round.ZERO or mode is (Round.UP if sign else Round.DOWN)
        if saturate or towards_zero or self.style == "none":
            return top | self.largest
        return top | self.infinity if self.style == "ieee" else self.quiet_nan | (top if self.style == "fn" else 0)


F16 = Format("f16", 5, 10, 15)
BF16 = Format("bf16", 8, 7, 127)
F32 = Format("f32", 8, 23, 127)
F64 = Format("f64", 11, 52, 1023)
E4M3FN = Format("e4m3fn", 4, 3, 7, "fn")
E5M2 = Format("e5m2", 5, 2, 15)
E4M3FNUZ = Format("e4m3fnuz", 4, 3, 8, "fnuz")
E5M2FNUZ = Format("e5m2fnuz", 5, 2, 16, "fnuz")
E2M1 = Format("e2m1", 2, 1, 1, "none")
E2M3 = Format("e2m3", 2, 3, 1, "none")
E3M2 = Format("e3m2", 3, 2, 3, "none")


def negate(a: Number) -> Number:
    return Number(a.kind, a.sign ^ 1, a.magnitude, a.exponent, a.sticky)


def add(a: Number, b: Number, mode: Round = Round.EVEN) -> Number:
    """Exact sum; the sign of a zero sum depends on the rounding mode (IEEE 754 section 6.3)."""
    if a.kind is Kind.NAN or b.kind is Kind.NAN:
        return NAN
    if a.kind is Kind.INFINITE:
        return NAN if b.kind is Kind.INFINITE and a.sign != b.sign else a
    if b.kind is Kind.INFINITE:
        return b
    if a.kind is Kind.ZERO and b.kind is Kind.ZERO:
        return Number(Kind.ZERO, a.sign if a.sign == b.sign else int(mode is Round.DOWN))
    if a.kind is Kind.ZERO:
        return b
    if b.kind is Kind.ZERO:
        return a
    exponent = min(a.exponent, b.exponent)
    left = a.magnitude << (a.exponent - exponent)
    right = b.magnitude << (b.exponent - exponent)
    total = (-left if a.sign else left) + (-right if b.sign else right)
    if total == 0:
        return Number(Kind.ZERO, int(mode is Round.DOWN))
    return Number(Kind.FINITE, int(total < 0), abs(total), exponent)


def multiply(a: Number, b: Number) -> Number:
    sign = a.sign ^ b.sign
    if a.kind is Kind.NAN or b.kind is Kind.NAN:
        return NAN
    if a.kind is Kind.INFINITE or b.kind is Kind.INFINITE:
        return NAN if Kind.ZERO in (a.kind, b.kind) else Number(Kind.INFINITE, sign)
    if Kind.ZERO in (a.kind, b.kind):
        return Number(Kind.ZERO, sign)
    return Number(Kind.FINITE, sign, a.magnitude * b.magnitude, a.exponent + b.exponent)


def divide(a: Number, b: Number) -> Number:
    """Quotient with 128 bits and a sticky bit: enough for one correct rounding to any format here."""
    sign = a.sign ^ b.sign
    if a.kind is Kind.NAN or b.kind is Kind.NAN or (a.kind is b.kind and a.kind in (Kind.INFINITE, Kind.ZERO)):
        return NAN
    if a.kind is Kind.INFINITE or b.kind is Kind.ZERO:
        return Number(Kind.INFINITE, sign)
    if a.kind is Kind.ZERO or b.kind is Kind.INFINITE:
        return Number(Kind.ZERO, sign)
    shift = 128 + b.magnitude.bit_length()
    quotient, rest = divmod(a.magnitude << shift, b.magnitude)
    return Number(Kind.FINITE, sign, quotient, a.exponent - b.exponent - shift, rest != 0)


def square_root(a: Number) -> Number:
    if a.kind is Kind.NAN or (a.sign and a.kind is not Kind.ZERO):
        return NAN
    if a.kind is not Kind.FINITE:
        return a
    shift = 256 + (a.exponent & 1)
    scaled = a.magnitude << shift
    root = math.isqrt(scaled)
    return Number(Kind.FINITE, 0, root, (a.exponent - shift) // 2, root * root != scaled)


def from_float(value: float) -> Number:
    """The exact value of a Python float."""
    if math.isnan(value):
        return NAN
    sign = int(math.copysign(1.0, value) < 0)
    if math.isinf(value):
        return Number(Kind.INFINITE, sign)
    mantissa, exponent = math.frexp(abs(value))
    return finite(sign, int(mantissa * 2**53), exponent - 53)


def from_int(value: int) -> Number:
    return finite(int(value < 0), abs(value), 0)


def to_int(number: Number, low: int, high: int) -> int:
    """Truncate and saturate; NaN gives 0 (ISA, "V_CVT_I32_F32")."""
    if number.kind in (Kind.NAN, Kind.ZERO):
        return 0
    if number.kind is Kind.INFINITE:
        return low if number.sign else high
    if number.exponent >= 0:
        size = number.magnitude << min(number.exponent, 128)
    else:
        size = number.magnitude >> min(-number.exponent, number.magnitude.bit_length() + 1)
    return max(low, min(high, -size if number.sign else size))


def integral(number: Number, mode: str) -> Number:
    """floor, trunc or even (to nearest) as an exact number; the sign of a zero result is the operand's."""
    if number.kind is not Kind.FINITE or number.exponent >= 0:
        return number
    shift = -number.exponent
    limited = min(shift, number.magnitude.bit_length() + 2)
    whole, rest, half = number.magnitude >> limited, number.magnitude & ((1 << limited) - 1), 1 << (limited - 1)
    if (mode == "floor" and number.sign and rest) or (mode == "even" and (rest > half or (rest == half and whole & 1))):
        whole += 1
    return finite(number.sign, whole, 0)
