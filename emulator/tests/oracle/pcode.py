"""Evaluator of the ISA manual's pseudocode (tinygrad carries the CDNA listings as text), and the errata of that text.

`run(text, scope)` executes one opcode's pseudocode. A Scope holds cells by name. They are operands S0..S2,
destinations D0, D1, scalar state SCC, VCC, EXEC, PC, M0, and fields of the listing such as OPSEL and SIMM16. It has
functions for VGPR[lane][n], SGPR[n], MEM[address] and HW_REGISTERS[n].
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from tinygrad.runtime.autogen.amd.cdna.str_pcode import PCODE

from oracle import floats, values
from oracle.errata import ADDED, CHANGED
from oracle.functions import FUNCTIONS, conversion, scaled_conversion
from oracle.syntax import Node, parse
from oracle.values import Modes, Value, boolean, integer


class UnknownNameError(NameError):
    """The pseudocode reads something that the scope does not have."""


class Cell:
    """A variable or register: bits, and the type of its last assignment. A register keeps its width."""

    def __init__(self, width: int = 0, bits: int = 0, *, kind: str = "b", register: bool = False) -> None:
        self.kind, self.width, self.bits, self.register = kind, width, bits, register
        self.items: list[Cell] | None = None

    def read(self, low: int, width: int) -> int:
        return self.bits >> low & ((1 << width) - 1)

    def write(self, low: int, width: int, bits: int) -> None:
        mask = ((1 << width) - 1) << low
        self.bits = self.bits & ~mask | bits << low & mask
        if not self.register:
            self.width = max(self.width, low + width)

    def replace(self, value: Value) -> None:
        """Assignment to the whole: a register is zero-extended (16-bit results clear bits 31:16, see operands.py)."""
        self.bits = value.bits
        if not self.register:
            self.kind, self.width = value.kind, value.width

    def value(self) -> Value:
        return Value(self.kind, self.width, self.bits)


class Remote(Cell):
    """A cell whose bits live elsewhere: memory, another lane's register."""

    def __init__(self, load: Callable[[int, int], int], store: Callable[[int, int, int], None], width: int) -> None:
        super().__init__(width, register=True)
        self.load, self.store = load, store

    def read(self, low: int, width: int) -> int:
        return self.load(low, width)

    def write(self, low: int, width: int, bits: int) -> None:
        self.store(low, width, bits & ((1 << width) - 1))

    def replace(self, value: Value) -> None:
        self.store(0, value.width, value.bits)

    def value(self) -> Value:
        return Value("b", self.width, self.load(0, self.width))


@dataclass
class Scope:
    """Everything one execution of a pseudocode can see."""

    modes: Modes = field(default_factory=Modes)
    cells: dict[str, Cell] = field(default_factory=dict)
    arrays: dict[str, tuple[int, Callable[..., Cell]]] = field(default_factory=dict)  # name: (indices, cell maker)
    lambdas: dict[str, tuple[tuple[str, ...], list[Node]]] = field(default_factory=dict)

    def set(self, name: str, kind: str, width: int, bits: int) -> None:
        self.cells[name] = Cell(width, bits, kind=kind)

    def cell(self, name: str, create: bool = False) -> Cell:
        cell = self.cells.get(name)
        if cell is None:
            if not create:
                raise UnknownNameError(name)
            cell = self.cells[name] = Cell()
        return cell


class _Break(Exception):  # noqa: N818
    pass


class _Return(Exception):  # noqa: N818
    def __init__(self, value: Value) -> None:
        self.value = value


@dataclass
class _Location:
    cell: Cell
    low: int = 0
    width: int | None = None  # None: the whole cell
    kind: str | None = None
    reverse: bool = False


INFINITY = floats.F64.infinity
_CONSTANTS = {
    "INF": floats.Number(floats.Kind.INFINITE, 0),
    "NAN": floats.NAN,
    "PI": floats.from_float(3.141592653589793),
}
_ROUND_MODES = {"ROUND_NEAREST_EVEN": floats.Round.EVEN, "ROUND_TOWARD_ZERO": floats.Round.ZERO}
_SELECTS = {"BYTE1": 1, "BYTE2": 2, "BYTE3": 3, "WORD1": 5}


def evaluate(node: Node, scope: Scope) -> Value:
    return _EVALUATE[node[0]](node, scope)


@cache
def _literal(kind: str, width: int, text: str) -> Value:
    if kind == "f":
        return Value("f", width, values.FLOATS["f", width].pack(floats.from_float(float(text))))
    return integer(kind, width, int(text, 0))


