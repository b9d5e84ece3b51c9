"""The operations in flight before each instruction, on any path to it: the nearest of each kind, to a fixed point."""

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
    """The state before every instruction that can be reached from ``entry``, where nothing is in flight.

    ``after`` computes the state after an instruction. Where paths meet, the entry with the smaller ``distance`` stays:
    the number of operations since. A result for the nearest holds for the others.
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
    """Let ``known`` hold the nearest of both; return True if it changed."""
    changed = False
    for entry, value in other.items():
        if entry not in known or distance(value) < distance(known[entry]):
            known[entry] = value
            changed = True
    return changed
