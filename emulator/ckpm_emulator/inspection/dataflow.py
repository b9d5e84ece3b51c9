"""What may be under way before each instruction, on any way that leads there: the nearest of it, to a fixed point."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

Place = TypeVar("Place")
Entry = TypeVar("Entry")
Value = TypeVar("Value")


def before_each(
    entry: Place,
    after: Callable[[Place, dict[Entry, Value]], Mapping[Entry, Value]],
    following: Callable[[Place], Iterable[Place]],
    distance: Callable[[Value], int],
) -> dict[Place, dict[Entry, Value]]:
    """The state at every place that can be reached from ``entry``, where nothing is under way.

    ``after`` is what a place makes of the state before it. Where ways meet, the value of the smaller ``distance``, the
    number of operations since, stands for an entry: what is right for the nearest is right for the others.
    """
    before: dict[Place, dict[Entry, Value]] = {entry: {}}
    queue = [entry]
    while queue:
        place = queue.pop()
        state = after(place, before[place])
        for successor in following(place):
            if successor not in before:
                before[successor] = dict(state)
            elif not _merge(before[successor], state, distance):
                continue
            queue.append(successor)
    return before


def _merge(known: dict[Entry, Value], other: Mapping[Entry, Value], distance: Callable[[Value], int]) -> bool:
    """Let ``known`` hold the nearest of both; whether it changed."""
    changed = False
    for entry, value in other.items():
        if entry not in known or distance(value) < distance(known[entry]):
            known[entry] = value
            changed = True
    return changed