def _name(node: Node, scope: Scope) -> Value:
    name = node[1]
    cell = scope.cells.get(name)
    if cell is not None:
        return cell.value()
    if name in _CONSTANTS:
        return _constant(name, "f", 64, scope.modes)
    if name == "ROUND_MODE":
        return integer("u", 32, -1 if scope.modes.forced is None else int(scope.modes.forced))
    if name in _ROUND_MODES:
        return integer("u", 32, int(_ROUND_MODES[name]))
    raise UnknownNameError(name)


def _constant(name: str, kind: str, width: int, modes: Modes) -> Value:
    return values.real(kind, width, _CONSTANTS[name], modes)


def _resolve(node: Node, scope: Scope, create: bool = False) -> _Location:
    """The cell of a path. Anything that is not a name is copied into a nameless cell first."""
    if node[0] == "name":
        return _Location(scope.cell(node[1], create))
    base, steps = node[1], list(node[2])
    if base[0] == "name":
        while steps and steps[0][0] == "field":
            base = ("name", f"{base[1]}.{steps.pop(0)[1]}")
        if base[1] in scope.arrays:
            count, make = scope.arrays[base[1]]
            location = _Location(make(*(evaluate(steps.pop(0)[1], scope).as_integer() for _ in range(count))))
        elif base[1] in _SELECTS:
            location = _Location(Cell(32, _SELECTS[base[1]]))
        else:
            location = _Location(scope.cell(base[1], create))
    else:
        value = evaluate(base, scope)
        location = _Location(Cell(value.width, value.bits, kind=value.kind))
    for step in steps:
        _follow(location, step, scope)
    return location


def _follow(location: _Location, step: Node, scope: Scope) -> None:
    if step[0] == "type":
        location.kind = step[1]
        location.width = step[2]
    elif step[0] == "index":
        index = evaluate(step[1], scope).as_integer()
        if location.cell.items is not None and location.width is None:
            location.cell = location.cell.items[index]
        else:
            location.low, location.width, location.kind = location.low + index, 1, "u"
    elif step[0] == "range":
        high, low = evaluate(step[1], scope).as_integer(), evaluate(step[2], scope).as_integer()
        location.reverse = high < low
        location.low, location.width, location.kind = location.low + min(high, low), abs(high - low) + 1, "u"
    elif step[0] == "span":
        start, width = evaluate(step[1], scope).as_integer(), evaluate(step[2], scope).as_integer()
        location.low, location.width, location.kind = location.low + start, width, "u"
    else:
        raise UnknownNameError(f".{step[1]}")


def _path(node: Node, scope: Scope) -> Value:
    base, steps = node[1], node[2]
    if base[0] == "name" and base[1] in _CONSTANTS and base[1] not in scope.cells:
        return _constant(base[1], steps[0][1], steps[0][2], scope.modes)
    # S1[4 : 0].u32: the slice is cut first, then widened with zeros.
    last_cut = max((n for n, step in enumerate(steps) if step[0] in ("range", "span", "index")), default=-1)
    if last_cut >= 0 and last_cut < len(steps) - 1 and not (base[0] == "name" and base[1] in scope.arrays):
        cut = _read(_resolve((node[0], base, steps[: last_cut + 1]), scope))
        return Value(steps[-1][1], steps[-1][2], cut.bits & ((1 << steps[-1][2]) - 1))
    return _read(_resolve(node, scope))


def _read(location: _Location) -> Value:
    if location.width is None:
        return location.cell.value()
    bits = location.cell.read(location.low, location.width)
    if location.reverse:
        bits = int(f"{bits:0{location.width}b}"[::-1], 2)
    return Value(location.kind or "u", location.width, bits)


def _call(node: Node, scope: Scope) -> Value:
    name, arguments = node[1], [evaluate(a, scope) for a in node[2]]
    if name in scope.lambdas:
        return _apply(scope, *scope.lambdas[name], arguments)
    function = FUNCTIONS.get(name) or conversion(name) or scaled_conversion(name)
    if function is not None:
        return function(scope.modes, *arguments)
    if name in scope.arrays:  # CalcDsAddr and its kin
        return scope.arrays[name][1](*arguments).value()
    text = text_by_name(name)
    if text is None:
        raise UnknownNameError(f"{name}()")
    kind, width = arguments[0].kind, arguments[0].width
    inner = Scope(scope.modes, dict(scope.cells), scope.arrays)
    for n, argument in enumerate(arguments):
        inner.set(f"S{n}", argument.kind, argument.width, argument.bits)
    inner.cells["D0"] = Cell(max(width, 32), 0, register=True)
    run(text, inner)
    return Value(kind, width, inner.cells["D0"].read(0, width))


