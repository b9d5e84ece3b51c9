"""Functions that the pseudocode calls without defining them; rules from the opcode descriptions of the CDNA3/CDNA4 ISA.

Transcendentals are computed in float64 and rounded once. The hardware promises 1 ulp for the f32 ones, so tests of
those opcodes allow 1 ulp; everything else here is exact.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable
from functools import cache

from oracle import floats
from oracle.floats import Format, Kind, Number, Round
from oracle.values import (
    Modes,
    Value,
    as_python_float,
    boolean,
    compare,
    convert_float,
    format_of,
    integer,
    real,
    resize,
)

Function = Callable[..., Value]


def _format(value: Value, modes: Modes) -> Format:
    return format_of(value.kind, value.width, modes)


def _nan(value: Value, modes: Modes) -> Value | None:
    fmt = _format(value, modes)
    return Value(value.kind, value.width, fmt.quieten(value.bits)) if fmt.is_nan(value.bits) else None


def fma(modes: Modes, a: Value, b: Value, c: Value, power: Value | None = None) -> Value:
    """a * b + c, with `power` scaled by that power of two, rounded once."""
    for operand in (a, b, c):
        quiet = _nan(operand, modes)
        if quiet is not None:
            return quiet
    product = floats.multiply(a.number(modes), b.number(modes))
    total = floats.add(product, c.number(modes), modes.rounding(c.width))
    if power is not None:
        total = dataclasses.replace(total, exponent=total.exponent + power.as_integer())
    return real(c.kind, c.width, total, modes)


def _rounder(mode: str) -> Function:
    def whole(modes: Modes, a: Value) -> Value:
        quiet = _nan(a, modes)
        return quiet if quiet is not None else real(a.kind, a.width, floats.integral(a.number(modes), mode), modes)

    return whole


def nearest_up(modes: Modes, a: Value) -> Value:
    """The nearest whole number, of two the greater one."""
    quiet = _nan(a, modes)
    more = floats.add(a.number(modes), floats.from_float(0.5))
    return quiet if quiet is not None else real(a.kind, a.width, floats.integral(more, "floor"), modes)


def fract(modes: Modes, a: Value) -> Value:
    """x - floor(x), below 1 even where rounding would give 1; 0 is positive in every rounding mode."""
    quiet = _nan(a, modes)
    if quiet is not None:
        return quiet
    number, fmt = a.number(modes), _format(a, modes)
    whole = floats.integral(number, "floor")
    part = floats.add(number, floats.negate(whole), modes.rounding(a.width))
    result = real(a.kind, a.width, part if part.kind is not Kind.ZERO else dataclasses.replace(part, sign=0), modes)
    unit = fmt.pack(floats.from_int(1))
    return Value(a.kind, a.width, unit - 1) if result.bits == unit else result


def frexp_exponent(modes: Modes, a: Value) -> Value:
    number = a.number(modes)
    if number.kind is not Kind.FINITE:
        return integer("i", 32, 0)
    return integer("i", 32, number.exponent + number.magnitude.bit_length())


def reciprocal_root(modes: Modes, a: Value) -> Value:
    quiet = _nan(a, modes)
    if quiet is not None:
        return quiet
    root = floats.square_root(a.number(modes))
    return real(a.kind, a.width, floats.divide(floats.from_int(1), root), modes, Round.EVEN)


def _turns(function: Callable[[float], float], outside: float) -> Callable[[float], float]:
    def apply(x: float) -> float:
        if math.isinf(x):
            return math.nan
        return function(2 * math.pi * (x - round(x))) if abs(x) <= 256 else outside

    return apply


def transcendental(function: Callable[[float], float]) -> Function:
    def apply(modes: Modes, a: Value) -> Value:
        quiet = _nan(a, modes)
        if quiet is not None:
            return quiet
        try:
            result = function(as_python_float(a, modes))
        except (ValueError, ZeroDivisionError):
            return real(a.kind, a.width, floats.NAN, modes)
        except OverflowError:
            result = math.inf
        return real(a.kind, a.width, floats.from_float(result), modes, Round.EVEN)

    return apply


def _log2(x: float) -> float:
    return -math.inf if x == 0 else math.log2(x)


def power(modes: Modes, a: Value, b: Value) -> Value:
    """pow(2.0, x): V_EXP."""
    assert as_python_float(a, modes) == 2.0
    return transcendental(lambda x: 2.0**x)(modes, b)


def square_root(modes: Modes, a: Value) -> Value:
    quiet = _nan(a, modes)
    return quiet if quiet is not None else real(a.kind, a.width, floats.square_root(a.number(modes)), modes)


def exponent(modes: Modes, a: Value) -> Value:
    """The biased field, as in `exponent(S0.f32) == 255`."""
    return integer("i", 32, _format(a, modes).exponent_field(a.bits))


def mantissa(modes: Modes, a: Value) -> Value:
    """frexp's mantissa in [0.5, 1) with the operand's sign; zero stays zero (V_FREXP_MANT)."""
    number = a.number(modes)
    if number.kind is not Kind.FINITE:
        return a
    scaled = Number(Kind.FINITE, number.sign, number.magnitude, -number.magnitude.bit_length())
    return real(a.kind, a.width, scaled, modes)


def ldexp(modes: Modes, a: Value, n: Value) -> Value:
    quiet = _nan(a, modes)
    if quiet is not None:
        return quiet
    number = a.number(modes)
    scaled = Number(number.kind, number.sign, number.magnitude, number.exponent + n.as_integer())
    return real(a.kind, a.width, scaled, modes)


def signext_from_bit(modes: Modes, a: Value, bit: Value) -> Value:
    """Sign extension of a field `bit` wide; a field of width 0 is 0 (S_BFE_I32, V_BFE_I32)."""
    width = bit.as_integer()
    if width == 0 or width >= a.width:
        return a if width else integer(a.kind, a.width, 0)
    low = a.bits & ((1 << width) - 1)
    return integer(a.kind, a.width, low - (low >> (width - 1) << width))


def to_normalised(width: int, signed: bool) -> Function:
    """V_CVT_NORM: [-1, 1] to the whole range of a 16-bit integer, round to nearest even."""
    high = (1 << (width - signed)) - 1

    def apply(modes: Modes, a: Value) -> Value:
        x = as_python_float(a, modes)
        if math.isnan(x):
            return integer("u", width, 0)
        x = max(-1.0 if signed else 0.0, min(1.0, x))
        scaled = floats.multiply(floats.from_float(x), floats.from_int(high))
        return integer("i" if signed else "u", width, floats.to_int(floats.integral(scaled, "even"), -high, high))

    return apply


def minimum_maximum(op: str) -> Function:
    """IEEE 754-2019 minimum and maximum: a NaN operand gives a NaN, -0 < +0."""

    def apply(modes: Modes, *operands: Value) -> Value:
        for operand in operands:
            quiet = _nan(operand, modes)
            if quiet is not None:
                return quiet
        best = operands[0]
        for other in operands[1:]:
            if compare(op, other, best, modes).truth():
                best = other
            elif other.bits != best.bits and compare("==", other, best, modes).truth():
                best = other if (_format(other, modes).sign(other.bits) == 1) == (op == "<") else best
        return best

    return apply


_NAMES = {f"f{width}": ("f", width) for width in (64, 32, 16)}
_NAMES |= {"bf16": ("bf", 16), "fp8": ("fp8", 8), "bf8": ("bf8", 8)}
_CONVERSION = re.compile(r"([a-z]+\d+)_to_([a-z]+\d+)$")


def conversion(name: str) -> Function | None:
    """f32_to_i32 and its kin: to an integer truncates and saturates, NaN gives 0; to a float rounds once."""
    match = _CONVERSION.match(name)
    if match is None:
        return None
    source, target = match.groups()
    if target in _NAMES:
        kind, width = _NAMES[target]
        if source in _NAMES:
            return lambda modes, a: convert_quietly(modes, a, kind, width)
        return lambda modes, a: real(kind, width, floats.from_int(_as(source, a).as_integer()), modes)
    signed, width = target[0] == "i", int(target[1:])
    low, high = (-(1 << (width - 1)), (1 << (width - 1)) - 1) if signed else (0, (1 << width) - 1)
    if source in _NAMES:
        return lambda modes, a: integer(target[0], width, floats.to_int(a.number(modes), low, high))
    return lambda modes, a: integer(target[0], width, max(low, min(high, _as(source, a).as_integer())))


def _as(name: str, a: Value) -> Value:
    width = int(name[1:])
    return Value(name[0], width, a.bits & ((1 << width) - 1))


def convert_quietly(modes: Modes, a: Value, kind: str, width: int) -> Value:
    """Convert between formats; a NaN comes out quiet, and any NaN fits an FP8 format's NaN."""
    target = format_of(kind, width, modes)
    source = _format(a, modes)
    if source.is_nan(a.bits) and target.style != "ieee":
        sign = source.sign(a.bits) << (width - 1) if target.style == "fn" else 0
        return Value(kind, width, target.quiet_nan | sign)
    result = convert_float(a, kind, width, modes)
    return Value(kind, width, target.quieten(result.bits)) if target.is_nan(result.bits) else result


