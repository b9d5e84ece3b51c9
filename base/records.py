"""Records that cross rooms as JSON: typed reading; a complaint names the file and the dotted path of the field.

Each record (a manifest, results, counters, a gate's rows) is a frozen dataclass with ``write`` and ``read``; nobody
else reads its file.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Mapping
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
_LONGEST = 1000  # of a complaint: names may be as long as a file


@dataclass(frozen=True, slots=True)
class Source:
    """The file that is read, or a line of it; what it should be, what helps if it isn't, the class of the complaint."""

    place: Path | str
    what: str  # "a manifest"
    remedy: str
    error: type[CkPrefillError]

    def fail(self, message: str) -> CkPrefillError:
        """The error, to be raised by the caller."""
        return self.error(f"{self.place}: {message}. {self.remedy}")

    def read(self) -> Value:
        """The whole file. Raises ``error``: it can't be read, or is no JSON."""
        try:
            text = read_text(Path(self.place))
        except (OSError, ValueError) as error:
            raise self.fail(f"can't be read as {self.what}: {error}") from error
        return self.parse(text)

    def parse(self, text: str) -> Value:
        """What stands there. Raises ``error``: no JSON."""
        try:
            return Value(parse_json(text), self, "")
        except ValueError as error:
            raise self.fail(f"can't be read as {self.what}: {error}") from error


@dataclass(frozen=True, slots=True)
class Value:
    """A value of the JSON and its dotted path. Every method raises the source's error if it is of another kind."""

    value: Any
    source: Source
    path: str

    def fail(self, message: str) -> CkPrefillError:
        """The error for this value, to be raised by the caller."""
        return self.source.fail(one_line(f"{self.path or 'the file'}: {message}", _LONGEST))

    def _typed(self, kind: type[T]) -> T:
        if not isinstance(self.value, kind) or (kind is int and isinstance(self.value, bool)):
            raise self.fail(f"{_is(self.value)}, expected {_KINDS[kind]}")
        return self.value

    def text(self) -> str:
        return self._typed(str)

    def whole(self) -> int:
        return self._typed(int)

    def word(self) -> str:
        """Text that isn't empty."""
        if not (text := self.text()):
            raise self.fail("is empty")
        return text

    def truth(self) -> bool:
        return self._typed(bool)

    def count(self) -> int:
        """A whole number of at least 0."""
        if (number := self.whole()) < 0:
            raise self.fail(f"is {number}, which is no count")
        return number

    def number(self) -> float:
        """A finite number."""
        if isinstance(self.value, bool) or not isinstance(self.value, int | float) or not math.isfinite(self.value):
            raise self.fail(f"{_is(self.value)}, expected a finite number")
        return self.value

    def one_of(self, known: Collection[str]) -> str:
        if not isinstance(self.value, str) or self.value not in known:
            raise self.fail(f"{_shown(self.value)} is none of {', '.join(known)}")
        return self.value

    def items(self) -> list[Value]:
        return [Value(one, self.source, f"{self.path}[{at}]") for at, one in enumerate(self._typed(list))]

    def members(self) -> dict[str, Value]:
        return {name: self._member(name, one) for name, one in self._typed(dict).items()}

    def get(self, name: str) -> Value:
        """The member ``name`` of this object; the complaint that it is missing comes with its kind."""
        return self._member(name, self._typed(dict).get(name))

    def optional(self, name: str, read: Callable[[Value], T], default: U) -> T | U:
        """What ``read`` makes of the member ``name``; ``default`` if it is missing or null."""
        member = self.get(name)
        return default if member.value is None else read(member)

    def map(self, read: Callable[[Value], T]) -> dict[str, T]:
        return {name: read(one) for name, one in self.members().items()}

    def texts(self) -> dict[str, str]:
        """An object of texts."""
        return self.map(Value.text)

    def allow(self, names: Collection[str]) -> None:
        """Refuse members that nobody reads."""
        for name, one in self.members().items():
            if name not in names:
                raise one.fail("no such field")

    def _member(self, name: str, value: Any) -> Value:
        return Value(value, self.source, f"{self.path}.{name}" if self.path else name)


def _is(value: Any) -> str:
    return "is missing" if value is None else f"is {_shown(value)}"


def _shown(value: Any) -> str:
    """A wrong value in a complaint: the beginning, or only the kind of what may hold as much as the file."""
    return _KINDS[type(value)] if value and isinstance(value, dict | list) else repr(str(value)[:_SHOWN])


def as_text(document: Mapping[str, Any]) -> bytes:
    """A record's JSON: one member a line, and no NaN, which is none. Raises ValueError."""
    return (json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()
