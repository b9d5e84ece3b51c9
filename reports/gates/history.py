"""Steps in a history: lasting changes in the level of a series of figures.

The levels minimise the sum of distances to the figures plus a price for each step. This is the L1 Potts functional
(Friedrich, Kempe, Liebscher and Winkler, "Complexity Penalized M-Estimation", 2008), as in airspeed velocity. The price
follows the noise, so that figures without noise have a step wherever they change.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

_PRICE = 4.0  # in standard deviations times the root of the logarithm of the length: chance passes it rarely
_NORMAL = 0.6745 * math.sqrt(2)  # median of |a - b| of two normal figures, in standard deviations


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A change of the level at index ``at``, from ``before`` to ``after`` (medians)."""

    at: int
    before: float
    after: float


def noise_of(values: Sequence[float]) -> float:
    """The standard deviation of measured figures, from differences of neighbours: a step adds only one difference."""
    return median(abs(b - a) for a, b in pairwise(values)) / _NORMAL if len(values) > 1 else 0.0


def steps(values: Sequence[float], noise: float) -> tuple[Step, ...]:
    """The steps in the order of the series; ``noise`` is the standard deviation, 0 of counted figures."""
    count = len(values)
    if count == 0:
        return ()
    price = _PRICE * noise * math.sqrt(math.log(count + 1))
    best = [-price, *[math.inf] * count]  # the least cost of the first n figures
    start = [0] * (count + 1)  # where the last level of those begins
    for end in range(1, count + 1):
        for first in range(end):
            level = median(values[first:end])
            cost = best[first] + price + sum(abs(value - level) for value in values[first:end])
            if cost < best[end]:
                best[end], start[end] = cost, first
    bounds = [count]
    while bounds[-1]:
        bounds.append(start[bounds[-1]])
    bounds.reverse()
    levels = [median(values[a:b]) for a, b in pairwise(bounds)]
    return tuple(
        Step(at=at, before=before, after=after)
        for at, before, after in zip(bounds[1:], levels, levels[1:], strict=False)
        if before != after
    )
