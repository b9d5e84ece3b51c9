"""Why a kernel is in the matrix or in a selection, or what keeps it out: the text behind ``why`` and ``show``."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from matrix.dialects import TABLES, Dialect, Family, Value, dialect, dialect_names, dialect_table, receipts
from matrix.enumeration import tiles_of
from matrix.errors import NameSyntaxError
from matrix.keys import Key, Tile
from matrix.names import make_key, parse
from matrix.rules import broken
from matrix.selection import Selection, absences, conditions, profiles, select, shard_of, tiers
from matrix.tablefile import Field
from matrix.where import compile_where


@dataclass(frozen=True, slots=True)
class Reason:
    """One thing that keeps a kernel out.

    ``kind`` is axis, tile or rule (no such kernel is in the matrix), masks, family, arch, receipt, condition or shard
    (the selection leaves it out); ``source`` is where that is written.
    """

    kind: str
    name: str
    text: str
    source: str = ""


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis value of a kernel, the other values that the dialect has for it, and where the value is written."""

    name: str
    value: str
    alternatives: tuple[str, ...]
    place: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """Whether a selection holds a kernel (``reasons`` is empty), and the axes and receipts that bring it in."""

    name: str
    reasons: tuple[Reason, ...]
    axes: tuple[Axis, ...]
    receipts: tuple[int, ...]


def find(chosen: Dialect, name: str, mask_impl: str) -> tuple[Family, dict[str, Any]]:
    """The family and axis values that a name spells, whether or not the matrix holds such a kernel.

    Raises:
        NameSyntaxError: no family's grammar fits; the message names another dialect whose grammar does.
    """
    problems = []
    for family in chosen.families.values():
        try:
            return family, parse(family, name, mask_impl)
        except NameSyntaxError as error:
            problems.append(error)
    for other in dialect_names():
        if other != chosen.name and _fits(dialect(other), name):
            raise NameSyntaxError(
                f"'{name}' is a name of dialect {other}, not of {chosen.name}. Use --dialect {other}."
            )
    raise problems[0]


def _fits(candidate: Dialect, name: str) -> bool:
    for family in candidate.families.values():
        try:
            parse(family, name)
        except NameSyntaxError:
            continue
        return True
    return False


def find_key(chosen: Dialect, name: str, mask_impl: str) -> tuple[Family, Key]:
    """The kernel of that name.

    Raises:
        NameSyntaxError: the name doesn't parse, or the matrix has no such kernel.
    """
    family, values = find(chosen, name, mask_impl)
    if reasons := outside(chosen, family, values):
        raise NameSyntaxError(
            f"'{name}' is no kernel of {chosen.name}: {reasons[0].text}. `python -m matrix why NAME` tells more."
        )
    return family, make_key(family, values, name)


def outside(chosen: Dialect, family: Family, values: Mapping[str, Any]) -> list[Reason]:
    """What keeps axis values out of the matrix, whatever is selected: unknown values, an unknown tile, rules."""
    reasons = []
    for axis in family.order:
        known = _alternatives(family, axis, values)
        if values[axis] not in known and axis != "tile":
            text = f"{axis} '{_text(values[axis])}' is not in the table, which has {', '.join(map(_text, known))}"
            reasons.append(Reason("axis", axis, text, _place(chosen, family, axis, None)))
    tiles = tiles_of(family, values["dtype"], values["hdim_q"])
    if values["tile"] not in tiles:
        word, has = values["tile"].word, ", ".join(map(_text, tiles)) or "none"
        text = f"tile {word} is not in the table for {values['dtype']} d{values['hdim_q']}, which has {has}"
        reasons.append(Reason("tile", word, text, _place(chosen, family, "tile", None)))
    return reasons + [Reason("rule", rule.name, rule.reason, rule.source) for rule in broken(family.rules, values)]


