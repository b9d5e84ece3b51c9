"""``--where``: a Python expression over one key or problem, restricted to fields, constants, comparisons and logic.

Nothing is evaluated as Python: the expression's syntax tree is turned into closures, node by node. Calls, subscripts,
arithmetic and other names are refused.
"""

from __future__ import annotations

import ast
import difflib
import functools
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ckpm.base.errors import WhereError
from ckpm.matrix.keys import KEY_FIELDS, TILE_FIELDS, Key

Predicate = Callable[[Key], bool]
Getter = Callable[[Any], Any]

_FIELDS = tuple(f"key.{name}" for name in (*KEY_FIELDS, *(f"tile.{part}" for part in TILE_FIELDS)) if name != "tile")
_MAX_DEPTH = 50  # of nested nodes: far more than a person writes, far less than Python's stack holds

_MAX_BITS = 64  # of a number: Python refuses to print numbers of thousands of digits

_LITERAL = (ast.Constant, ast.Tuple, ast.List, ast.Set, ast.Load, ast.UnaryOp, ast.USub)

_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda value, group: value in group,
    ast.NotIn: lambda value, group: value not in group,
}


@dataclass(frozen=True, slots=True)
class _Source:
    """An expression and its possible fields, which begin with the word for their owner and a point."""

    text: str
    fields: tuple[str, ...]

    @property
    def owner(self) -> str:
        return self.fields[0].partition(".")[0]


def compile_where(text: str) -> Predicate:
    """Make a predicate over keys, e.g. ``key.hdim_q == 128 and key.tile.bm0 in (64, 128)``, by compile_over."""
    return compile_over(text, _FIELDS)


@functools.lru_cache(maxsize=1024)  # tiers and defects ask for the same expressions for every arch and family
def compile_over(text: str, fields: tuple[str, ...]) -> Callable[[Any], bool]:
    """Make a predicate over objects with ``fields``, which begin with the same word: ``key.hdim_q``.

    A comparison with a field that the dialect doesn't have (None) is False unless it asks for equality.

    Raises WhereError if the text does not parse, names an unknown field, is nested too deeply, or uses anything but
    fields, constants, comparisons, ``in``, ``and``, ``or``, ``not``.
    """
    if not text.strip():
        raise WhereError(f'--where {text!r}: it is empty; leave it out, or write e.g. --where "key.hdim_q == 128"')
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError) as error:
        column = getattr(error, "offset", None)
        raise WhereError(f"--where {text!r}: does not parse at column {column}: {error.args[0]}") from error
    except (RecursionError, MemoryError):  # CPython's parser gives up in either way
        raise _too_deep(text) from None
    level: list[ast.AST] = [tree.body]
    for _ in range(_MAX_DEPTH):
        if any(isinstance(node, ast.Constant) and _is_huge(node.value) for node in level):
            raise WhereError(f"--where {_shown(text)}: a number of more than {_MAX_BITS} bits; no field has one")
        level = [child for node in level for child in ast.iter_child_nodes(node)]
    if level:
        raise _too_deep(text)
    getter = _getter(tree.body, _Source(text, fields))
    return getter if isinstance(tree.body, ast.BoolOp | ast.Compare) else lambda subject: bool(getter(subject))


def _is_huge(value: object) -> bool:
    return isinstance(value, int) and value.bit_length() > _MAX_BITS


def _shown(text: str) -> str:
    return repr(text if len(text) < 80 else text[:77] + "...")


def _too_deep(text: str) -> WhereError:
    return WhereError(
        f"--where {_shown(text)}: nested more than {_MAX_DEPTH} deep; write it flatter or use --filter-file"
    )


def _getter(node: ast.expr, source: _Source) -> Getter:
    if isinstance(node, ast.Constant) and isinstance(node.value, str | int | float | None):
        value = node.value
        return lambda subject: value
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        items = [_getter(item, source) for item in node.elts]
        return lambda subject: [item(subject) for item in items]
    if isinstance(node, ast.Attribute):
        return operator.attrgetter(_field(node, source))
    if isinstance(node, ast.BoolOp):
        parts = [_getter(part, source) for part in node.values]
        return _all_of(parts) if isinstance(node.op, ast.And) else any_of(parts)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        inner = _getter(node.operand, source)
        return lambda subject: not inner(subject)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
        number = node.operand.value
        if isinstance(number, int | float):
            return lambda subject: -number
    if isinstance(node, ast.Compare):
        return _comparison(node, source)
    raise WhereError(
        f"--where {source.text!r}: '{ast.unparse(node)}' is not allowed; "
        f"use {source.owner}.FIELD, constants, comparisons, in, and, or, not"
    )


def any_of(parts: Sequence[Getter]) -> Callable[[Any], bool]:
    """Return a predicate that is True if one of the parts is true for an object."""

    def any_holds(subject: Any) -> bool:
        for part in parts:  # noqa: SIM110 - any() of a generator takes three times as long
            if part(subject):
                return True
        return False

    return any_holds


def _all_of(parts: Sequence[Getter]) -> Callable[[Any], bool]:
    def all_hold(subject: Any) -> bool:
        for part in parts:  # noqa: SIM110
            if not part(subject):
                return False
        return True

    return all_hold


def _comparison(node: ast.Compare, source: _Source) -> Getter:
    operands = [_getter(item, source) for item in (node.left, *node.comparators)]
    compares = []
    for operation in node.ops:
        if type(operation) not in _COMPARE:
            raise WhereError(f"--where {source.text!r}: 'is' is not allowed; compare with == or !=")
        compares.append(_COMPARE[type(operation)])

    def compare(subject: Any) -> bool:
        values = [operand(subject) for operand in operands]
        try:
            return all(test(a, b) for test, a, b in zip(compares, values, values[1:], strict=False))
        except TypeError as error:
            if None in values:
                return False
            raise WhereError(
                f"--where {source.text!r}: {error} (in '{ast.unparse(node)}' for {subject.name})"
            ) from error

    if len(compares) > 1 or not all(isinstance(part, _LITERAL) for part in ast.walk(node.comparators[0])):
        return compare
    left, test, right = operands[0], compares[0], operands[1](None)

    def compare_with_literal(subject: Any) -> bool:  # nearly all comparisons, for every key of a selection
        try:
            return test(left(subject), right)
        except TypeError:
            return compare(subject)

    return compare_with_literal


def _field(node: ast.Attribute, source: _Source) -> str:
    dotted = ast.unparse(node)
    if dotted in source.fields:
        return dotted.removeprefix(f"{source.owner}.")
    close = difflib.get_close_matches(dotted, source.fields, n=1)
    hint = f"; did you mean '{close[0]}'?" if close else f". Known: {', '.join(source.fields)}"
    raise WhereError(f"--where {source.text!r}: unknown field '{dotted}'{hint}")
