"""Typed values of the pseudocode and its operators (CDNA3 ISA, section 1 "Terminology", and the listings' usage).

A value is a kind, a width and bits. Integers wrap at their width; a binary operation takes the wider operand's width
and is signed only if no operand of that width is unsigned, as in C. Arithmetic on floating-point values is exact and
rounded once to the wider operand's format with the rounding mode of that format. Denormals are not flushed here:
operands.py does that where the hardware does it, on the way in and on the way out.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

from oracle import floats
from oracle.floats import Format, Number, Round


@dataclass
class Modes:
    """The MODE and the device: the state that operators depend on."""

    round_f32: Round = Round.EVEN
    round_f16_f64: Round = Round.EVEN
    fp8: Format = floats.E4M3FN
    bf8: Format = floats.E5M2
    forced: Round | None = None  # the pseudocode assigned ROUND_MODE

    def rounding(self, width: int) -> Round:
        if self.forced is not None:
            return self.forced
        return self.round_f32 if width == 32 else self.round_f16_f64


FLOATS = {("f", 16): floats.F16, ("f", 32): floats.F32, ("f", 64): floats.F64, ("bf", 16): floats.BF16}
SMALL = {"fp6": floats.E2M3, "bf6": floats.E3M2, "fp4": floats.E2M1}


class Value:
    """`kind`: u, i, b (bits), f, bf, fp8, bf8, fp6, bf6, fp4, or x (exact real number, only inside an expression)."""

    __slots__ = ("bits", "exact", "kind", "width")

    def __init__(self, kind: str, width: int, bits: int, exact: Number | None = None) -> None:
        self.kind = kind
        self.width = width
        self.bits = bits
        self.exact = exact

    def __repr__(self) -> str:
        return f"{self.kind}{self.width}:{self.bits:#x}"

    @property
    def is_float(self) -> bool:
        return self.kind in ("f", "bf", "x", "fp8", "bf8", "fp6", "bf6", "fp4")

    def as_integer(self) -> int:
        """The integer this stands for."""
        if self.kind == "i" and self.bits >> (self.width - 1) & 1:
            return self.bits - (1 << self.width)
        return self.bits

    def truth(self) -> bool:
        return self.bits != 0

    def number(self, modes: Modes) -> Number:
        if self.exact is not None:
            return self.exact
        if self.is_float:
            return format_of(self.kind, self.width, modes).unpack(self.bits)
        return floats.from_int(self.as_integer())


def format_of(kind: str, width: int, modes: Modes) -> Format:
    if kind == "fp8":
        return modes.fp8
    if kind == "bf8":
        return modes.bf8
    return SMALL[kind] if kind in SMALL else FLOATS[kind, width]


def integer(kind: str, width: int, value: int) -> Value:
    return Value(kind, width, value & ((1 << width) - 1))


def boolean(value: bool) -> Value:
    return Value("u", 1, int(value))


def real(kind: str, width: int, number: Number, modes: Modes, mode: Round | None = None) -> Value:
    rounding = modes.rounding(width) if mode is None else mode
    return Value(kind, width, format_of(kind, width, modes).pack(number, rounding))


def exact(number: Number) -> Value:
    return Value("x", 0, 1, number)


def resize(value: Value, kind: str, width: int) -> Value:
    """Integer conversion: extend by the source's own signedness, then cut."""
    return Value(kind, width, value.as_integer() & ((1 << width) - 1))


def convert_float(value: Value, kind: str, width: int, modes: Modes) -> Value:
    """Between floating-point formats; a NaN keeps sign, quietness and the leading payload bits (IEEE 754, 6.2.3)."""
    if value.kind == kind and value.width == width:
        return value
    if value.kind == "x":
        return real(kind, width, value.number(modes), modes)
    source, target = format_of(value.kind, value.width, modes), format_of(kind, width, modes)
    if source.is_nan(value.bits) and source.style == target.style == "ieee":
        payload = value.bits & ((1 << source.mantissa_bits) - 1)
        shift = target.mantissa_bits - source.mantissa_bits
        payload = payload << shift if shift >= 0 else payload >> -shift
        if not payload:
            payload = 1
        return Value(kind, width, source.sign(value.bits) << (width - 1) | target.infinity | payload)
    return real(kind, width, source.unpack(value.bits), modes)


