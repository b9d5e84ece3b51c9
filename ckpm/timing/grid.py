"""All workgroups of a launch on a GPU: over its dies and their compute units, each with its own length.

Workgroup n goes to die n % 8 (ROCm's documentation of MI300X), and there to the compute unit with most room, in order.
Copies on one compute unit slow one another down: ``speeds[k - 1]`` is the speed of each of k copies.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

DIES = 8  # XCDs of MI300X and MI355X


@dataclass(slots=True)
class _Unit:
    """A compute unit. ``progress`` is the work of a copy that has been there since cycle 0."""

    cycle: float = 0.0
    progress: float = 0.0
    ends: list[float] = field(default_factory=list)  # of its copies, as progress

    def advance(self, cycle: float, speeds: Sequence[float]) -> None:
        if self.ends:
            self.progress += (cycle - self.cycle) * speeds[len(self.ends) - 1]
        self.cycle = cycle

    def next_end(self, speeds: Sequence[float]) -> float:
        return self.cycle + max(0.0, self.ends[0] - self.progress) / speeds[len(self.ends) - 1]


def cycles(lengths: Sequence[float], units: int, speeds: Sequence[float]) -> float:
    """Cycles from the first workgroup's start to the last one's end. ``lengths`` are cycles of lone copies."""
    return max(_die(lengths[die::DIES], units // DIES, speeds) for die in range(DIES))


def _die(lengths: Sequence[float], count: int, speeds: Sequence[float]) -> float:
    units = [_Unit() for _ in range(count)]
    places = [unit for _ in speeds for unit in units]  # one copy on each before a second on any
    for unit, length in zip(places, lengths, strict=False):
        heapq.heappush(unit.ends, length)
    waiting = iter(lengths[len(places) :])
    events = [(unit.next_end(speeds), number) for number, unit in enumerate(units) if unit.ends]
    heapq.heapify(events)
    cycle = 0.0
    while events:
        cycle, number = heapq.heappop(events)
        unit = units[number]
        unit.advance(cycle, speeds)
        heapq.heappop(unit.ends)
        for length in itertools.islice(waiting, 1):
            heapq.heappush(unit.ends, unit.progress + length)
        if unit.ends:
            heapq.heappush(events, (unit.next_end(speeds), number))
    return cycle