def _apply(scope: Scope, names: tuple[str, ...], body: list[Node], arguments: list[Value]) -> Value:
    hidden = {name: scope.cells.get(name) for name in names}
    for name, argument in zip(names, arguments, strict=True):
        scope.set(name, argument.kind, argument.width, argument.bits)
    try:
        execute(body, scope)
    except _Return as result:
        return result.value
    finally:
        for name, cell in hidden.items():
            scope.cells.pop(name)
            if cell is not None:
                scope.cells[name] = cell
    raise UnknownNameError("a lambda without return")


def _cast(node: Node, scope: Scope) -> Value:
    kind, width, inner = node[1], node[2], evaluate(node[3], scope)
    if kind in ("f", "bf"):
        if inner.kind == "x":
            return inner
        if inner.is_float:
            return values.convert_float(inner, kind, width, scope.modes)
        return Value(kind, width, inner.bits & ((1 << width) - 1))  # 32'F(0xffc00000): bits
    if inner.is_float:
        return Value(kind, width, inner.bits & ((1 << width) - 1))  # 23'B(mantissa(x)): bits
    return values.resize(inner, kind, width)


def _unary(node: Node, scope: Scope) -> Value:
    op, value = node[1], evaluate(node[2], scope)
    if op == "!":
        return boolean(not value.truth())
    if op == "~":
        return Value(value.kind, value.width, ~value.bits & ((1 << value.width) - 1))
    if op == "-":
        if value.is_float:
            return Value(value.kind, value.width, value.bits ^ 1 << (value.width - 1))
        return integer(value.kind, value.width, -value.as_integer())
    return value


def _binary(node: Node, scope: Scope) -> Value:
    op = node[1]
    a = evaluate(node[2], scope)
    if op == "&&":
        return boolean(a.truth() and evaluate(node[3], scope).truth())
    if op == "||":
        return boolean(a.truth() or evaluate(node[3], scope).truth())
    b = evaluate(node[3], scope)
    if op == "==" and b.is_float and _is_signed_zero(node[3]):
        return boolean(values.convert_float(a, b.kind, b.width, scope.modes).bits == b.bits)
    if op == "**":
        return values.power(a, b, scope.modes)
    if op in ("<<", ">>"):
        return values.shift(op, a, b)
    if op in ("==", "!=", "<>", "<", ">", "<=", ">="):
        return values.compare(op, a, b, scope.modes)
    return values.arithmetic(op, a, b, scope.modes)


def _is_signed_zero(node: Node) -> bool:
    """`S0 == +0.0` of V_MIN and V_MAX: with the sign written out the sign is meant; `S0 == 0.0` is either zero."""
    return node[0] == "unary" and node[2][0] == "num" and float(node[2][3]) == 0.0


def _join(node: Node, scope: Scope) -> Value:
    bits = width = 0
    for part in (evaluate(part, scope) for part in node[1]):
        bits, width = bits << part.width | part.bits, width + part.width
    return Value("u", width, bits)


_EVALUATE: dict[str, Callable[[Node, Scope], Value]] = {
    "num": lambda node, scope: _literal(node[1], node[2], node[3]),
    "name": _name,
    "path": _path,
    "call": _call,
    "cast": _cast,
    "unary": _unary,
    "binary": _binary,
    "choose": lambda node, scope: evaluate(node[2 if evaluate(node[1], scope).truth() else 3], scope),
    "join": _join,
}


def assign(target: Node, value: Value, scope: Scope) -> None:
    if target[0] == "join":
        # A part has the width of its type; the first is the highest.
        high_to_low = [_resolve(part, scope, create=True) for part in target[1]]
        low = 0
        for part in reversed(high_to_low):
            width = part.width or part.cell.width
            part.cell.write(part.low, width, value.bits >> low & ((1 << width) - 1))
            low += width
        return
    if target == ("name", "ROUND_MODE"):
        scope.modes.forced = None if value.bits == 0xFFFFFFFF else floats.Round(value.bits)
        return
    location = _resolve(target, scope, create=True)
    if location.width is None:
        location.cell.replace(_fit(value, location.cell, scope) if location.cell.register else value)
        return
    stored = _convert(value, location.kind or "u", location.width, scope.modes)
    if location.reverse:
        raise NotImplementedError("assignment to a reversed slice")
    steps = target[2] if target[0] == "path" else []
    if len(steps) == 1 and steps[0][0] == "type" and not isinstance(location.cell, Remote):
        location.cell.replace(stored)
    elif location.width == 1 and location.cell.width <= 1 and not location.cell.register:
        location.cell.write(location.low, 1, stored.bits)
    else:
        location.cell.write(location.low, location.width, stored.bits)