def why(chosen: Dialect, selection: Selection, name: str) -> Explanation:
    """Everything that keeps a kernel out of a selection, or what brings it in.

    Raises:
        NameSyntaxError: the name doesn't parse; and whatever :func:`matrix.selection.select` raises.
    """
    family, values = find(chosen, name, selection.mask_impl)
    key = make_key(family, values, name)
    reasons = outside(chosen, family, values)
    if values["mask_impl"] != selection.mask_impl:
        other = values["mask_impl"]
        reasons.append(Reason("masks", other, f"mask '{key.mask}' is of the {other} masks: use --mask {other}"))
    if family.name not in selection.families:
        reasons.append(Reason("family", family.name, f"--family {','.join(selection.families)} leaves it out"))
    absent = absences(chosen, replace(selection, families=(family.name,)))
    if len(absent) == len(selection.archs):
        reasons += [Reason("arch", arch, reason) for arch, _, reason in absent]
    for axis, allowed in family.receipts.get(selection.receipt, {}).items():
        if values[axis] not in allowed:
            only = f"only has {axis} {', '.join(map(_text, allowed))}" if allowed else f"has no {family.name} kernel"
            text = f"receipt {selection.receipt} ({receipts()[selection.receipt]}) {only}"
            place = _line(chosen, family, ("receipts", str(selection.receipt), axis))
            reasons.append(Reason("receipt", str(selection.receipt), text, place))
    reasons += [
        Reason("condition", label, f"{label} doesn't keep it") for label, keep in conditions(selection) if not keep(key)
    ]
    if not reasons and selection.shard:
        index, count = selection.shard
        dealt = shard_of(select(chosen, replace(selection, shard=None)), name, count)
        if dealt != index:
            reasons.append(Reason("shard", f"{dealt}/{count}", f"it is in shard {dealt}/{count}, not {index}/{count}"))
    axes = tuple(_axis(chosen, family, axis, values) for axis in family.order)
    return Explanation(name, tuple(reasons), axes, receipts_with(family, key))


def receipts_with(family: Family, key: Key) -> tuple[int, ...]:
    """The receipts whose allow-lists the key passes; one that the family doesn't name keeps everything."""
    return tuple(
        receipt
        for receipt in receipts()
        if all(getattr(key, axis) in allowed for axis, allowed in family.receipts.get(receipt, {}).items())
    )


def profiles_with(key: Key) -> tuple[str, ...]:
    return tuple(name for name, text in profiles().items() if compile_where(text)(key))


def tiers_with(key: Key) -> tuple[str, ...]:
    return tuple(name for name, texts in tiers().items() if any(compile_where(text)(key) for text in texts))


def _alternatives(family: Family, axis: str, values: Mapping[str, Any]) -> tuple[Value, ...] | tuple[Tile, ...]:
    """All values of an axis: of the key's mask set for masks, for its dtype and head dim for tiles."""
    if axis == "tile":
        return tuple(tiles_of(family, values["dtype"], values["hdim_q"]))
    return family.masks[values["mask_impl"]] if axis == "mask" else family.axes[axis]


def _axis(chosen: Dialect, family: Family, axis: str, values: Mapping[str, Any]) -> Axis:
    others = tuple(_text(value) for value in _alternatives(family, axis, values) if value != values[axis])
    return Axis(axis, _text(values[axis]), others, _place(chosen, family, axis, values))


def _text(value: Value | Tile) -> str:
    if isinstance(value, Tile):
        return value.word
    return str(value).lower() if isinstance(value, bool) else str(value)


def _place(chosen: Dialect, family: Family, axis: str, values: Mapping[str, Any] | None) -> str:
    """file:line of an axis, or of the tile that ``values`` have."""
    if axis == "tile":
        rows = [row for row in family.tiles if values and row.tile == values["tile"] and values["dtype"] in row.dtypes]
        return _line(chosen, family, ("tiles",), family.tiles.index(rows[0]) if rows else None)
    if axis == "mask":
        return _line(chosen, family, ("masks", values["mask_impl"]) if values else ("masks",))
    return _line(chosen, family, ("axes", axis))


def _line(chosen: Dialect, family: Family, path: tuple[str, ...], item: int | None = None) -> str:
    """Where a field of a family is written, as ``matrix/tables/dialects/FILE:LINE``."""
    field = _table(chosen.name).get("families").get(family.name)
    for name in path:
        field = field.get(name)
    if item is not None:
        field = field.items()[item]
    return f"{field.file.relative_to(TABLES.parent.parent)}:{field.line}"


@functools.cache
def _table(name: str) -> Field:
    return dialect_table(TABLES / "dialects" / f"{name}.yaml")
