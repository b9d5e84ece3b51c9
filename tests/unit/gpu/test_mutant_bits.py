"""Known bits: whatever numbers fit the operands' bits, the result fits the bits that are known of it."""

from __future__ import annotations

import operator
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.mutants import bits
from tests.mutants.bits import Bits, constant

WORD = 0xFFFFFFFF
words = st.integers(0, WORD)
OPERATIONS: dict[str, tuple[Callable[[Bits, Bits], Bits], Callable[[int, int], int]]] = {
    "and": (bits.bits_and, operator.and_),
    "or": (bits.bits_or, operator.or_),
    "xor": (bits.bits_xor, operator.xor),
    "add": (bits.add, operator.add),
    "subtract": (bits.subtract, operator.sub),
    "multiply": (bits.multiply, operator.mul),
    "multiply low halves": (bits.multiply_24, lambda a, b: (a & 0xFFFFFF) * (b & 0xFFFFFF)),
}
SHIFTS: dict[str, tuple[Callable[[Bits, Bits], Bits], Callable[[int, int], int]]] = {
    "left": (bits.shift_left, operator.lshift),
    "right": (bits.shift_right, operator.rshift),
    "right with the sign": (bits.shift_right_signed, lambda a, b: signed(a) >> b),
}
RELATIONS = {"lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge, "eq": operator.eq,
             "lg": operator.ne}  # fmt: skip


def signed(value: int) -> int:
    return value - (1 << 32) if value >> 31 else value


def known(value: int, mask: int) -> Bits:
    """The bits of ``mask`` of a number."""
    return Bits(np.array([[~value & mask & WORD]], np.uint32), np.array([[value & mask]], np.uint32))


def fits(value: int, what: Bits) -> bool:
    value &= WORD
    return not (value & int(what.zeros[0, 0])) and not (~value & int(what.ones[0, 0]))


@pytest.mark.parametrize("name", OPERATIONS)
@given(words, words, words, words)
def test_what_is_known_of_a_result_holds(name: str, a: int, mask_a: int, b: int, mask_b: int) -> None:
    of_bits, of_numbers = OPERATIONS[name]
    assert fits(of_numbers(a, b), of_bits(known(a, mask_a), known(b, mask_b)))
    assert of_bits(constant(a), constant(b)).is_constant()


@pytest.mark.parametrize("name", SHIFTS)
@given(words, words, st.integers(0, 31))
def test_shifts(name: str, a: int, mask: int, by: int) -> None:
    of_bits, of_numbers = SHIFTS[name]
    assert fits(of_numbers(a, by), of_bits(known(a, mask), constant(by)))
    assert of_bits(constant(a), constant(by)).is_constant()


@given(words, words, st.integers(0, 31), st.integers(0, 31))
def test_fields_and_reversed_bits(a: int, mask: int, offset: int, width: int) -> None:
    field = bits.extract(known(a, mask), constant(offset), constant(width))
    assert fits(a >> offset & ((1 << width) - 1), field)
    assert fits(int(f"{a:032b}"[::-1], 2), bits.reversed_bits(known(a, mask)))


@pytest.mark.parametrize("relation", RELATIONS)
@given(words, words, words, words, st.booleans())
def test_a_comparison_says_only_what_holds(
    relation: str, a: int, mask_a: int, b: int, mask_b: int, is_signed: bool
) -> None:
    truth = bits.compare(relation, known(a, mask_a), known(b, mask_b), signed=is_signed)
    holds = RELATIONS[relation](*((signed(a), signed(b)) if is_signed else (a, b)))
    assert not (truth.false if holds else truth.true).any()
    exact = bits.compare(relation, constant(a), constant(b), signed=is_signed)
    assert bool((exact.true if holds else exact.false).all())


@given(words, words, words, words)
def test_what_is_kept_where_ways_meet_holds_of_both(a: int, mask_a: int, b: int, mask_b: int) -> None:
    one, other = known(a, mask_a), known(b, mask_b)
    for met in (bits.join(one, other), bits.widened(one, other)):
        assert fits(a, met)
        assert fits(b, met)
