"""Steps in a history of counted figures, which have no noise: the places where the figure changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A change at index ``at``, from ``before`` to ``after``."""

    at: int
    before: float
    after: float


def steps(values: Sequence[float]) -> tuple[Step, ...]:
    """The steps in the order of the series."""
    return tuple(Step(at=at, before=a, after=b) for at, (a, b) in enumerate(pairwise(values), 1) if a != b)
