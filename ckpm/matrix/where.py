"""``--where``: a Python expression over one key or problem, restricted to fields, constants, comparisons and logic.

Nothing is evaluated as Python: the expression's syntax tree is turned into closures, node by node. Calls, subscripts,
arithmetic and other names are refused.
"""

from __future__ import annotations

import ast
import functools
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from ckpm.base.errors import WhereError, did_you_mean
from ckpm.matrix.dialects import FAMILIES, HAND_WRITTEN
from ckpm.matrix.keys import CHOICES, TILE_CONDITIONS, Key, Tile

Predicate = Callable[[Key], bool]
Getter = Callable[[Any], Any]
# names with the word for their owner and a point, and types (object for any) or the field's words
Fields = tuple[tuple[str, Any], ...]


def typed_fields(prefix: str, record: type, choices: Mapping[str, tuple[str, ...]]) -> Fields:
    """The fields of a record with their ``choices`` or types."""
    return tuple((f"{prefix}.{name}", choices.get(name, hint)) for name, hint in get_type_hints(record).items())


# "" is the word of a family without the field
_WORDS = {name: (*choices, "") for name, choices in CHOICES.items()} | {"family": (*FAMILIES, *HAND_WRITTEN)}
_FIELDS = (
    *(field for field in typed_fields("key", Key, _WORDS) if field[1] is not Tile),
    *typed_fields("key.tile", Tile, {"when": TILE_CONDITIONS}),
)
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


_KINDS: Mapping[Any, str] = {str: "text", **dict.fromkeys((int, float, bool), "a number"), tuple: "a list"}


@dataclass(frozen=True, slots=True)
class _Source:
    """An expression, the possible fields with their types, and the option that it was typed after."""

    text: str
    fields: Mapping[str, Any]
    option: str

    @property
    def owner(self) -> str:
        return next(iter(self.fields)).partition(".")[0]

    def fail(self, message: str) -> WhereError:
        """Return the error about the expression, which the caller raises."""
        return WhereError(f"{self.option}{self.text if len(self.text) < 80 else self.text[:77] + '...'!r}: {message}")


@functools.lru_cache(maxsize=1024)  # tiers and defects ask for the same expressions for every arch and family
def compile_where(text: str, option: str = "") -> Predicate:
    """Make a predicate over keys, e.g. ``key.hdim_q == 128 and key.tile.bm0 in (64, 128)``, by compile_over."""
    return compile_over(text, _FIELDS, option)


def compile_over(text: str, fields: Fields, option: str = "") -> Callable[[Any], bool]:
    """Make a predicate over objects with ``fields``, which begin with the same word: ``key.hdim_q``.

    A comparison with a field that the dialect doesn't have (None) is False unless it asks for equality. Messages begin
    with ``option``, e.g. ``--where ``, for an expression that was typed after it.

    Raises WhereError if the text does not parse, names an unknown field or is nested too deeply. Text compared with a
    number is refused, a word that a field never has, and anything but fields, constants, comparisons, ``in``, ``and``,
    ``or``, ``not``.
    """
    source = _Source(text, dict(fields), option)
    if not text.strip():
        raise source.fail(f"it is empty; leave it out, or write e.g. {source.owner}.hdim_q == 128")
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError) as error:
        column = getattr(error, "offset", None)
        remedy = "; two values are compared with ==" if re.search("[^=!<>]=[^=]", text) else ""
        raise source.fail(f"does not parse at column {column}: {error.args[0]}{remedy}") from error
    except (RecursionError, MemoryError):  # CPython's parser gives up in either way
        raise _too_deep(source) from None
    level: list[ast.AST] = [tree.body]
    for _ in range(_MAX_DEPTH):
        if any(isinstance(node, ast.Constant) and _is_huge(node.value) for node in level):
            raise source.fail(f"a number of more than {_MAX_BITS} bits; no field has one")
        level = [child for node in level for child in ast.iter_child_nodes(node)]
    if level:
        raise _too_deep(source)
    getter = _getter(tree.body, source)
    return getter if isinstance(tree.body, ast.BoolOp | ast.Compare) else lambda subject: bool(getter(subject))


def _is_huge(value: object) -> bool:
    return isinstance(value, int) and value.bit_length() > _MAX_BITS


def _too_deep(source: _Source) -> WhereError:
    remedy = " or use --filter-file" if source.option else ""
    return source.fail(f"nested more than {_MAX_DEPTH} deep; write it flatter{remedy}")


