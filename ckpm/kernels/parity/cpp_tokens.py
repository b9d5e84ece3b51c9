"""Tokens of C++: the tokens of a text, their canonical spelling, and their brackets."""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Sequence
from itertools import pairwise

from ckpm.base.errors import UpstreamError

Tokens = tuple[str, ...]

_TOKEN = re.compile(
    r"""
    (?: \s+ | //[^\n]* | /\*.*?\*/ )+
  | ( [A-Za-z_]\w*
    | \.?\d(?:[eE][+-]|['.\w])*
    | "(?:[^"\\\n]|\\.)*" | '(?:[^'\\\n]|\\.)*'
    | \#(?:[^\n\\]|\\.)*
    | ::|->|&&|\|\||[=!<>]=|\+\+|--|[-+*/%&|^]=|<<
    | .
    )
    """,
    re.VERBOSE | re.DOTALL,
)
_OPERATORS = frozenset("-[](){}<>,;:.=+*/%!?&|^~")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/|\\\n", re.DOTALL)
OPEN = {"(": ")", "[": "]", "{": "}"}
BINARY = {"==", "!=", "&&", "||", "<=", ">=", "*", "/", "%", "+", "-", "?", "&", "|", "^", "<<"}
# Two tokens that a compiler would read as one without a space.
_JOINED = {"::", "->", "&&", "||", "<<", "++", "--"}
_SPACED = {"=", "==", "!=", "&&", "||", "<=", ">=", "*", "/", "%", "+", "?", ":", "<<"}


def text_error(reason: str) -> UpstreamError:
    """Return the error of a text that can't be followed."""
    return UpstreamError(reason, kind="cpp-text")


def tokenize(text: str) -> Tokens:
    """Return the tokens of C++ text without comments; ``>>`` is two tokens, a preprocessor line (``#...``) is one."""
    tokens = [piece for piece in _TOKEN.findall(text) if piece]
    for odd in {piece for piece in set(tokens) if len(piece) == 1 and not piece.isalnum()} - _OPERATORS - {"_", "#"}:
        line = text.count("\n", 0, text.index(odd)) + 1
        raise text_error(f"line {line}: {odd!r} starts nothing that is C++")
    return tuple(_directive_text(piece) if piece[0] == "#" else piece for piece in tokens)


def _directive_text(line: str) -> str:
    """Return a preprocessor line without comments and continuations, in one spacing: ``# if defined(X)``."""
    return " ".join(_COMMENT.sub(" ", line).replace("#", "# ", 1).split())


def spell(tokens: Sequence[str]) -> str:
    """Return the canonical text: the same tokens give the same text, different tokens different texts."""
    return "".join([*tokens[:1], *(f" {piece}" if _apart(last, piece) else piece for last, piece in pairwise(tokens))])


@functools.lru_cache(maxsize=1 << 16)  # a text has few pairs, and each a thousand times
def _apart(last: str, piece: str) -> bool:
    """True if a space stands between two tokens."""
    both_words = (last[-1].isalnum() or last[-1] == "_") and (piece[0].isalnum() or piece[0] == "_")
    spaced = last == "," or last in _SPACED or piece in _SPACED
    numeric = "." in (last, piece) and (last + piece).strip("0123456789.'") == ""
    return both_words or spaced or numeric or last[-1] + piece[0] in _JOINED


def has_operator(tokens: Sequence[str], operators: Collection[str] = BINARY) -> bool:
    """True if an operator with two sides stands outside all brackets."""
    at = 0
    while at < len(tokens):
        if at and tokens[at] in operators:
            return True
        at = closing_bracket(tokens, at) + 1 if tokens[at] in OPEN else at + 1
    return False


def closing_bracket(tokens: Sequence[str], at: int) -> int:
    """Return the index of the bracket that closes the ``( [ {`` at ``at``."""
    pending: list[str] = []
    for index in range(at, len(tokens)):
        piece = tokens[index]
        if piece in OPEN:
            pending.append(OPEN[piece])
        elif pending and piece == pending[-1]:
            pending.pop()
            if not pending:
                return index
    raise text_error(f"the bracket of '{spell(tokens[at : at + 8])}' is never closed")


def closing_angle(tokens: Sequence[str], at: int) -> int:
    """Return the index of the ``>`` that closes the template argument list opened at ``at``."""
    depth, index = 0, at
    while index < len(tokens):
        piece = tokens[index]
        if piece in OPEN:
            index = closing_bracket(tokens, index)
        elif piece == "<":
            depth += 1
        elif piece == ">":
            depth -= 1
            if depth == 0:
                return index
        elif piece == ";":
            break
        index += 1
    raise text_error(f"the template arguments of '{spell(tokens[max(0, at - 1) : at + 8])}' never end")


def split_arguments(tokens: Sequence[str]) -> list[Tokens]:
    """Split at the commas outside all brackets and template argument lists."""
    parts: list[list[str]] = [[]]
    depth, index = 0, 0
    while index < len(tokens):
        piece = tokens[index]
        if piece in OPEN:
            end = closing_bracket(tokens, index)
            parts[-1] += tokens[index : end + 1]
            index = end + 1
            continue
        depth += (piece == "<") - (piece == ">")
        if piece == "," and depth == 0:
            parts.append([])
        else:
            parts[-1].append(piece)
        index += 1
    return [tuple(part) for part in parts if part]


def extent(tokens: Tokens, start: int) -> tuple[int, int]:
    """Return the indices of a function's ``(`` and ``{``. Without a function: -1, and the index of ``;`` or the end."""
    head = end = after_template_head(tokens, start)
    parameters = -1
    while end < len(tokens) and tokens[end] != ";":
        if tokens[end] == "(" and parameters < 0 and "=" not in tokens[head:end]:
            parameters = end
        if tokens[end] == "{" and parameters >= 0:
            return parameters, end
        end = closing_bracket(tokens, end) + 1 if tokens[end] in OPEN else end + 1
    return -1, end


def after_template_head(tokens: Tokens, start: int) -> int:
    """Return the index of a definition after its ``template <...>``, if it has one."""
    return closing_angle(tokens, start + 1) + 1 if tokens[start : start + 2] == ("template", "<") else start


def template_parameters(head: Tokens) -> tuple[tuple[str, Tokens], ...]:
    """Return each (name, default) of ``template <TYPE NAME = DEFAULT, ...>``; none for ``template <>`` or no head."""
    parameters = []
    for parameter in split_arguments(head[2:-1]):
        equals = parameter.index("=") if "=" in parameter else len(parameter)
        kind, default = parameter[:equals], parameter[equals + 1 :]
        if len(kind) < 2 or not kind[-1].isidentifier() or "." in kind:
            raise text_error(f"'{spell(head)[:120]}': a template parameter must have a name and must not be a pack")
        parameters.append((kind[-1], default))
    return tuple(parameters)
