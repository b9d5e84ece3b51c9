"""Boolean conditions in a canonical form: two conditions that differ in layout, brackets, order or ``true`` are equal.

The tokens are those of C++ or of a preprocessor line. The parts between ``&&``, ``||`` and ``!`` are leaves, compared
by their tokens. Order may be ignored because no condition here has an effect besides its value.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ckpm.kernels.parity.cpp_tokens import BINARY, OPEN, closing_angle, closing_bracket, has_operator, spell, text_error


@dataclass(frozen=True, slots=True)
class Condition:
    """``kind`` is ``leaf`` (tokens), ``not`` (one part), ``and`` or ``or`` (parts); an empty ``and`` is true."""

    kind: str
    leaf: tuple[str, ...] = ()
    parts: frozenset[Condition] = frozenset()


TRUE = Condition("and")
FALSE = Condition("or")
_CONSTANTS: dict[tuple[str, ...], Condition] = {("true",): TRUE, ("1",): TRUE, ("false",): FALSE, ("0",): FALSE}


def conjunction(parts: Iterable[Condition]) -> Condition:
    return _join("and", parts, TRUE, FALSE)


def disjunction(parts: Iterable[Condition]) -> Condition:
    return _join("or", parts, FALSE, TRUE)


def negation(part: Condition) -> Condition:
    if part.kind == "not":
        return next(iter(part.parts))
    if part in (TRUE, FALSE):
        return FALSE if part == TRUE else TRUE
    return Condition("not", parts=frozenset((part,)))


def _join(kind: str, parts: Iterable[Condition], neutral: Condition, absorbing: Condition) -> Condition:
    flat: set[Condition] = set()
    for part in parts:
        if part == absorbing:
            return absorbing
        if part != neutral:
            flat |= part.parts if part.kind == kind else {part}
    return next(iter(flat)) if len(flat) == 1 else Condition(kind, parts=frozenset(flat))


def conjuncts(condition: Condition) -> frozenset[Condition]:
    """Return the conditions that must hold all at once."""
    return condition.parts if condition.kind == "and" else frozenset((condition,))


def parse_condition(tokens: Sequence[str]) -> Condition:
    """Parse the tokens of a condition."""
    condition, at = _alternatives(tokens, 0)
    if at != len(tokens):
        raise text_error(f"'{' '.join(tokens)}': unexpected '{tokens[at]}'")
    return condition


def _alternatives(tokens: Sequence[str], at: int) -> tuple[Condition, int]:
    parts = []
    while True:
        part, at = _requirements(tokens, at)
        parts.append(part)
        if at >= len(tokens) or tokens[at] != "||":
            return disjunction(parts), at
        at += 1


def _requirements(tokens: Sequence[str], at: int) -> tuple[Condition, int]:
    parts = []
    while True:
        part, at = _operand(tokens, at)
        parts.append(part)
        if at >= len(tokens) or tokens[at] != "&&":
            return conjunction(parts), at
        at += 1


def _operand(tokens: Sequence[str], at: int) -> tuple[Condition, int]:
    end = _end_of_operand(tokens, at)
    operand = tokens[at:end]
    if not operand:
        raise text_error(f"'{' '.join(tokens)}': an operand is missing")
    if operand[0] == "(" and closing_bracket(operand, 0) == len(operand) - 1:
        return parse_condition(operand[1:-1]), end
    if operand[0] == "!" and (_is_template(operand[1:]) or not has_operator(operand, BINARY | {"<", ">"})):
        return negation(parse_condition(operand[1:])), end
    if len(operand) == 2 and operand[0] == "defined":
        operand = ("defined", "(", operand[1], ")")
    leaf = tuple(operand)
    return _CONSTANTS.get(leaf, Condition("leaf", leaf)), end


def _is_template(tokens: Sequence[str]) -> bool:
    """True for ``NAME<ARGUMENTS>``."""
    start = tokens.index("<") if "<" in tokens and tokens[-1] == ">" else 0
    names = (piece == "::" or piece.isidentifier() for piece in tokens[:start])
    return start > 0 and all(names) and closing_angle(tokens, start) == len(tokens) - 1


def _end_of_operand(tokens: Sequence[str], at: int) -> int:
    while at < len(tokens) and tokens[at] not in ("&&", "||", ")"):
        at = closing_bracket(tokens, at) + 1 if tokens[at] in OPEN else at + 1
    return at


def condition_text(condition: Condition) -> str:
    """Return the canonical text of a condition, '' if it always holds."""
    if condition.kind == "leaf":
        return spell(condition.leaf)
    texts = sorted(condition_text(part) for part in condition.parts)
    if condition.kind == "not":
        return f"!({texts[0]})"
    if condition.kind == "and":
        return " && ".join(f"({text})" for text in texts)
    return " || ".join(texts) if texts else "false"