def _getter(node: ast.expr, source: _Source) -> Getter:
    if isinstance(node, ast.Constant) and isinstance(node.value, str | int | float | None):
        value = node.value
        return lambda subject: value
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        items = [_getter(item, source) for item in node.elts]
        return lambda subject: tuple(item(subject) for item in items)
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
    if isinstance(node, ast.Name) and node.id != source.owner:
        field = f"{source.owner}.{node.id}"
        remedy = f"did you mean '{field}'?" if field in source.fields else f"a word has quotes: '{node.id}'"
        raise source.fail(f"unknown '{node.id}'; {remedy}")
    raise source.fail(
        f"'{ast.unparse(node)}' is not allowed; use {source.owner}.FIELD, constants, comparisons, in, and, or, not"
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
    for left_node, operation, right_node in zip(
        (node.left, *node.comparators), node.ops, node.comparators, strict=False
    ):
        if type(operation) not in _COMPARE:
            raise source.fail("'is' is not allowed; compare with == or !=")
        _check_kinds(left_node, operation, right_node, source)
        compares.append(_COMPARE[type(operation)])

    def compare(subject: Any) -> bool:
        values = [operand(subject) for operand in operands]
        try:
            return all(test(a, b) for test, a, b in zip(compares, values, values[1:], strict=False))
        except TypeError as error:
            if None in values:
                return False
            raise source.fail(f"{error} (in '{ast.unparse(node)}' for {subject.name})") from error

    if len(compares) > 1 or not all(isinstance(part, _LITERAL) for part in ast.walk(node.comparators[0])):
        return compare
    left, test, right = operands[0], compares[0], operands[1](None)

    def compare_with_literal(subject: Any) -> bool:  # nearly all comparisons, for every key of a selection
        try:
            return test(left(subject), right)
        except TypeError:
            return compare(subject)

    return compare_with_literal


def _check_kinds(left: ast.expr, operation: ast.cmpop, right: ast.expr, source: _Source) -> None:
    """Refuse a comparison of values of two kinds, which has the same result for every object."""
    kind, group = _kind_of(left, source), _kind_of(right, source)
    if isinstance(operation, ast.In | ast.NotIn):
        if isinstance(right, ast.Tuple | ast.List | ast.Set):
            for item in right.elts:
                _check_kinds(left, ast.Eq(), item, source)
            return
        if group == "a number":
            raise source.fail(f"{ast.unparse(right)} is a number, which 'in' can't search; use == or a list")
        if group == "a list":
            group = _kind(get_args(source.fields[ast.unparse(right)])[0])
    if kind and group and kind != group:
        raise source.fail(
            f"{ast.unparse(left)} is {kind}, {ast.unparse(right)} is {_kind_of(right, source)}; "
            f"compare values of one kind"
        )
    if isinstance(operation, ast.Eq | ast.NotEq):
        _check_word(left, right, source)
        _check_word(right, left, source)


def _check_word(node: ast.expr, other: ast.expr, source: _Source) -> None:
    """Refuse a word that the field of a node never has."""
    choices = source.fields.get(ast.unparse(node))
    word = other.value if isinstance(other, ast.Constant) else None
    if isinstance(choices, tuple) and isinstance(word, str) and word not in choices:
        listed = [choice for choice in choices if choice]
        hint = did_you_mean(word, listed)
        raise source.fail(f"{ast.unparse(node)} is never '{word}'{hint} Its words: {', '.join(listed)}")


def _kind_of(node: ast.expr, source: _Source) -> str:
    """The kind of a node's values, "" for None and for fields of any kind."""
    if isinstance(node, ast.Attribute):
        return _kind(source.fields[ast.unparse(node)])
    if isinstance(node, ast.Constant):
        return _kind(type(node.value))
    return "a list" if isinstance(node, ast.Tuple | ast.List | ast.Set) else "a number"  # True and False, too


def _kind(hint: Any) -> str:
    """The kind of a type's values, or of words. A type may also allow None."""
    if isinstance(hint, tuple):
        return "text"
    (plain,) = {part for part in get_args(hint) if part is not NoneType} if isinstance(hint, UnionType) else (hint,)
    return _KINDS.get(get_origin(plain) or plain, "")


def _field(node: ast.Attribute, source: _Source) -> str:
    dotted = ast.unparse(node)
    if dotted in source.fields:
        return dotted.removeprefix(f"{source.owner}.")
    hint = did_you_mean(dotted, list(source.fields))
    raise source.fail(f"unknown field '{dotted}'{hint} Known: {', '.join(source.fields)}")
