"""Records that cross rooms as JSON, read with types; an error names the file and the dotted path of the field.

Each record (a manifest, results, counters, a gate's rows) is a frozen dataclass with ``write`` and ``read``, the only
functions that access its file.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from .bounded import parse_json, read_text
from .display import one_line
from .errors import CkPrefillError

T = TypeVar("T")
U = TypeVar("U")
_KINDS = {dict: "an object", list: "a list", str: "text", int: "a whole number", bool: "true or false"}
_SHOWN = 40  # characters of a wrong value
_LONGEST = 1000  # of an error message: names may be as long as a file


@dataclass(frozen=True, slots=True)
class Source:
    """A file or a line of it: path, kind, the remedy if it is damaged, the class of the error."""

    location: Path | str
    what: str  # "a manifest"
    remedy: str
    error: type[CkPrefillError]

    def fail(self, message: str) -> CkPrefillError:
        """Return the error, which the caller raises."""
        return self.error(f"{self.location}: {message}. {self.remedy}")

    def read(self) -> Value:
        """Read the whole file. Raises ``error`` if it can't be read as JSON."""
        return self.parse(self._text())

    def read_lines(self) -> list[Value]:
        """Read a file of JSON Lines. Raises ``error``, with the line's number, if a line is damaged or cut short."""
        text, what = self._text(), f"a line of {self.what}"
        lines = [
            dataclasses.replace(self, location=f"{self.location}:{number}", what=what).parse(line)
            for number, line in enumerate(text.removesuffix("\n").split("\n"), 1)
        ]
        if not text.endswith("\n"):
            raise self.fail("its last line has no end: was it cut short?")
        return lines

    def _text(self) -> str:
        try:
            return read_text(Path(self.location))
        except (OSError, ValueError) as error:
            raise self.fail(f"can't be read as {self.what}: {error}") from error

    def parse(self, text: str) -> Value:
        """Parse a text. Raises ``error`` if JSON can't be read from it."""
        try:
            return Value(parse_json(text), self, "")
        except ValueError as error:
            raise self.fail(f"can't be read as {self.what}: {error}") from error


@dataclass(frozen=True, slots=True)
class Value:
    """A value of the JSON and its dotted path. Methods raise the source's error for another kind of value."""

    value: Any
    source: Source
    path: str

    def fail(self, message: str) -> CkPrefillError:
        """Return the error for this value, which the caller raises."""
        return self.source.fail(one_line(f"{self.path or 'the file'}: {message}", _LONGEST))

    def _as_type(self, kind: type[T]) -> T:
        if not isinstance(self.value, kind) or (kind is int and isinstance(self.value, bool)):
            raise self.fail(f"{_is(self.value)}, expected {_KINDS[kind]}")
        return self.value

    def text(self) -> str:
        return self._as_type(str)

    def whole(self) -> int:
        return self._as_type(int)

    def nonempty_text(self) -> str:
        """Return the value as text that isn't empty."""
        if not (text := self.text()):
            raise self.fail("is empty")
        return text

    def truth(self) -> bool:
        return self._as_type(bool)

    def count(self) -> int:
        """Return the value as a whole number of at least 0."""
        if (number := self.whole()) < 0:
            raise self.fail(f"must not be negative, is {number}")
        return number

    def number(self) -> float:
        """Return the value as a finite number."""
        if isinstance(self.value, bool) or not isinstance(self.value, int | float) or not math.isfinite(self.value):
            raise self.fail(f"{_is(self.value)}, expected a finite number")
        return self.value

    def one_of(self, choices: Collection[str]) -> str:
        if not isinstance(self.value, str) or self.value not in choices:
            raise self.fail(f"{_shown(self.value)} is none of {', '.join(choices)}")
        return self.value

    def items(self) -> list[Value]:
        return [Value(item, self.source, f"{self.path}[{at}]") for at, item in enumerate(self._as_type(list))]

    def members(self) -> dict[str, Value]:
        return {name: self._member(name, member) for name, member in self._as_type(dict).items()}

    def get(self, name: str) -> Value:
        """Return the member ``name`` of this object; a missing member is an error of its typed reading."""
        return self._member(name, self._as_type(dict).get(name))

    def optional(self, name: str, read: Callable[[Value], T], default: U) -> T | U:
        """Return ``read`` of the member ``name``; ``default`` if it is missing or null."""
        member = self.get(name)
        return default if member.value is None else read(member)

    def map(self, read: Callable[[Value], T]) -> dict[str, T]:
        return {name: read(member) for name, member in self.members().items()}

    def texts(self) -> dict[str, str]:
        """Return the value as an object of texts."""
        return self.map(Value.text)

    def allow(self, names: Collection[str]) -> None:
        """Refuse unknown members."""
        for name, member in self.members().items():
            if name not in names:
                raise member.fail("no such field")

    def record(self, kind: type[T]) -> T:
        """Return the value as a dataclass, by the types of its fields. Unknown fields are refused."""
        import msgspec  # only here: the emulator's distribution does without it

        try:
            record = msgspec.convert(self.value, kind)
        except msgspec.ValidationError:
            from .tablefile import explain  # only here: it loads YAML, which SCons starts without

            path, message = explain(self.value, kind)
            raise self._at(path).fail(message) from None
        for path in _unknown(self.value, msgspec.to_builtins(record)):
            raise self._at(path).fail("no such field")
        return record

    def _at(self, path: Iterable[str | int]) -> Value:
        value = self
        for part in path:
            value = value.items()[part] if isinstance(part, int) else value.get(part)
        return value

    def _member(self, name: str, value: Any) -> Value:
        return Value(value, self.source, f"{self.path}.{name}" if self.path else name)


def _unknown(value: Any, converted: Any) -> Iterator[list[str | int]]:
    """Yield the paths of the names in a JSON value that its record lacks."""
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for part, member in parts:
        if isinstance(converted, dict) and part not in converted:
            yield [part]
        else:
            yield from ([part, *rest] for rest in _unknown(member, converted[part]))


def _is(value: Any) -> str:
    return "is missing" if value is None else f"is {_shown(value)}"


def _shown(value: Any) -> str:
    """Return a wrong value for an error message: its beginning, or only the kind of an object or list."""
    return _KINDS[type(value)] if value and isinstance(value, dict | list) else repr(str(value)[:_SHOWN])


def as_line(document: Mapping[str, Any]) -> str:
    """Return a record as a line of JSON Lines. NaN is a ValueError."""
    return json.dumps(document, ensure_ascii=False, allow_nan=False) + "\n"


def as_text(document: Mapping[str, Any]) -> bytes:
    """Return a record's JSON, one member a line. NaN is a ValueError."""
    return (json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()
