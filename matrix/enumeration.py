"""All keys of a family: the product of its axes, less what the rules exclude, in upstream's order of emission.

The product is grown axis by axis and a rule is applied as soon as its last field is bound, so that the cost follows the
number of kernels and not that of combinations (55,000 for 4,848 kernels in the dialect of 2026).
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

from matrix.dialects import Family, Value
from matrix.keys import KEY_FIELDS, Key, Tile
from matrix.names import writer
from matrix.rules import Rule


def enumerate_keys(family: Family, *, arch: str, receipt: int = 0, mask_impl: str = "simplified") -> list[Key]:
    """The keys of a family for one arch and receipt, in the order in which upstream emits and dispatches them.

    An arch without kernels gives an empty list; ``family.absent`` says why.
    """
    if arch not in family.archs:
        return []
    order = family.order
    position = {axis: index for index, axis in enumerate(order)}
    allowed = family.receipts.get(receipt, {})
    partials: list[tuple[Any, ...]] = [()]
    for depth, axis in enumerate(order):
        partials = _extend(family, partials, axis, allowed.get(axis), mask_impl, position)
        for rule in family.rules:
            if max(position[name] for name in rule.fields) == depth:
                partials = _prune(partials, rule, position)
    write, tile = writer(family), position["tile"]
    # A key's fields are picked from one tuple: these five, then the axes. None stands for axes the dialect lacks.
    derived = ("name", "family", "mask_impl", "hdim_v", None)
    place = {field: index for index, field in enumerate((*derived, *order))}
    pick = itemgetter(*(place.get(field, place[None]) for field in KEY_FIELDS))
    return [
        Key(*pick((write(partial), family.name, mask_impl, partial[tile].bn1, None, *partial))) for partial in partials
    ]


def _extend(
    family: Family,
    partials: list[tuple[Any, ...]],
    axis: str,
    allowed: Sequence[Value] | None,
    mask_impl: str,
    position: dict[str, int],
) -> list[tuple[Any, ...]]:
    if axis == "tile":
        dtype, hdim = position["dtype"], position["hdim_q"]
        return [
            (*partial, row.tile)
            for partial in partials
            for row in family.tiles
            if partial[hdim] == row.hdim and partial[dtype] in row.dtypes
        ]
    values: Sequence[Value] = family.masks[mask_impl] if axis == "mask" else family.axes[axis]
    if allowed is not None:
        values = [value for value in values if value in allowed]
    return [(*partial, value) for partial in partials for value in values]


def _prune(partials: list[tuple[Any, ...]], rule: Rule, position: dict[str, int]) -> list[tuple[Any, ...]]:
    """Partials that the rule lets pass; its verdicts are kept, since few combinations of its own fields exist."""
    if len(rule.fields) == 1:
        index = position[rule.fields[0]]
        return [partial for partial in partials if not rule.excludes(partial[index])]
    pick = itemgetter(*(position[name] for name in rule.fields))
    verdicts: dict[tuple[Any, ...], bool] = {}
    kept = []
    for partial in partials:
        values = pick(partial)
        if values not in verdicts:
            verdicts[values] = rule.excludes(*values)
        if not verdicts[values]:
            kept.append(partial)
    return kept


def tiles_of(family: Family, dtype: str, hdim: int) -> list[Tile]:
    """The tiles that the table has for a dtype and head dim, in dispatch order."""
    return [row.tile for row in family.tiles if dtype in row.dtypes and row.hdim == hdim]