_SCALED = re.compile(r"([a-z]+\d+)_to_([a-z]+\d+?)(_sr)?_scale$")
_WIDE = {"f32": ("f", 32), "f16": ("f", 16), "bf16": ("bf", 16)}


def scaled_conversion(name: str) -> Function | None:
    """f32_to_fp6_scale and its kin, which the listings leave open: as the host functions in HIP's amd_hip_ocp_host.hpp.

    To a small format the value is divided by 2**(scale - 127), else multiplied; then it is rounded once. A scale of 255
    makes NaNs. What is too large becomes infinity, NaN or the largest number, whichever the format has first.
    """
    match = _SCALED.match(name)
    if match is None:
        return None
    source, target, random = match.groups()
    kind, width = _WIDE.get(target) or (target, int(target[-1]))
    narrows = source in _WIDE

    def apply(modes: Modes, a: Value, *others: Value) -> Value:
        scale = others[-1].bits & 0xFF
        origin, fmt = _format(a, modes), format_of(kind, width, modes)
        number, sign = a.number(modes), origin.sign(a.bits) << (fmt.width - 1)
        if number.kind is Kind.NAN or scale == 255:
            return Value(kind, width, sign | (fmt.quiet_nan or fmt.largest))
        power = 127 - scale if narrows else scale - 127
        number = Number(number.kind, number.sign, number.magnitude, number.exponent + power)
        if random and number.kind is Kind.FINITE:
            noise = others[0].bits >> (32 - origin.mantissa_bits + fmt.mantissa_bits)
            return Value(kind, width, sign | _cut(number, noise, origin, fmt))
        return Value(kind, width, fmt.pack(number))

    return apply


