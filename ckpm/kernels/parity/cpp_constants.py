"""Constant parts of conditions and types, evaluated where their value is known without a guess.

Two different spellings may mean one thing, so they count as different only where it is certain: numbers, truth values,
and the spellings of one axis in kernels/spellings.yaml. Everything else stays as it is written.
"""

from __future__ import annotations

import functools

from ckpm.kernels.families.spellings import spellings
from ckpm.kernels.parity.conditions import FALSE, TRUE, Condition, conjunction, disjunction, negation
from ckpm.kernels.parity.cpp_tokens import Tokens, closing_angle, closing_bracket, split_arguments, tokenize

_IS_SAME = ("std", "::", "is_same_v", "<")
_CHOICE = ("std", "::", "conditional_t", "<")
_SMALLER = ("ck_tile", "::", "min", "(")


def decide_constants(condition: Condition) -> Condition:
    """Replace every comparison of constants and every ``std::is_same_v`` whose value is known by the value."""
    if condition.kind == "leaf":
        return _value(condition)
    parts = [decide_constants(part) for part in condition.parts]
    if condition.kind == "not":
        return negation(parts[0])
    return (conjunction if condition.kind == "and" else disjunction)(parts)


def fold_constants(tokens: Tokens) -> Tokens:
    """Replace expressions of constants by their values.

    They are ``(8 > 0)``, ``ck_tile::min(32, 16)`` and ``std::conditional_t<true, A, B>``, which is A.
    """
    pieces: list[str] = []
    at = 0
    while at < len(tokens):
        value, end = _fold_at(tokens, at)
        pieces += value
        at = end
    return tuple(pieces)


def _fold_at(tokens: Tokens, at: int) -> tuple[Tokens, int]:
    """Return the value of the constant expression at an index, else its token; and the index after it."""
    if tokens[at] == "(" and tokens[at + 2 : at + 3] == (">",) and tokens[at + 4 : at + 5] == (")",):
        left, right = tokens[at + 1], tokens[at + 3]
        if left.isdecimal() and right.isdecimal():
            return ("true" if int(left) > int(right) else "false",), at + 5
    if tokens[at : at + 4] == _SMALLER:
        sides = split_arguments(tokens[at + 4 : closing_bracket(tokens, at + 3)])
        if len(sides) == 2 and all(len(side) == 1 and side[0].isdecimal() for side in sides):
            return (str(min(int(side[0]) for side in sides)),), closing_bracket(tokens, at + 3) + 1
    if tokens[at : at + 4] == _CHOICE:
        end = closing_angle(tokens, at + 3)
        parts = split_arguments(tokens[at + 4 : end])
        if len(parts) == 3 and parts[0] in (("true",), ("false",)):
            return fold_constants(parts[1] if parts[0] == ("true",) else parts[2]), end + 1
    return tokens[at : at + 1], at + 1


def _value(leaf: Condition) -> Condition:
    tokens = leaf.leaf
    if tokens[:4] == _IS_SAME and closing_angle(tokens, 3) == len(tokens) - 1:
        types = split_arguments(tokens[4:-1])
        if len(types) == 2:
            same = True if types[0] == types[1] else _equal(*types)
            return _as_condition(leaf, same)
    operators = [at for at, piece in enumerate(tokens) if piece in ("==", "!=")]
    if len(operators) == 1:
        (at,) = operators
        equal = _equal(tokens[:at], tokens[at + 1 :])
        return _as_condition(leaf, equal if equal is None or tokens[at] == "==" else not equal)
    return leaf


def _as_condition(leaf: Condition, value: bool | None) -> Condition:
    return leaf if value is None else TRUE if value else FALSE


def _equal(left: Tokens, right: Tokens) -> bool | None:
    """Compare two constants; None if it is not known whether they are equal."""
    both = {left, right}
    numbers = all(len(side) == 1 and side[0].isdecimal() and str(int(side[0])) == side[0] for side in both)
    return left == right if numbers or any(both <= group for group in _apart()) else None


@functools.cache
def _apart() -> tuple[frozenset[Tokens], ...]:
    """Sets of spellings of which no two mean the same."""
    spelling = spellings()
    masks = {row["type"] for masks in spelling["mask"].values() for row in masks.values()}
    types = {row["type"] for row in spelling["dtype"].values()}
    enums = ({row["enum"] for row in spelling[axis].values()} for axis in ("bias", "qscale"))
    return tuple(frozenset(map(tokenize, group)) for group in ({"true", "false"}, masks, types, *enums))