def _wider(a: Value, b: Value) -> tuple[str, int]:
    if a.width == b.width:
        return ("i" if a.kind == b.kind == "i" else "u"), a.width
    wide = a if a.width > b.width else b
    return ("i" if wide.kind == "i" else "u"), wide.width


def _float_type(a: Value, b: Value) -> tuple[str, int]:
    candidates = [v for v in (a, b) if v.kind in ("f", "bf")]
    if not candidates:
        raise TypeError(f"no format to round to: {a}, {b}")
    widest = max(candidates, key=lambda v: v.width)
    return widest.kind, widest.width


def nan_of(a: Value, b: Value, kind: str, width: int, modes: Modes) -> int | None:
    """A NaN operand's payload, quietened; the caller compares NaNs only as NaNs."""
    for operand in (a, b):
        if operand.kind in ("f", "bf") and format_of(operand.kind, operand.width, modes).is_nan(operand.bits):
            return format_of(kind, width, modes).quieten(convert_float(operand, kind, width, modes).bits)
    return None


_REAL: dict[str, Callable[[Number, Number, Round], Number]] = {
    "+": floats.add,
    "-": lambda a, b, mode: floats.add(a, floats.negate(b), mode),
    "*": lambda a, b, mode: floats.multiply(a, b),
    "/": lambda a, b, mode: floats.divide(a, b),
}
_WHOLE: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "&": lambda a, b: a & b,
    "|": lambda a, b: a | b,
    "^": lambda a, b: a ^ b,
}


def arithmetic(op: str, a: Value, b: Value, modes: Modes) -> Value:
    if a.is_float or b.is_float:
        kind, width = _float_type(a, b)
        payload = nan_of(a, b, kind, width, modes)
        if payload is not None:
            return Value(kind, width, payload)
        mode = modes.rounding(width)
        return real(kind, width, _REAL[op](a.number(modes), b.number(modes), mode), modes)
    kind, width = _wider(a, b)
    if op in ("/", "%") and kind == "i" and (a.as_integer() < 0 or b.as_integer() <= 0):
        raise ArithmeticError(f"{a} {op} {b}: the manual does not say")
    return integer(kind, width, _WHOLE[op](a.as_integer(), b.as_integer()))


def shift(op: str, a: Value, b: Value) -> Value:
    """The result has the left operand's type; >> of a signed value is arithmetic."""
    count = b.as_integer()
    result = a.as_integer() << count if op == "<<" else a.as_integer() >> count
    return integer(a.kind, a.width, result)


def power(a: Value, b: Value, modes: Modes) -> Value:
    """2.0 ** n, kept exact: V_LDEXP must not round or overflow before the product."""
    if as_python_float(a, modes) != 2.0:
        raise ArithmeticError(f"{a} ** {b}: only powers of two")
    return exact(floats.finite(0, 1, b.as_integer()))


def as_python_float(value: Value, modes: Modes) -> float:
    """Every format here fits a double exactly."""
    bits = floats.F64.pack(value.number(modes))
    return float(struct.unpack("<d", struct.pack("<Q", bits))[0])


_COMPARE: dict[str, Callable[[float, float], bool]] = {
    "<": lambda a, b: a < b,
    ">": lambda a, b: a > b,
    "<=": lambda a, b: a <= b,
    ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<>": lambda a, b: a < b or a > b,
}


def compare(op: str, a: Value, b: Value, modes: Modes) -> Value:
    if a.is_float or b.is_float:
        return boolean(_COMPARE[op](as_python_float(a, modes), as_python_float(b, modes)))
    kind, width = _wider(a, b)
    left, right = resize(a, kind, width).as_integer(), resize(b, kind, width).as_integer()
    return boolean(_COMPARE[op](left, right))