def _cut(number: Number, noise: int, origin: Format, fmt: Format) -> int:
    """Magnitude after stochastic rounding: noise counts places of the source's mantissa, as the result is aligned."""
    leading = number.exponent + number.magnitude.bit_length() - 1
    last_place = max(leading, 1 - fmt.bias) - origin.mantissa_bits
    exponent = min(last_place, number.exponent)
    total_units = (number.magnitude << (number.exponent - exponent)) + (noise << (last_place - exponent))
    total = floats.finite(0, total_units, exponent)
    largest = fmt.unpack(fmt.largest)
    beyond = floats.finite(0, largest.magnitude + 1, largest.exponent)  # the first number that the format lacks
    if floats.add(total, floats.negate(beyond)).sign:
        return fmt.pack(total, Round.ZERO)
    return fmt.pack(Number(Kind.INFINITE, 0))


def two_over_pi_bits(modes: Modes, shift: Value) -> Value:
    """53 bits of 2 / pi (as a number without sign) from bit `shift` below the binary point on (V_TRIG_PREOP_F64)."""
    whole = _two_over_pi() << shift.as_integer() & ((1 << 1201) - 1)
    return real("f", 64, floats.from_int(whole >> 1148), modes)


@cache
def _two_over_pi() -> int:
    """The first 1201 binary digits after the point, by Stormer's formula for pi / 4."""
    unit = 1 << 1500
    quarter = sum(n * _arctangent(unit, x) for n, x in ((44, 57), (7, 239), (-12, 682), (24, 12943)))
    return unit * unit // (2 * quarter) >> 299


