"""Our kernel names against somebody else's: upstream's codegen run live, or a stored list."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

_SHOWN = 5  # names of each kind in a description: enough to see the pattern, few enough to read


@dataclass(frozen=True, slots=True)
class OrderDifference:
    """The first place at which the names that both lists hold come in different order; ``position`` counts from 0."""

    position: int
    ours: str
    theirs: str


@dataclass(frozen=True, slots=True)
class NameDifference:
    """What ``theirs`` has and ours lacks, what only ours has (a repetition too), and where the order departs."""

    missing: tuple[str, ...]
    extra: tuple[str, ...]
    order_differs: OrderDifference | None

    @property
    def same(self) -> bool:
        return not (self.missing or self.extra or self.order_differs)

    def describe(self) -> str:
        """Counts, the first few names of each kind and the first difference of order; several lines."""
        if self.same:
            return "the names are the same, in the same order"
        lines = [*_list("missing", self.missing), *_list("extra", self.extra)]
        if place := self.order_differs:
            lines += [
                f"the order differs from position {place.position} on (of the names that both have):",
                f"  ours   {place.ours}",
                f"  theirs {place.theirs}",
            ]
        return "\n".join(lines)


def compare_names(ours: Sequence[str], theirs: Sequence[str]) -> NameDifference:
    """Compare two lists of names, repetitions and order included.

    Names of one list alone don't count as a difference of order. For lists without order, pass both sorted.
    """
    our_counts, their_counts = Counter(ours), Counter(theirs)
    both = our_counts & their_counts
    pairs = zip(_first(ours, both), _first(theirs, both), strict=True)
    order = next((OrderDifference(i, a, b) for i, (a, b) in enumerate(pairs) if a != b), None)
    return NameDifference(
        missing=tuple((their_counts - our_counts).elements()),
        extra=tuple((our_counts - their_counts).elements()),
        order_differs=order,
    )


def _first(names: Sequence[str], counts: Counter[str]) -> list[str]:
    """The names in their order, each at most as often as ``counts`` says."""
    left = counts.copy()
    kept = []
    for name in names:
        if left[name] > 0:
            left[name] -= 1
            kept.append(name)
    return kept


def _list(what: str, names: Sequence[str]) -> list[str]:
    if not names:
        return []
    rest = [f"  and {len(names) - _SHOWN} more"] if len(names) > _SHOWN else []
    return [f"{len(names)} {what}:", *(f"  {name}" for name in names[:_SHOWN]), *rest]
