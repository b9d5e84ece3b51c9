"""Whether a changed bit is one that comparisons with a multiple don't see.

For a multiple ``a`` of 2^k, ``a > b`` and ``a <= b`` say the same of all ``b`` that differ in their lowest k bits
alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from emulator.lowering.decode import Instruction
from emulator.lowering.registers import accesses
from tests.mutants.bits import bits_xor
from tests.mutants.planting import Change
from tests.mutants.values import Values, sources

_BITWISE = ("v_or_b32", "v_and_b32", "v_xor_b32")
_LARGER_FIRST = ("v_cmp_gt_i32", "v_cmp_gt_u32", "v_cmp_le_i32", "v_cmp_le_u32")  # the multiple is the first operand
_LARGER_LAST = ("v_cmp_lt_i32", "v_cmp_lt_u32", "v_cmp_ge_i32", "v_cmp_ge_u32")


def unseen(code: Sequence[Instruction], values: Values, change: Change, readers: Iterable[int]) -> bool:
    """Whether a bitwise operation has another constant, and its ``readers`` compare the result with such multiples."""
    if change.before.name != change.after.name or not change.before.name.startswith(_BITWISE):
        return False
    state = values.before(change.at)
    flipped = 0
    for old, new in zip(sources(change.before), sources(change.after), strict=True):
        one, other = values.read(state, old, change.before), values.read(state, new, change.after)
        same = old == new and old != 255
        if not same and not (one.is_constant() and other.is_constant()):
            return False
        flipped |= 0 if same else int(np.bitwise_or.reduce(bits_xor(one, other).ones, axis=None))
    (result,) = accesses(change.before).writes
    places = list(readers)
    return bool(places) and all(_compares(code[at], values, at, result, flipped) for at in places)


def _compares(one: Instruction, values: Values, at: int, result: int, flipped: int) -> bool:
    """Whether it compares a multiple of more than ``flipped`` with the result, and does nothing else with that."""
    named = sources(one)
    place = 0 if one.name.startswith(_LARGER_FIRST) else 1 if one.name.startswith(_LARGER_LAST) else None
    if place is None or len(named) != 2 or named[1 - place] != result or "SDWA" in one.format or "DPP" in one.format:
        return False
    multiple = values.read(values.before(at), named[place], one)
    low = (1 << flipped.bit_length()) - 1
    return named[place] != result and bool(((multiple.zeros & np.uint32(low)) == low).all())
