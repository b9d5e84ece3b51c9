"""Pairwise designs: few combinations of several axes' values, in which any two values of two axes meet once.

:func:`cover` makes designs for groups of problems with ``cover: pairs``. :func:`met` returns the pairs of cases,
:func:`legal` the pairs that cases of a library's kernels can have.
"""

from __future__ import annotations

import dataclasses
import itertools
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from ckpm.matrix.keys import Key
from ckpm.matrix.problems.case import SuiteCase, complaint
from ckpm.matrix.problems.serving import serves

Point = tuple[int, int]  # an axis and one of its values, by number
Forbidden = Callable[[Mapping[int, int]], bool]


def cover(sizes: Sequence[int], forbidden: Forbidden) -> list[tuple[int, ...]]:
    """A greedy design: combinations of a value of each axis, in which all possible pairs of values meet.

    ``forbidden`` judges a part of a combination. Each combination begins with the first open pair. From each further
    axis it takes the value with the most open pairs, among equals the least used one.
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


@dataclass(frozen=True, slots=True)
class PairAxis:
    """An axis: the ``value`` of a case, and ``put``, the fields that give a case the value of another case."""

    value: Callable[[SuiteCase], Any]
    put: Callable[[SuiteCase, SuiteCase], Mapping[str, Any]]


_EDGES = (1, 63, 127, 128, 256)  # the last length of each class: below and at the edges of tiles
_LENGTHS = (1, 40, 100, 128, 256, 384)  # one of each class, of whole steps if possible


def _length_class(length: int) -> int:
    return bisect_left(_EDGES, length)


def _tile_rows(case: SuiteCase) -> int:
    """The rows of a workgroup, or the most that one may have where the case names no tile."""
    return case.tile_rows or (64 if case.split_keys else 256 if case.v3 == "on" else 128)


def _rows_class(case: SuiteCase) -> tuple[bool, bool]:
    """Return (more rows than one tile has, heads of a KV head that don't divide a tile).

    Rows are queries, or where keys are split those of all heads of a KV head.
    """
    tile, ratio = _tile_rows(case), case.nhead_q // case.nhead_k
    return case.seqlen_q * (ratio if case.split_keys else 1) > tile, tile % ratio > 0


def _put_rows(case: SuiteCase, other: SuiteCase) -> Mapping[str, Any]:
    """Change a case's heads and queries only as far as its class asks for it."""
    beyond, uneven = _rows_class(other)
    if _rows_class(case)[1] != uneven:
        case = dataclasses.replace(case, nhead_q=(3 if uneven else 2) * case.nhead_k)
    if _rows_class(case)[0] != beyond:
        whole = _tile_rows(case) // (case.nhead_q // case.nhead_k if case.split_keys else 1)
        case = dataclasses.replace(case, seqlens_q=(whole + beyond,) * case.batch)
    return {"nhead_q": case.nhead_q, "seqlens_q": case.seqlens_q}


def _plain(*fields: str, value: Callable[[SuiteCase], Any] | None = None) -> PairAxis:
    """The axis of some fields, or of a ``value`` that follows from them."""
    return PairAxis(value or attrgetter(*fields), lambda case, other: {name: getattr(other, name) for name in fields})


AXES: Mapping[str, PairAxis] = {
    "heads": _plain("nhead_q", "nhead_k"),
    "head dims": _plain("hdim_q", "hdim_v"),
    "sequences": PairAxis(
        lambda p: min(p.batch, 3),
        lambda p, other: {
            "seqlens_q": (p.seqlen_q,) * min(other.batch, 3),
            "seqlens_k": (p.seqlen_k,) * min(other.batch, 3),
        },
    ),
    "queries": PairAxis(
        lambda p: _length_class(p.seqlen_q),
        lambda p, other: {"seqlens_q": (_LENGTHS[_length_class(other.seqlen_q)],) * p.batch},
    ),
    "keys": PairAxis(
        lambda p: _length_class(p.seqlen_k),
        lambda p, other: {"seqlens_k": (_LENGTHS[_length_class(other.seqlen_k)],) * p.batch},
    ),
    "rows": PairAxis(_rows_class, _put_rows),
    "type": _plain("dtype", "qscale", "mode"),
    "tile": _plain("tile_rows"),
    "mask": _plain(
        "mask", "window_left", "window_right", value=lambda p: (p.mask, p.window_left > 0, p.window_right > 0)
    ),
    "sink": _plain("sink_size", "sink_logits", value=lambda p: (p.sink_size > 0, p.sink_logits)),
    "feature": _plain(
        "bias", "logits_soft_cap", "p_drop", value=lambda p: (p.bias, p.logits_soft_cap > 0, p.p_drop > 0)
    ),
    "LSE": _plain("lse"),
    "pages": _plain("page_size", "kv_layout", "kv_table", "vlayout"),
    "order": _plain("page_order"),
    "table end": _plain("table_end"),
    "storage": _plain("storage"),
    "values": _plain("values", "q_range", "kv_range"),
}
Pair = frozenset[tuple[str, Any]]  # of values of two AXES, by the axes' names

# values that go with every value of another axis; other fields stay as in a case of the kernel
_NEUTRAL: Mapping[str, Any] = {
    **{"nhead_q": 1, "nhead_k": 1, "seqlens_q": (128,), "seqlens_k": (128,), "sequence_ids": ()},
    **{"page_order": "scrambled", "table_end": "zeros", "storage": "separate", "pool_pages": 0, "checks": ()},
    **{"values": "random", "k_page_scales": (), "v_page_scales": ()},
}


def met(cases: Iterable[SuiteCase]) -> set[Pair]:
    """The pairs of values of two AXES that occur in a case."""
    points = ([(name, axis.value(case)) for name, axis in AXES.items()] for case in cases)
    return {frozenset(pair) for some in points for pair in itertools.combinations(some, 2)}


def legal(cases: Sequence[SuiteCase], keys: Iterable[Key]) -> set[Pair]:
    """The pairs of the cases' values that a well-formed case for one of the kernels can have.

    A case of each kernel gets the values of two axes at a time. Its other axes are neutral, so that two values that
    cannot meet in it cannot meet at all. A kernel without a case adds no pairs.
    """
    donors = {name: _donors(axis, cases) for name, axis in AXES.items()}
    pairs: set[Pair] = set()
    for key in {dataclasses.replace(key, load=None): key for key in keys}.values():
        case = next((case for case in cases if serves(key, case)), None)
        if case is not None:
            pairs |= _legal_of(key, dataclasses.replace(case, **_NEUTRAL), donors, pairs)
    return pairs


_Donors = Mapping[Any, Collection[SuiteCase]]  # by their value of an axis


def _donors(axis: PairAxis, cases: Sequence[SuiteCase]) -> _Donors:
    """The cases of each value of an axis, one for each setting of its fields."""
    ways: dict[Any, dict[Any, SuiteCase]] = {}
    for case in cases:
        ways.setdefault(axis.value(case), {}).setdefault(tuple(axis.put(cases[0], case).items()), case)
    return {value: some.values() for value, some in ways.items()}


def _legal_of(key: Key, neutral: SuiteCase, donors: Mapping[str, _Donors], known_pairs: Collection[Pair]) -> set[Pair]:
    own: dict[str, dict[Any, SuiteCase]] = {}  # axis -> value -> a donor whose value the kernel takes
    for name, values in donors.items():
        fitting = {
            value: [case for case in some if _fits(key, _with(neutral, name, case))] for value, some in values.items()
        }
        own[name] = {value: some[0] for value, some in fitting.items() if some}
    pairs = set()
    for first, second in itertools.combinations(own, 2):
        for first_value, donor in own[first].items():
            case = _with(neutral, first, donor)
            for second_value, other in own[second].items():
                pair = frozenset(((first, first_value), (second, second_value)))
                if pair in known_pairs:
                    continue
                both = _with(case, second, other)
                if AXES[first].value(both) == first_value and _fits(key, both):
                    pairs.add(pair)
    return pairs


def _with(case: SuiteCase, name: str, other: SuiteCase) -> SuiteCase:
    return dataclasses.replace(case, **AXES[name].put(case, other))


def _fits(key: Key, case: SuiteCase) -> bool:
    return complaint(case) is None and serves(key, case)
