"""Integer expressions of C, evaluated with C's conversions: 32-bit int and unsigned, wrap-around, division toward zero.

Enough for the workgroup count of the dispatch, where two texts may spell the same formula in different ways. Nothing is
handed to Python's eval: an unknown operator or name is an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ckpm.kernels.parity.cpp_tokens import Tokens, closing_angle, closing_bracket, spell, split_arguments, text_error

_MODULUS = 1 << 32
_UNSIGNED = {("unsigned",), ("unsigned", "int"), ("uint32_t",), ("std", "::", "uint32_t")}
_SIGNED = {("int",), ("int32_t",), ("std", "::", "int32_t"), ("ck_tile", "::", "index_t")}
_LEVELS: tuple[tuple[str, ...], ...] = (("+", "-"), ("*", "/", "%"))


@dataclass(frozen=True, slots=True)
class CNumber:
    """A value of type int or unsigned; the value is always within the type's range."""

    value: int
    unsigned: bool


@dataclass(frozen=True, slots=True)
class Formula:
    """A function of integers: parameters (name, type), constants (name, type, value) in order, the returned expression.

    A type is the tokens of the declaration; () for ``auto``, which converts nothing.
    """

    parameters: tuple[tuple[str, Tokens], ...]
    constants: tuple[tuple[str, Tokens, Tokens], ...]
    returned: Tokens
    result: Tokens


def make(value: int, unsigned: bool) -> CNumber:
    """Convert to the type as C does: modulo 2**32."""
    value %= _MODULUS
    return CNumber(value if unsigned or value < _MODULUS // 2 else value - _MODULUS, unsigned)


def evaluate(tokens: Sequence[str], values: Mapping[str, CNumber], functions: Mapping[str, Formula]) -> CNumber:
    """Return the value of an expression. ``values`` has names as they are written, e.g. ``a.batch``."""
    value, at = _Evaluator(tuple(tokens), values, functions).level(0, 0)
    if at != len(tokens):
        raise text_error(f"'{spell(tokens)}': unexpected '{tokens[at]}'")
    return value


def call(
    formula: Formula, arguments: Sequence[CNumber], values: Mapping[str, CNumber], functions: Mapping[str, Formula]
) -> CNumber:
    """Return the formula's value for ``arguments``."""
    if len(arguments) != len(formula.parameters):
        raise text_error(f"a function of {len(formula.parameters)} parameters is given {len(arguments)}")
    numbers = dict(values)
    for (name, kind), number in zip(formula.parameters, arguments, strict=True):
        numbers[name] = convert(number, kind)
    for name, kind, expression in formula.constants:
        numbers[name] = convert(evaluate(expression, numbers, functions), kind)
    return convert(evaluate(formula.returned, numbers, functions), formula.result)


def convert(number: CNumber, kind: Tokens) -> CNumber:
    """Convert to the type that ``kind`` names; () converts nothing."""
    if kind == ():
        return number
    if kind not in _UNSIGNED | _SIGNED:
        raise text_error(f"'{spell(kind)}' is not a 32-bit integer type")
    return make(number.value, kind in _UNSIGNED)


class _Evaluator:
    def __init__(self, tokens: Tokens, values: Mapping[str, CNumber], functions: Mapping[str, Formula]) -> None:
        self.tokens, self.values, self.functions = tokens, values, functions

    def level(self, depth: int, at: int) -> tuple[CNumber, int]:
        if depth == len(_LEVELS):
            return self.operand(at)
        left, at = self.level(depth + 1, at)
        while at < len(self.tokens) and self.tokens[at] in _LEVELS[depth]:
            operator = self.tokens[at]
            right, at = self.level(depth + 1, at + 1)
            left = self.combine(operator, left, right)
        return left, at

    def combine(self, operator: str, left: CNumber, right: CNumber) -> CNumber:
        unsigned = left.unsigned or right.unsigned
        a, b = make(left.value, unsigned).value, make(right.value, unsigned).value
        if operator in ("/", "%"):
            if b == 0:
                raise text_error(f"'{spell(self.tokens)}': division by zero")
            quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
            return make(quotient if operator == "/" else a - quotient * b, unsigned)
        return make({"+": a + b, "-": a - b, "*": a * b}[operator], unsigned)

    def operand(self, at: int) -> tuple[CNumber, int]:
        tokens = self.tokens
        if at >= len(tokens):
            raise text_error(f"'{spell(tokens)}': an operand is missing")
        piece = tokens[at]
        if piece == "-":
            value, after = self.operand(at + 1)
            return make(-value.value, value.unsigned), after
        if piece == "static_cast":
            end = closing_angle(tokens, at + 1)
            close = closing_bracket(tokens, end + 1)
            return convert(self.inside(end + 1, close), tokens[at + 2 : end]), close + 1
        if piece == "(":
            end = closing_bracket(tokens, at)
            if tokens[at + 1 : end] in _UNSIGNED | _SIGNED:
                value, after = self.operand(end + 1)
                return convert(value, tokens[at + 1 : end]), after
            return self.inside(at, end), end + 1
        if piece[0].isdigit():
            digits = piece.rstrip("uU")
            if not digits.isdigit():
                raise text_error(f"'{piece}' is not a whole number")
            return make(int(digits), digits != piece), at + 1
        return self.name(at)

    def name(self, at: int) -> tuple[CNumber, int]:
        tokens, end = self.tokens, at + 1
        while tokens[end : end + 1] in ((".",), ("::",)):
            end += 2
        name = "".join(tokens[at:end])
        if tokens[end : end + 1] == ("(",):
            close = closing_bracket(tokens, end)
            if tokens[at:end] in _UNSIGNED | _SIGNED:
                return convert(self.inside(end, close), tokens[at:end]), close + 1
            if name not in self.functions:
                raise text_error(f"'{spell(tokens)}': no function '{name}' in the text")
            arguments = [
                evaluate(part, self.values, self.functions) for part in split_arguments(tokens[end + 1 : close])
            ]
            return call(self.functions[name], arguments, self.values, self.functions), close + 1
        if name not in self.values:
            raise text_error(f"'{spell(tokens)}': no value for '{name}'")
        return self.values[name], end

    def inside(self, start: int, end: int) -> CNumber:
        """Return the value of the expression between two brackets."""
        return evaluate(self.tokens[start + 1 : end], self.values, self.functions)
