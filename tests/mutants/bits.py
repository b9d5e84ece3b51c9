"""Known bits of 32-bit values, of all lanes of all waves of a workgroup at once, and arithmetic with them.

The arrays of a :class:`Bits` are uint32 of shape (waves, 64), or (waves, 1) where all lanes of a wave have the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint32]
ALL = np.uint32(0xFFFFFFFF)
LANES = 64
_SIGN = np.uint32(1 << 31)


@dataclass(frozen=True, slots=True, eq=False)
class Bits:
    """``zeros`` and ``ones`` are the bits that are known to be that; a bit in neither may be both."""

    zeros: Words
    ones: Words

    @property
    def known(self) -> Words:
        return self.zeros | self.ones

    def is_constant(self) -> bool:
        return bool((self.known == ALL).all())

    def same(self, other: Bits) -> bool:
        return np.array_equal(self.zeros, other.zeros) and np.array_equal(self.ones, other.ones)

    def where(self, choice: NDArray[np.bool_], other: Bits) -> Bits:
        return Bits(np.where(choice, self.zeros, other.zeros), np.where(choice, self.ones, other.ones))


UNKNOWN = Bits(np.zeros((1, 1), np.uint32), np.zeros((1, 1), np.uint32))


def constant(values: Any) -> Bits:
    """Of a number, or of an array of numbers by wave and lane."""
    ones = np.atleast_2d(np.asarray(values, np.int64) & 0xFFFFFFFF).astype(np.uint32)
    return Bits(~ones, ones)


def join(one: Bits, other: Bits) -> Bits:
    """What holds of both."""
    return Bits(one.zeros & other.zeros, one.ones & other.ones)


def widened(old: Bits, new: Bits) -> Bits:
    """Like :func:`join`, but for the bits above the lowest that was lost: a count that goes on loses no more later."""
    both = join(old, new)
    lost = (old.known ^ both.known).astype(np.uint32)
    below = np.where(lost == 0, ALL, (lost & (~lost + np.uint32(1))) - np.uint32(1)).astype(np.uint32)
    return Bits(both.zeros & below, both.ones & below)


def bits_and(a: Bits, b: Bits) -> Bits:
    return Bits(a.zeros | b.zeros, a.ones & b.ones)


def bits_or(a: Bits, b: Bits) -> Bits:
    return Bits(a.zeros & b.zeros, a.ones | b.ones)


def bits_xor(a: Bits, b: Bits) -> Bits:
    return Bits((a.zeros & b.zeros) | (a.ones & b.ones), (a.zeros & b.ones) | (a.ones & b.zeros))


def bits_not(a: Bits) -> Bits:
    return Bits(a.ones, a.zeros)


def add(a: Bits, b: Bits, carry: int = 0) -> Bits:
    """A bit of the sum is known where both bits are and the carry into it, which most and least sums agree on."""
    least = a.ones + b.ones + np.uint32(carry)
    most = ~a.zeros + ~b.zeros + np.uint32(carry)
    carry_in_least, carry_in_most = least ^ a.ones ^ b.ones, most ^ ~a.zeros ^ ~b.zeros
    known = a.known & b.known & (carry_in_least | ~carry_in_most)
    return Bits(~least & known, least & known)


def subtract(a: Bits, b: Bits) -> Bits:
    return add(a, bits_not(b), 1)


def multiply(a: Bits, b: Bits) -> Bits:
    """Exact where both factors are known; else the zeros at the end of both."""
    product = a.ones * b.ones
    exact = (a.known & b.known) == ALL
    trailing = np.minimum(_trailing_zeros(a) + _trailing_zeros(b), 31)
    low = (np.uint32(1) << trailing.astype(np.uint32)) - np.uint32(1)
    return Bits(np.where(exact, ~product, low), np.where(exact, product, np.uint32(0)))


def multiply_24(a: Bits, b: Bits) -> Bits:
    """Of the low 24 bits."""
    low = constant(0xFFFFFF)
    return multiply(bits_and(a, low), bits_and(b, low))


def _trailing_zeros(a: Bits) -> NDArray[np.int64]:
    first_other = ~a.zeros & (a.zeros + np.uint32(1))
    return np.where(first_other == 0, 32, np.bitwise_count(first_other - np.uint32(1))).astype(np.int64)


def _shifted(how: Callable[[Words, Words], Words], fill: Callable[[Words], Words]) -> Callable[[Bits, Bits], Bits]:
    def shift(a: Bits, by: Bits) -> Bits:
        if not bool(((by.known & np.uint32(31)) == 31).all()):
            return UNKNOWN
        count = by.ones & np.uint32(31)
        return Bits(how(a.zeros, count) | fill(count), how(a.ones, count))

    return shift


def _arithmetic(value: Words, count: Words) -> Words:
    return (value.view(np.int32) >> count.view(np.int32)).view(np.uint32)


shift_left = _shifted(lambda value, count: value << count, lambda count: (np.uint32(1) << count) - np.uint32(1))
shift_right = _shifted(lambda value, count: value >> count, lambda count: ~(ALL >> count))
shift_right_signed = _shifted(_arithmetic, np.zeros_like)


def extract(a: Bits, offset: Bits, width: Bits) -> Bits:
    """``width`` bits from ``offset`` on, without a sign."""
    if not (offset.is_constant() and width.is_constant()):
        return UNKNOWN
    mask = (np.uint32(1) << (width.ones & np.uint32(31))) - np.uint32(1)
    return bits_and(shift_right(a, offset), constant(mask))


def reversed_bits(a: Bits) -> Bits:
    def turned(value: Words) -> Words:
        result = np.zeros_like(value)
        for place in range(32):
            result |= (value >> np.uint32(place) & np.uint32(1)) << np.uint32(31 - place)
        return result

    return Bits(turned(a.zeros), turned(a.ones))


@dataclass(frozen=True, slots=True, eq=False)
class Truth:
    """Of a comparison, by wave and lane; where neither, it may be both."""

    true: NDArray[np.bool_]
    false: NDArray[np.bool_]


def never_equal(a: Bits, b: Bits) -> NDArray[np.bool_]:
    """Where a known bit of one is another than that of the other."""
    return np.not_equal((a.zeros & b.ones) | (a.ones & b.zeros), 0)


def compare(relation: str, a: Bits, b: Bits, *, signed: bool) -> Truth:
    """``relation``: lt, le, gt, ge, eq or lg (ne)."""
    if relation in ("gt", "ge"):
        return compare({"gt": "lt", "ge": "le"}[relation], b, a, signed=signed)
    (low_a, high_a), (low_b, high_b) = _range(a, signed), _range(b, signed)
    if relation == "lt":
        return Truth(high_a < low_b, low_a >= high_b)
    if relation == "le":
        return Truth(high_a <= low_b, low_a > high_b)
    other = never_equal(a, b)
    equal = ((a.known & b.known) == ALL) & ~other
    return Truth(equal, other) if relation == "eq" else Truth(other, equal)


def _range(a: Bits, signed: bool) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The least and the greatest number that it may be."""
    if not signed:
        return a.ones.astype(np.int64), (~a.zeros).astype(np.int64)
    least = a.ones | (~a.zeros & _SIGN)
    greatest = ~a.zeros & ~(~a.ones & _SIGN)
    return least.view(np.int32).astype(np.int64), np.ascontiguousarray(greatest).view(np.int32).astype(np.int64)


def only_zeros(value: Bits) -> Bits:
    return Bits(value.zeros, np.zeros_like(value.ones))


def packed(lanes: NDArray[Any]) -> list[Words]:
    """The two words of a mask, by wave."""
    words = np.packbits(np.ascontiguousarray(np.atleast_2d(lanes)), axis=-1, bitorder="little")
    both = np.ascontiguousarray(words).view("<u4").astype(np.uint32)
    return [both[:, :1], both[:, 1:2]]


def lanes_below(name: str, mask: Bits, base: Bits) -> Bits:
    """Of a full mask: how many lanes of its half of the wave come before this one, and ``base``."""
    if not (mask.is_constant() and bool((mask.ones == ALL).all())):
        return UNKNOWN
    lanes = np.arange(LANES)
    below = np.minimum(lanes, 32) if "_lo_" in name else np.maximum(lanes - 32, 0)
    return add(constant(below), base)
