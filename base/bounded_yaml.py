"""Check YAML against bounds. This is apart from bounded.py because most files from outside are JSON."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import yaml

from .bounded import BoundsError

_DEPTH = 64  # the deepest table of ours has 8 levels
_VALUES = 200_000  # of a table, each alias counted with all that it stands for


def check_yaml(text: str) -> None:
    """Look at the text's events, which cost little whatever the nesting, before its values are made.

    Text that is not YAML passes: the parser reports what is wrong with it.

    Raises:
        BoundsError: nested too deeply, or too many values.
    """
    count, depth = 0, 0
    anchored: dict[str, int] = {}
    opened: list[tuple[str | None, int]] = []
    for event in _events(text):
        if isinstance(event, yaml.AliasEvent):
            count += anchored.get(str(event.anchor), 0)
        elif isinstance(event, yaml.ScalarEvent):
            count += 1
            anchored |= {event.anchor: 1} if event.anchor else {}
        elif isinstance(event, yaml.CollectionStartEvent):
            opened.append((event.anchor, count))
            count, depth = count + 1, depth + 1
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = opened.pop()
            anchored |= {anchor: count - before} if anchor else {}
            depth -= 1
        if depth > _DEPTH:
            raise BoundsError(f"nested deeper than {_DEPTH} levels", _line(event))
        if count > _VALUES:
            raise BoundsError(f"more than {_VALUES:,} values, with what aliases stand for", _line(event))


def _events(text: str) -> Iterator[yaml.Event]:
    with contextlib.suppress(yaml.YAMLError):
        yield from yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def _line(event: yaml.Event) -> int:
    return event.start_mark.line + 1 if event.start_mark else 1