def _fit(value: Value, cell: Cell, scope: Scope) -> Value:
    if value.kind == "x":
        raise TypeError("an exact value must be assigned to a typed place")
    if cell.kind == "i" or value.kind == "i":
        return values.resize(value, "b", cell.width or value.width)
    return value


def _convert(value: Value, kind: str, width: int, modes: Modes) -> Value:
    if value.kind == "x" or (value.is_float and kind in ("f", "bf") and (value.kind, value.width) != (kind, width)):
        return values.convert_float(value, kind, width, modes)
    if value.is_float or kind not in ("u", "i", "b"):
        return Value(kind, width, value.bits & ((1 << width) - 1))
    return values.resize(value, kind, width)


def execute(block: list[Node], scope: Scope) -> None:
    for statement in block:
        _EXECUTE[statement[0]](statement, scope)


def _set(node: Node, scope: Scope) -> None:
    _, targets, op, expression = node
    value = evaluate(expression, scope)
    for target in reversed(targets):
        if op != "=":
            value = values.arithmetic(op[0], evaluate(target, scope), value, scope.modes)
        assign(target, value, scope)


def _if(node: Node, scope: Scope) -> None:
    for condition, block in node[1]:
        if condition is None or evaluate(condition, scope).truth():
            execute(block, scope)
            return


def _for(node: Node, scope: Scope) -> None:
    _, name, first, last, body = node
    start, end = evaluate(first, scope), evaluate(last, scope)
    try:
        for n in range(start.as_integer(), end.as_integer() + 1):
            scope.cells[name] = Cell(32, n, kind="i")
            execute(body, scope)
    except _Break:
        pass


def _declare(node: Node, scope: Scope) -> None:
    _, name, kind, width, count = node
    if name in scope.cells:  # operands and encoding fields are declared again in some listings
        return
    cell = Cell(width, 0, kind=kind)
    if count is not None:
        cell.items = [Cell(width, 0, kind=kind) for _ in range(count)]
    scope.cells[name] = cell


def _define(node: Node, scope: Scope) -> None:
    scope.lambdas[node[1]] = (node[2], node[3])


def _return(node: Node, scope: Scope) -> None:
    raise _Return(evaluate(node[1], scope))


def _break(node: Node, scope: Scope) -> None:
    raise _Break


def _ignore(node: Node, scope: Scope) -> None:
    """nop()"""


_EXECUTE: dict[str, Callable[[Node, Scope], None]] = {
    "set": _set,
    "if": _if,
    "for": _for,
    "declare": _declare,
    "lambda": _define,
    "return": _return,
    "break": _break,
    "call": _ignore,
}


def run(text: str, scope: Scope) -> None:
    """Execute the pseudocode `text`; results are in the scope's cells."""
    execute(parse(text), scope)


def _bare(op: Any) -> str:
    return str(op.name).removesuffix("_E32").removesuffix("_E64")


@cache
def _by_name() -> dict[str, str]:
    """Pseudocode by lower-case opcode name without encoding suffix, errata applied."""
    texts: dict[str, str] = {}
    for op, text in PCODE.items():
        texts.setdefault(_bare(op).lower(), text)
    texts.update({name.lower(): text for name, text in ADDED.items()})
    for name, (old, new, _) in CHANGED.items():
        key = name.strip().lower()  # a trailing space distinguishes a second erratum of an opcode
        if old not in texts[key]:
            raise ValueError(f"erratum of {name}: the text is not there")
        texts[key] = texts[key].replace(old, new)
    return texts


def text_by_name(name: str) -> str | None:
    return _by_name().get(name.lower())


def text_of(op: Any) -> str | None:
    """Pseudocode of an opcode of tinygrad's enumerations; VOP3 forms of VOP1 opcodes share the VOP1 text."""
    return _by_name().get(_bare(op).lower())