def _arctangent(unit: int, x: int) -> int:
    """arctan(1 / x) in units of 1 / unit."""
    total, term, n = 0, unit // x, 0
    while term:
        total += (term if n % 2 == 0 else -term) // (2 * n + 1)
        term, n = term // (x * x), n + 1
    return total


def byte_distance(masked: bool) -> Function:
    """V_SAD_U8 and V_MSAD_U8 as functions of other listings; masked: a byte of 0 in the reference adds nothing."""

    def apply(modes: Modes, a: Value, b: Value, c: Value) -> Value:
        total = c.bits
        for low in range(0, 32, 8):
            x, y = a.bits >> low & 0xFF, b.bits >> low & 0xFF
            total += abs(x - y) if y or not masked else 0
        return integer("u", 32, total)

    return apply


FUNCTIONS: dict[str, Function] = {
    "fma": fma,
    "fma_scaled": fma,
    "floor": _rounder("floor"),
    "trunc": _rounder("trunc"),
    "round_even": _rounder("even"),
    "nearest_up": nearest_up,
    "fract": fract,
    "frexp_exponent": frexp_exponent,
    "rsq": reciprocal_root,
    "sin_turns": transcendental(_turns(math.sin, 0.0)),
    "cos_turns": transcendental(_turns(math.cos, 1.0)),
    "pow": power,
    "log2": transcendental(_log2),
    "sqrt": square_root,
    "abs": lambda modes, a: Value(a.kind, a.width, a.bits & ~(1 << (a.width - 1))),
    "sign": lambda modes, a: integer("u", 1, a.bits >> (a.width - 1)),
    "exponent": exponent,
    "mantissa": mantissa,
    "ldexp": ldexp,
    "isNAN": lambda modes, a: boolean(_format(a, modes).is_nan(a.bits)),
    "isSignalNAN": lambda modes, a: boolean(_format(a, modes).is_signalling(a.bits)),
    "isQuietNAN": lambda modes, a: boolean(
        _format(a, modes).is_nan(a.bits) and not _format(a, modes).is_signalling(a.bits)
    ),
    "cvtToQuietNAN": lambda modes, a: Value(a.kind, a.width, _format(a, modes).quieten(a.bits)),
    "signext": lambda modes, a: resize(Value("i", a.width, a.bits), "i", 64),
    "signext_from_bit": signext_from_bit,
    "f32_to_snorm": to_normalised(16, True),
    "f32_to_unorm": to_normalised(16, False),
    "f16_to_snorm": to_normalised(16, True),
    "f16_to_unorm": to_normalised(16, False),
    "two_over_pi_bits": two_over_pi_bits,
    "v_prng_b32": lambda modes, a: integer("u", 32, a.bits << 1 ^ (197 if a.bits >> 31 & 1 else 0)),
    "v_sad_u8": byte_distance(False),
    "v_msad_u8": byte_distance(True),
    "s_ff1_i32_b64": lambda modes, a: integer("i", 32, (a.bits & -a.bits).bit_length() - 1),
    "v_minimum_f32": minimum_maximum("<"),
    "v_maximum_f32": minimum_maximum(">"),
    "v_minimum3_f16": minimum_maximum("<"),
    "v_maximum3_f16": minimum_maximum(">"),
}
