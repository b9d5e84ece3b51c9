"""Tokeniser and parser of the ISA manual's pseudocode: text to a tree of small tuples.

Expressions::

    ("num", kind, width, text) ("name", n) ("path", base, steps) ("call", n, args) ("cast", kind, width, e)
    ("unary", op, e) ("binary", op, a, b) ("choose", c, a, b) ("join", [e...])

Steps of a path::

    ("type", kind, width) ("index", e) ("range", high, low) ("span", start, width) ("field", name)

Statements::

    ("set", [targets], op, e) ("if", [(condition or None, block)...])

    ("for", name, first, last, block)
    ("declare", name, kind, width, count or None) ("lambda", name, parameters, block or expression) ("return", e)
    ("break",) ("call", e)
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

Node = tuple[Any, ...]

_TOKEN = re.compile(
    r"""
    (?P<space>\s+|//[^\n]*)
  | (?P<sized>\d+'(?:0x[0-9a-fA-F]+|\d+\.\d+|\d+)U?)
  | (?P<type>\d+'(?:BF|[UIFB]))(?![A-Za-z0-9_])
  | (?P<number>0x[0-9a-fA-F]+?(?:ULL|LL|U)?(?![0-9a-zA-Z])|\d+\.\d+F?|\d+(?:ULL|LL|U)?)
  | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
  | (?P<op>\*\*|\+=|-=|\+:|<<|>>|<=|>=|<>|==|!=|&&|\|\||[-+*/%&|^~!<>=?:;,.(){}\[\]])
    """,
    re.VERBOSE,
)
_TYPE = re.compile(r"(bf8|bf6|fp8|fp6|fp4|bf|[uifb])(\d+)?$")
_SMALL = {"fp8": 8, "bf8": 8, "fp6": 6, "bf6": 6, "fp4": 4}
_KEYWORDS = frozenset({"then", "elsif", "else", "endif", "do", "endfor", "if", "for"})
# Loosest first; ** binds tighter than a product, unary operators tighter still.
_LEVELS = (
    ("||",),
    ("&&",),
    ("|",),
    ("^",),
    ("&",),
    ("==", "!=", "<>"),
    ("<", ">", "<=", ">="),
    ("<<", ">>"),
    ("+", "-"),
    ("*", "/", "%"),
    ("**",),
)


class ListingError(ValueError):
    """The text is not pseudocode (some entries of the manual are prose)."""


def tokens(text: str) -> list[tuple[str, str]]:
    pairs, position = [], 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise ListingError(f"cannot read {text[position : position + 20]!r}")
        position = match.end()
        if match.lastgroup != "space":
            pairs.append((str(match.lastgroup), match.group()))
    pairs.append(("end", ""))
    return pairs


def type_of(name: str) -> tuple[str, int] | None:
    """u32 -> ("u", 32), fp8 -> ("fp8", 8); None if it is not a type."""
    match = _TYPE.match(name)
    if match is None:
        return None
    kind, width = match.groups()
    if kind in _SMALL:
        return (kind, _SMALL[kind]) if width is None else None
    return (kind, int(width)) if width else None


class _Parser:
    def __init__(self, text: str) -> None:
        self.tokens = tokens(text)
        self.at = 0

    def peek(self, ahead: int = 0) -> str:
        return self.tokens[min(self.at + ahead, len(self.tokens) - 1)][1]

    def kind(self) -> str:
        return self.tokens[self.at][0]

    def next(self) -> str:
        self.at += 1
        return self.tokens[self.at - 1][1]

    def expect(self, text: str) -> None:
        if self.next() != text:
            raise ListingError(f"expected {text!r}, found {self.tokens[self.at - 1][1]!r}")

    def block(self, *ends: str) -> list[Node]:
        statements: list[Node] = []
        while True:
            while self.peek() == ";":
                self.next()
            if self.peek() in ends or (not ends and self.kind() == "end"):
                return statements
            statements.append(self.statement())

    def statement(self) -> Node:
        word = self.peek()
        if word == "if":
            return self.condition()
        if word == "for":
            self.next()
            name = self.next()
            self.expect("in")
            first = self.binary(0)
            self.expect(":")
            last = self.binary(0)
            self.expect("do")
            body = self.block("endfor")
            self.expect("endfor")
            return ("for", name, first, last, body)
        if word == "declare":
            return self.declaration()
        if word == "return":
            self.next()
            return ("return", self.expression())
        if word == "break":
            self.next()
            return ("break",)
        if self.peek(1) == "=" and self.peek(2) == "lambda":
            return self.function()
        return self.assignment()

    def assignment(self) -> Node:
        targets = [self.unary()]
        if targets[0][0] == "call":
            return ("call", targets[0])
        op = self.next()
        if op not in ("=", "+=", "-="):
            raise ListingError(f"expected an assignment, found {op!r}")
        value = self.expression()
        while self.peek() == "=":  # a = b = c
            self.next()
            targets.append(value)
            value = self.expression()
        return ("set", targets, op, value)

    def condition(self) -> Node:
        branches: list[tuple[Node | None, list[Node]]] = []
        self.expect("if")
        while True:
            test = self.expression()
            self.expect("then")
            branches.append((test, self.block("elsif", "else", "endif")))
            word = self.next()
            if word == "else":
                branches.append((None, self.block("endif")))
                word = self.next()
            if word == "endif":
                return ("if", branches)

    def declaration(self) -> Node:
        self.expect("declare")
        name = self.next()
        self.expect(":")
        width, kind = self.next().split("'")
        count = None
        if self.peek() == "[":
            self.next()
            count = int(self.next())
            self.expect("]")
        return ("declare", name, kind.lower(), int(width), count)

    def function(self) -> Node:
        name = self.next()
        self.expect("=")
        self.expect("lambda")
        self.expect("(")
        parameters = []
        while self.peek() != ")":
            parameters.append(self.next())
            if self.peek() == ",":
                self.next()
        self.expect(")")
        self.expect("(")
        statements = self.peek() in ("if", "for", "declare", "return")
        body = self.block(")") if statements else [("return", self.expression())]
        self.expect(")")
        return ("lambda", name, tuple(parameters), body)

    def expression(self) -> Node:
        test = self.binary(0)
        if self.peek() != "?":
            return test
        self.next()
        first = self.expression()
        self.expect(":")
        return ("choose", test, first, self.expression())

    def binary(self, level: int) -> Node:
        if level == len(_LEVELS):
            return self.unary()
        left = self.binary(level + 1)
        while self.kind() == "op" and self.peek() in _LEVELS[level]:
            op = self.next()
            left = ("binary", op, left, self.binary(level + 1))
        return left

    def unary(self) -> Node:
        if self.peek() in ("-", "+", "~", "!"):
            return ("unary", self.next(), self.unary())
        return self.path(self.primary())

    def primary(self) -> Node:
        kind, text = self.tokens[self.at]
        self.at += 1
        if kind == "number":
            return _number(text)
        if kind == "sized":
            return _sized_literal(text)
        if kind == "type":
            width, letter = text.split("'")
            self.expect("(")
            inner = self.expression()
            self.expect(")")
            return ("cast", letter.lower(), int(width), inner)
        if text == "(":
            inner = self.expression()
            self.expect(")")
            return inner
        if text == "{":
            return ("join", self.arguments("}"))
        if kind == "name" and text not in _KEYWORDS:
            if self.peek() == "(":
                self.next()
                return ("call", text, self.arguments(")"))
            return ("name", text)
        raise ListingError(f"unexpected {text!r}")

    def arguments(self, end: str) -> list[Node]:
        nodes = []
        while self.peek() != end:
            nodes.append(self.expression())
            if self.peek() == ",":
                self.next()
        self.expect(end)
        return nodes

    def path(self, base: Node) -> Node:
        steps: list[Node] = []
        while True:
            if self.peek() == ".":
                self.next()
                word = self.next()
                kind = type_of(word)
                steps.append(("type", *kind) if kind else ("field", word))
            elif self.peek() == "[":
                self.next()
                first = self.expression()
                if self.peek() == ":":
                    self.next()
                    steps.append(("range", first, self.expression()))
                elif self.peek() == "+:":
                    self.next()
                    steps.append(("span", first, self.expression()))
                else:
                    steps.append(("index", first))
                self.expect("]")
            else:
                return ("path", base, steps) if steps else base


def _number(text: str) -> Node:
    if "." in text:
        return ("num", "f", 32 if text.endswith("F") else 64, text.rstrip("F"))
    width = 64 if "LL" in text else 32
    kind = "u" if "U" in text or (text.startswith("0x") and "LL" not in text) else "i"
    return ("num", kind, width, text.rstrip("UL"))


def _sized_literal(text: str) -> Node:
    width, digits = text.split("'")
    if "." in digits:
        return ("num", "f", int(width), digits)
    kind = "u" if digits.endswith("U") else "b" if digits.startswith("0x") else "i"
    return ("num", kind, int(width), digits.rstrip("U"))


@cache
def parse(text: str) -> list[Node]:
    """The statements of one opcode's pseudocode."""
    return _Parser(text).block()
