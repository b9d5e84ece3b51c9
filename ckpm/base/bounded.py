"""Read files from outside within bounds: refuse large files, deep nesting and devices before they cost anything.

A reader calls these functions before its parser, or instead. It turns :class:`BoundsError` into an error of its own
class, with the file's name and the reason.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any
from xml.parsers import expat

from .files import open_plain

LARGEST_FILE = 64 << 20  # bytes: results of 40,000 cases are half of that
LARGEST_TABLE = 4 << 20
_DEPTH = 64  # of an XML document; JUnit has 4 levels
_ITEMS = 4_000_000  # of a JSON text: a quarter of a GB if each is an empty list
_ELEMENTS = 500_000  # of an XML document: results of 40,000 cases have 200,000
_DIGITS = 40


class BoundsError(ValueError):
    """The reason why a text is out of bounds; ``line`` counts from 1."""

    def __init__(self, reason: str, line: int = 1) -> None:
        super().__init__(reason)
        self.line = line


def read_bytes(file: Path, largest: int = LARGEST_FILE) -> bytes:
    """The file's bytes. Raises OSError as :func:`open_plain`, BoundsError for a large file."""
    with open_plain(file) as stream:
        data = stream.read(largest + 1)
    if len(data) > largest:
        raise BoundsError(f"it has more than {largest >> 20} MiB")
    return data


def read_text(file: Path, largest: int = LARGEST_FILE) -> str:
    """The file's UTF-8 text. Raises OSError, BoundsError, UnicodeDecodeError."""
    return read_bytes(file, largest).decode("utf-8")


def parse_json(text: str) -> Any:
    """The value of a JSON text. Raises ValueError with the reason, or BoundsError, which is one.

    The bounds: finite numbers, text that UTF-8 can encode, nesting that Python can walk, the number of values, and one
    value for each name of an object.
    """
    if sum(map(text.count, ",[{")) > _ITEMS:
        raise BoundsError(f"it has more than {_ITEMS:,} values")
    try:
        value = json.loads(
            text, parse_constant=_no_constant, parse_float=_finite, parse_int=_whole, object_pairs_hook=_unique
        )
    except RecursionError:
        raise BoundsError("it is nested too deeply") from None
    if "\\u" in text:  # only an escape can make half a surrogate pair
        _check_text(value)
    return value


def _unique(members: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(members)
    if len(value) < len(members):
        name = next(name for at, (name, _) in enumerate(members) if name in dict(members[:at]))
        raise BoundsError(f"{name[:_DIGITS]!r} is there twice")
    return value


def check_xml(data: bytes) -> None:
    """Check the document's events before a tree is made of it.

    Raises:
        BoundsError: nested too deeply, too many elements, or a document type, whose entities may stand for gigabytes or
            for other files.
        expat.ExpatError: no XML.
    """
    depth = count = 0

    def begin(_name: str, _attributes: object) -> None:
        nonlocal depth, count
        depth, count = depth + 1, count + 1
        if depth > _DEPTH:
            raise BoundsError(f"nested deeper than {_DEPTH} levels", parser.CurrentLineNumber)
        if count > _ELEMENTS:
            raise BoundsError(f"more than {_ELEMENTS:,} elements", parser.CurrentLineNumber)

    def end(_name: str) -> None:
        nonlocal depth
        depth -= 1

    def refuse(*_: object) -> None:
        raise BoundsError("it declares a document type", parser.CurrentLineNumber)

    parser = expat.ParserCreate()
    parser.StartElementHandler, parser.EndElementHandler, parser.StartDoctypeDeclHandler = begin, end, refuse
    parser.Parse(data, True)


def check_number(text: str) -> None:
    """Refuse a number with more digits than any figure has, by a BoundsError."""
    if len(text) > _DIGITS:
        raise BoundsError(f"a number of {len(text)} characters")


def _no_constant(word: str) -> Any:
    raise BoundsError(f"{word} is not a number of JSON")


def _finite(text: str) -> float:
    check_number(text)
    if not math.isfinite(number := float(text)):
        raise BoundsError(f"{text} is not a finite number")
    return number


def _whole(text: str) -> int:
    check_number(text)
    return int(text)


def _check_text(value: Any) -> None:
    rest = [value]
    while rest:
        node = rest.pop()
        if isinstance(node, str):
            try:
                node.encode()
            except UnicodeEncodeError:
                raise BoundsError(f"{node[:_DIGITS]!r} holds half a surrogate pair") from None
        elif isinstance(node, dict):
            rest += [*node, *node.values()]
        elif isinstance(node, list):
            rest += node
