"""Pairwise designs: few combinations of the values of several axes, in which any two values of two axes meet once.

:func:`cover` makes them for groups of a table of problems with ``cover: pairs``. :func:`met` and :func:`possible` count
the pairs in any cases.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from ckpm.matrix.problems.case import SuiteCase

Point = tuple[int, int]  # an axis and one of its values, by number
Forbidden = Callable[[Mapping[int, int]], bool]


def cover(sizes: Sequence[int], forbidden: Forbidden) -> list[tuple[int, ...]]:
    """A greedy design: combinations of a value of each axis in which all pairs of values meet that can.

    ``forbidden`` judges a part of a combination. Each combination begins with the first pair that is left. From each
    further axis it takes the value that is in the most pairs that are left, of several the least used.
    """
    axes = sorted(range(len(sizes)), key=lambda axis: -sizes[axis])
    values = {axis: [(axis, value) for value in range(sizes[axis])] for axis in axes}
    left = dict.fromkeys(
        frozenset(pair)
        for first, second in itertools.combinations(axes, 2)
        for pair in itertools.product(values[first], values[second])
    )
    used: Counter[Point] = Counter()
    combinations = []
    while left:
        pair = next(iter(left))
        del left[pair]
        chosen = _complete(dict(sorted(pair)), axes, values, left, used, forbidden)
        if chosen is None:
            continue  # the two cannot meet
        combinations.append(tuple(chosen[axis] for axis in range(len(sizes))))
        used.update(chosen.items())
        for two in itertools.combinations(chosen.items(), 2):
            left.pop(frozenset(two), None)
    return combinations


def _complete(
    chosen: dict[int, int],
    axes: Sequence[int],
    values: Mapping[int, Sequence[Point]],
    left: Collection[frozenset[Point]],
    used: Counter[Point],
    forbidden: Forbidden,
) -> dict[int, int] | None:
    """Choose a value of each axis that has none; None if all choices are forbidden."""
    if forbidden(chosen):
        return None
    axis = next((axis for axis in axes if axis not in chosen), None)
    if axis is None:
        return chosen

    def rank(point: Point) -> tuple[int, int]:
        return -sum(frozenset((point, other)) in left for other in chosen.items()), used[point]

    for _, value in sorted(values[axis], key=rank):
        if whole := _complete({**chosen, axis: value}, axes, values, left, used, forbidden):
            return whole
    return None


_LENGTHS = (1, 63, 127, 128, 256)  # the last of each class: below and at the edges of tiles
AXES: Mapping[str, Callable[[SuiteCase], Any]] = {
    "heads": lambda p: (p.nhead_q, p.nhead_k),
    "head dims": lambda p: (p.hdim_q, p.hdim_v),
    "sequences": lambda p: min(p.batch, 3),
    "queries": lambda p: bisect_left(_LENGTHS, p.seqlen_q),
    "keys": lambda p: bisect_left(_LENGTHS, p.seqlen_k),
    "type": lambda p: (p.dtype, p.qscale),
    "tile": lambda p: p.tile_rows,
    "mask": lambda p: (p.mask, p.window_left > 0, p.window_right > 0),
    "sink": lambda p: (p.sink_size > 0, p.sink_logits),
    "feature": lambda p: (p.bias, p.logits_soft_cap > 0, p.p_drop > 0),
    "LSE": lambda p: p.lse,
    "pages": lambda p: (p.page_size, p.kv_layout, p.kv_table),
    "order": lambda p: p.page_order,
    "table end": lambda p: p.table_end,
    "storage": lambda p: p.storage,
    "values": lambda p: (p.values, p.q_range, p.kv_range),
}


def met(cases: Iterable[SuiteCase]) -> set[frozenset[tuple[str, Any]]]:
    """The pairs of values of two AXES that occur in a case."""
    points = ([(name, value(case)) for name, value in AXES.items()] for case in cases)
    return {frozenset(pair) for some in points for pair in itertools.combinations(some, 2)}


def possible(cases: Sequence[SuiteCase]) -> int:
    """The number of pairs of values of two AXES that occur in any cases, together or not."""
    sizes = [len({value(case) for case in cases}) for value in AXES.values()]
    return sum(first * second for first, second in itertools.combinations(sizes, 2))
