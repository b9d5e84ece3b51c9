"""Parts of conditions whose value C++ knows when it compiles, decided where they can be without a guess.

Two different words may mean one thing, so they are held for different only where that is known: numbers, truth values,
and the words of one axis in kernels/families/spellings.yaml. Everything else stays as it is written.
"""

from __future__ import annotations

import functools

from ckpm.kernels.families.spellings import spellings
from ckpm.kernels.parity.conditions import FALSE, TRUE, Condition, conjunction, disjunction, negation
from ckpm.kernels.parity.cpp_tokens import Tokens, closing, closing_angle, split_arguments, tokenize

_IS_SAME = ("std", "::", "is_same_v", "<")
_CHOICE = ("std", "::", "conditional_t", "<")
_SMALLER = ("ck_tile", "::", "min", "(")


def decided(condition: Condition) -> Condition:
    """The condition with every comparison of constants and every ``std::is_same_v`` that is known put as its value."""
    if condition.kind == "leaf":
        return _value(condition)
    parts = [decided(part) for part in condition.parts]
    if condition.kind == "not":
        return negation(parts[0])
    return (conjunction if condition.kind == "and" else disjunction)(parts)


def folded(tokens: Tokens) -> Tokens:
    """Tokens with the values of what C++ computes here of constants, wherever they stand.

    These are ``(8 > 0)``, ``ck_tile::min(32, 16)`` and ``std::conditional_t<true, A, B>``, which is A.
    """
    pieces: list[str] = []
    at = 0
    while at < len(tokens):
        value, end = _computed(tokens, at)
        pieces += value
        at = end
    return tuple(pieces)


def _computed(tokens: Tokens, at: int) -> tuple[Tokens, int]:
    """What stands at a place, as its value if it is computed of constants, and where the tokens go on behind it."""
    if tokens[at] == "(" and tokens[at + 2 : at + 3] == (">",) and tokens[at + 4 : at + 5] == (")",):
        left, right = tokens[at + 1], tokens[at + 3]
        if left.isdecimal() and right.isdecimal():
            return ("true" if int(left) > int(right) else "false",), at + 5
    if tokens[at : at + 4] == _SMALLER:
        sides = split_arguments(tokens[at + 4 : closing(tokens, at + 3)])
        if len(sides) == 2 and all(len(side) == 1 and side[0].isdecimal() for side in sides):
            return (str(min(int(side[0]) for side in sides)),), closing(tokens, at + 3) + 1
    if tokens[at : at + 4] == _CHOICE:
        end = closing_angle(tokens, at + 3)
        parts = split_arguments(tokens[at + 4 : end])
        if len(parts) == 3 and parts[0] in (("true",), ("false",)):
            return folded(parts[1] if parts[0] == ("true",) else parts[2]), end + 1
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
    """Whether two constants are equal; None if that is not known."""
    both = {left, right}
    numbers = all(len(side) == 1 and side[0].isdecimal() and str(int(side[0])) == side[0] for side in both)
    return left == right if numbers or any(both <= words for words in _apart()) else None


@functools.cache
def _apart() -> tuple[frozenset[Tokens], ...]:
    """Sets of words of which no two mean the same."""
    words = spellings()
    masks = {row["type"] for masks in words["mask"].values() for row in masks.values()}
    types = {row["type"] for row in words["dtype"].values()}
    enums = ({row["enum"] for row in words[axis].values()} for axis in ("bias", "qscale"))
    return tuple(frozenset(map(tokenize, group)) for group in ({"true", "false"}, masks, types, *enums))
