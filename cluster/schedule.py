"""List scheduling: how long units take on so many processors, as the build and a Dask scheduler run them. Pure.

Units begin in a given order, the longest first, each on the processor that is free first. An object then travels to the
client, whose network brings one after the other. The link begins when the last one is there.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Work:
    """One unit: processor seconds of its compiler, and bytes of its object."""

    seconds: float
    bytes: int


@dataclass(frozen=True, slots=True)
class Schedule:
    """Seconds since the start when the last unit was compiled, its object was there, and the library was finished.

    ``critical`` is what no number of machines can undercut: the longest unit with its object, the link, the manifest.
    ``busy`` are processor seconds of compilers.
    """

    compiled: float
    gathered: float
    finished: float
    critical: float
    busy: float


def simulate(units: Sequence[Work], *, slots: int, network: float, final: float) -> Schedule:
    """Schedule ``units``, at least one, on ``slots`` processors.

    Args:
        network: bytes a second that reach the client.
        final: seconds of link and manifest.
    """
    ordered = sorted(units, key=lambda unit: -unit.seconds)
    free = [0.0] * min(slots, len(ordered))
    ends = []
    for unit in ordered:
        end = free[0] + unit.seconds
        heapq.heapreplace(free, end)
        ends.append((end, unit.bytes))
    gathered = 0.0
    for end, size in sorted(ends):
        gathered = max(gathered, end) + size / network
    return Schedule(
        compiled=max(free),
        gathered=gathered,
        finished=gathered + final,
        critical=max(unit.seconds + unit.bytes / network for unit in units) + final,
        busy=sum(unit.seconds for unit in units),
    )
