"""Explain why a kernel is in the matrix or in a selection, or why it is left out, for ``why`` and ``show``."""

from __future__ import annotations

import contextlib
import functools
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ckpm.base.errors import NameSyntaxError
from ckpm.base.tablefile import Field
from ckpm.matrix.dialects import (
    DEFAULT_FAMILY,
    TABLES,
    Dialect,
    dialect,
    dialect_names,
    feature_table,
    features,
    receipts,
    with_features,
)
from ckpm.matrix.enumeration import enumerate_names, keeps
from ckpm.matrix.families import Constraint, Family, Pipelines, Value, fits, tile_place
from ckpm.matrix.keys import ANY_PAGE, PAGE_STEP, Key, Tile, takes_pages
from ckpm.matrix.names import make_key, names_with, own_name, parse
from ckpm.matrix.problems.problem import is_tile_taken
from ckpm.matrix.rule import broken
from ckpm.matrix.selection import Selection, absences, conditions_of, select, shard_of


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason that keeps a kernel out.

    ``kind`` is axis, tile or rule (no such kernel is in the matrix), masks, family, arch, receipt, condition or shard
    (the selection leaves it out). It is dispatch if no such device takes the kernel. ``source`` is the file and line of
    the reason.
    """

    kind: str
    name: str
    text: str
    source: str = ""


@dataclass(frozen=True, slots=True)
class ExplainedAxis:
    """An axis value of a kernel, the dialect's other values of the axis, and the file and line of the value."""

    name: str
    value: str
    alternatives: tuple[str, ...]
    location: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """The reasons that keep a kernel out of a selection (none if it is in), its axes, receipts and features.

    ``features`` are the texts of the dialect's features without which the matrix would not have the kernel.
    ``also_written`` are upstream's other spellings of the name, for the selection's archs.
    """

    name: str
    reasons: tuple[Reason, ...]
    axes: tuple[ExplainedAxis, ...]
    receipts: tuple[int, ...]
    features: tuple[str, ...]
    also_written: tuple[str, ...]


def whole_name(chosen: Dialect, text: str, mask_impl: str, families: Sequence[str] = (DEFAULT_FAMILY,)) -> str:
    """The name of the dialect's only kernel with this short name or part; other texts are unchanged.

    ``families`` are searched first. Raises NameSyntaxError for a part of several names.
    """
    ordered = sorted(chosen.all_families(), key=lambda family: family.name not in families)
    for family in ordered:
        with contextlib.suppress(NameSyntaxError):
            parse(family, text, mask_impl)
            return text
    for family in ordered:
        names = dict.fromkeys(
            name for arch in family.archs for name in enumerate_names(family, arch=arch, mask_impl=mask_impl)
        )
        there = names_with(text, names)
        if len(there) > 1:
            raise NameSyntaxError(
                f"'{text}' is a part of {len(there):,} names of {family.name}, e.g. {there[0]}. Write more of the name."
            )
        if there:
            return there[0]
    return text


def find(
    chosen: Dialect, name: str, mask_impl: str, families: Sequence[str] = (DEFAULT_FAMILY,)
) -> tuple[Family, dict[str, Any]]:
    """The family and axis values that a name spells, also if the matrix has no such kernel.

    Raises NameSyntaxError if no family's grammar fits. The message names the kernel of such calls, another dialect
    whose grammar fits, or the position where the name departs from the most similar grammar. ``families`` decide
    between grammars that are as similar.
    """
    problems: dict[tuple[int, bool], NameSyntaxError] = {}
    for family in chosen.all_families():
        try:
            return family, parse(family, name, mask_impl)
        except NameSyntaxError as error:
            problems.setdefault((_alike(family.grammar, name), family.name in families), error)
    if general := next((candidate for candidate in _generals(name) if _fits(chosen, candidate)), None):
        raise NameSyntaxError(f"'{name}' has no kernel of its own: such calls take {general}. Ask for that.")
    fits = {other: _fits(dialect(other), name) for other in dialect_names() if other != chosen.name}
    other = max(fits, key=lambda dialect_name: fits[dialect_name])
    if fits[other]:
        raise NameSyntaxError(f"'{name}' is a name of dialect {other}, not of {chosen.name}. Use --dialect {other}.")
    raise problems[max(problems)]


def _generals(name: str) -> Iterator[str]:
    """Yield the name of the kernel that also takes scales of heads, then its name with pages of any size."""
    general = re.sub(r"kvfp8_(.*)_perhead_", r"kvfp8_\1_pertensor_", name)
    yield general
    page = re.search(r"_ps(\d+)_[bg]load_", name)
    if page and takes_pages(ANY_PAGE, int(page[1])):
        yield general.replace(page[0], f"_psx{PAGE_STEP}_gload_")


def _alike(grammar: str, name: str) -> int:
    """The number of leading characters that a name and a grammar have in common."""
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(grammar, name, strict=False)))


def _fits(candidate: Dialect, name: str) -> int:
    """Return 2 if the dialect has a kernel of this name, 1 if only its grammar allows the name, else 0."""
    fit = 0
    for family in candidate.all_families():
        try:
            values = parse(family, name)
        except NameSyntaxError:
            continue
        fit = max(fit, 1 if outside(candidate, family, values) else 2)
    return fit


def find_key(chosen: Dialect, name: str, mask_impl: str) -> tuple[Family, Key]:
    """The family and key of a kernel's name, short name or part; a NameSyntaxError if the matrix has no such kernel."""
    name = whole_name(chosen, name, mask_impl)
    family, values = find(chosen, name, mask_impl)
    if reasons := outside(chosen, family, values):
        raise NameSyntaxError(f"'{name}' is not a kernel of {chosen.name}: {reasons[0].text}. See `ckpm why NAME`.")
    return family, make_key(family, values, own_name((family,), name))


def outside(chosen: Dialect, family: Family, values: Mapping[str, Any]) -> list[Reason]:
    """The reasons that keep axis values out of the matrix in any selection: unknown values, an unknown tile, rules."""
    reasons = []
    for field in family.fields:
        alternatives = _alternatives(family, field, values)
        if values[field] not in alternatives and field != "tile":
            text = (
                f"{field} '{_text(values[field])}' is not in the table, which has {', '.join(map(_text, alternatives))}"
            )
            reasons.append(Reason("axis", field, text, _location(chosen, family, field, values)))
    tiles = family.tiles_of(*tile_place(values))
    if values["tile"] not in tiles and (values["tile"].word or not reasons):
        word, has = values["tile"].word, ", ".join(map(_text, tiles)) or f"none for {values['arch_trait']}"
        text = f"tile {word} is not in the table for {values['dtype']} d{values['hdim_q']}, which has {has}"
        reasons.append(Reason("tile", word, text, _line(chosen, family, ("tiles",))))
    elif values["tile"] in tiles and (
        violated := _misfits(family.tile_constraint(tile_place(values), values["tile"]), values)
    ):
        limits = "; ".join(f"{name} {_list(allowed)}" for name, allowed in violated.items())
        text = f"tile {values['tile'].word} is only for {limits}"
        reasons.append(Reason("tile", values["tile"].word, text, _location(chosen, family, "tile", values)))
    if not reasons and family.pipelines and not any(block.holds(values) for block in family.pipelines):
        reasons.append(_no_pipeline(chosen, family, values))
    return reasons + [Reason("rule", rule.name, rule.reason, rule.source) for rule in broken(family.rules, values)]


def _against(block: Pipelines, values: Mapping[str, Any]) -> list[str]:
    """The texts of a block's conditions that don't allow a kernel."""
    reasons = [f"for {name} {_list(allowed)}" for name, allowed in _misfits(block.constraint, values).items()]
    for axis in block.axes:
        if tuple(values[name] for name in axis.fields) not in axis.values:
            reasons.append(f"with {axis.name} {_list([' '.join(map(_text, step)) for step in axis.values])}")
    own = tuple(values[name] for name in block.row_fields)
    rows = [row for row in block.rows if row.values == own]
    if not any(fits(row.constraint, values) for row in rows):
        what = ", ".join(f"{name} {_text(value)}" for name, value in zip(block.row_fields, own, strict=True))
        violated = {name: allowed for row in rows for name, allowed in _misfits(row.constraint, values).items()}
        limits = "; ".join(f"{name} {_list(allowed)}" for name, allowed in violated.items())
        reasons.append(f"with {what} only for {limits}" if rows else f"without {what}")
    return reasons


def _misfits(constraint: Constraint, values: Mapping[str, Any]) -> Constraint:
    """The part of a constraint that values don't satisfy."""
    return {name: allowed for name, allowed in constraint.items() if name in values and values[name] not in allowed}


def _no_pipeline(chosen: Dialect, family: Family, values: Mapping[str, Any]) -> Reason:
    """The reason why no block of pipelines holds a kernel, by the conditions of the nearest block."""
    nearest = min(family.pipelines, key=lambda block: len(_against(block, values)))
    text = f"no pipeline serves it; the nearest, {nearest.name}, is {', '.join(_against(nearest, values))}"
    return Reason("axis", nearest.name, text, _line(chosen, family, ("pipelines", nearest.name)))


def _not_built(
    chosen: Dialect, family: Family, receipt: int, values: Mapping[str, Any], others: Sequence[int]
) -> Reason:
    """The reason that a receipt builds no kernel that it keeps: other receipts alone build the pipeline."""
    block = next(block for block in family.pipelines if block.holds(values))
    text = f"receipt {receipt} ({receipts()[receipt]}) doesn't build this pipeline for it; receipts that do: "
    text += ", ".join(map(str, others)) or "none"
    return Reason("receipt", str(receipt), text, _line(chosen, family, ("pipelines", block.name, "rows")))


def _list(values: Sequence[Value]) -> str:
    return "/".join(map(_text, values))


def why(chosen: Dialect, selection: Selection, name: str, compute_units: int | None = None) -> Explanation:
    """Explain why a kernel is in a selection or left out. Raises NameSyntaxError for a name that doesn't parse.

    With ``compute_units`` a tile that dispatch takes on no device of so many is a reason.
    """
    name = whole_name(chosen, name, selection.mask_impl, selection.families)
    family, values = find(chosen, name, selection.mask_impl, selection.families)
    key = make_key(family, values, own_name((family,), name))
    reasons = outside(chosen, family, values)
    in_matrix = not reasons
    if not in_matrix:
        reasons += _features_with(chosen, name)
    if family.masks and values["mask_impl"] not in (selection.mask_impl, family.own_masks(key.pipeline)):
        other = values["mask_impl"]
        reasons.append(Reason("masks", other, f"mask '{key.mask}' is of the {other} masks: use --mask {other}"))
    if family.name not in selection.families:
        text = f"family {','.join(selection.families)} leaves it out: use --family {family.name}"
        reasons.append(Reason("family", family.name, text))
    absent = absences(chosen, replace(selection, families=(family.name,)))
    if len(absent) == len(selection.archs):
        reasons += [Reason("arch", arch, reason) for arch, _, reason in absent]
    elif not any(key.arch_trait in family.archs.get(arch, ()) for arch in selection.archs):
        text = f"it is built for {key.arch_trait}; {', '.join(selection.archs)} has kernels of its own"
        reasons.append(Reason("arch", key.arch_trait, text))
    if not any(fits(constraint, values) for constraint in family.constraints(selection.receipt)):
        reasons += _receipt(chosen, family, selection.receipt, values)
    elif ruled := broken(family.receipt_rules, {**values, "receipt": selection.receipt}):
        reasons += [Reason("receipt", rule.name, rule.reason, rule.source) for rule in ruled]
    elif in_matrix and not keeps(family, selection.receipt, values):
        reasons.append(_not_built(chosen, family, selection.receipt, values, receipts_with(family, key)))
    wanted = conditions_of(chosen, selection)
    reasons += [Reason("condition", label, f"{label} doesn't keep it") for label, keep in wanted if not keep(key)]
    if not reasons and selection.shard:
        index, count = selection.shard
        dealt = shard_of(select(chosen, replace(selection, shard=None)), key.name, count)
        if dealt != index:
            reasons.append(Reason("shard", f"{dealt}/{count}", f"it is in shard {dealt}/{count}, not {index}/{count}"))
    # one block, so that tiles for few blocks are taken
    if compute_units and not is_tile_taken(key.tile.when, 1, 1, 1, compute_units):
        text = f"dispatch takes its tile below 128 compute units, not with {compute_units}"
        reasons.append(Reason("dispatch", key.tile.when, text))
    axes = tuple(_axis(chosen, family, field, values) for field in family.fields)
    brought = tuple(_features_of(chosen, name)) if in_matrix else ()
    spelled = tuple(
        key.name.removesuffix(key.arch_trait) + arch
        for arch in selection.archs
        if family.own_trait(arch, key.pipeline) == key.arch_trait != arch
    )
    return Explanation(key.name, tuple(reasons), axes, receipts_with(family, key), brought, spelled)


def _features_of(chosen: Dialect, name: str) -> Iterator[str]:
    """Yield the dialect's features without which the matrix would not have a kernel."""
    for feature in chosen.features:
        others = with_features(
            other for other in chosen.features if feature not in (other, features()[other].variant_of)
        )
        if _fits(dialect(others), name) < 2:
            yield f"{feature} ({features()[feature].source}): {features()[feature].summary}"


def _features_with(chosen: Dialect, name: str) -> Iterator[Reason]:
    """Yield the features of pull requests that would add a kernel to the dialect."""
    if chosen.features or chosen.name == feature_table().record.base:
        for feature in (own for own, row in features().items() if own not in chosen.features and not row.variant_of):
            wider = with_features({*chosen.features, feature})
            if _fits(dialect(wider), name) == 2:
                text = f"{feature} adds it ({features()[feature].summary}): --dialect {wider}"
                yield Reason("feature", feature, text, features()[feature].source)


def _receipt(chosen: Dialect, family: Family, receipt: int, values: Mapping[str, Any]) -> list[Reason]:
    """The fields of the receipt's nearest constraint that don't allow a kernel, one reason each."""
    entry = str(receipt) if receipt in family.receipts else "default"
    name = f"receipt {receipt} ({receipts()[receipt]})"
    constraints = family.constraints(receipt)
    source = _line(chosen, family, ("receipts", entry))
    if not constraints or all(not allowed for constraint in constraints for allowed in constraint.values()):
        return [Reason("receipt", str(receipt), f"{name} has no {family.name} kernel", source)]
    violated = min((_misfits(constraint, values) for constraint in constraints), key=len)
    return [
        Reason("receipt", str(receipt), f"{name} only has {field} {', '.join(map(_text, allowed))}", source)
        if allowed
        else Reason("receipt", str(receipt), f"{name} has no {family.name} kernel", source)
        for field, allowed in violated.items()
    ]


def receipts_with(family: Family, key: Key) -> tuple[int, ...]:
    """The receipts that keep a key."""
    values = {field: getattr(key, field) for field in (*family.fields, "arch_trait")}
    if family.masks:
        values["mask_impl"] = key.mask_impl
    return tuple(receipt for receipt in receipts() if keeps(family, receipt, values))


def _alternatives(family: Family, field: str, values: Mapping[str, Any]) -> tuple[Value, ...] | tuple[Tile, ...]:
    """All values of a field: of the key's mask set for masks, for its dtype and head dims for tiles."""
    if field == "tile":
        return family.tiles_of(*tile_place(values))
    return family.masks[values["mask_impl"]] if field == "mask" else family.values(field)


def _axis(chosen: Dialect, family: Family, field: str, values: Mapping[str, Any]) -> ExplainedAxis:
    others = tuple(_text(value) for value in _alternatives(family, field, values) if value != values[field])
    return ExplainedAxis(field, _text(values[field]), others, _location(chosen, family, field, values))


def _text(value: Value | Tile) -> str:
    if isinstance(value, Tile):
        return value.word
    return str(value).lower() if isinstance(value, bool) else str(value)


def _location(chosen: Dialect, family: Family, field: str, values: Mapping[str, Any]) -> str:
    """The file:line of an axis, or of the tiles for a kernel's dtype and head dims."""
    if field == "tile":
        dtypes = _table(chosen.name, family.name).get("tiles").find(values["arch_trait"])
        for names in dtypes.mapping() if dtypes else ():
            hdims = f"{values['hdim_q']}x{values['hdim_v']}"
            path = ("tiles", values["arch_trait"], names)
            if values["dtype"] in names.split() and dtypes and dtypes.get(names).find(hdims):
                return _line(chosen, family, (*path, hdims))
        return _line(chosen, family, ("tiles",))
    if field == "mask":
        return _line(chosen, family, ("masks", values["mask_impl"]))
    for axis in family.axes:
        if field in axis.fields:
            return _line(chosen, family, ("axes", axis.name))
    nearest = min(family.pipelines, key=lambda block: len(_against(block, values)))
    axes = [axis.name for axis in nearest.axes if field in axis.fields]
    return _line(chosen, family, ("pipelines", nearest.name, *(("axes", *axes) if axes else ("rows",))))


def _line(chosen: Dialect, family: Family, path: tuple[str, ...]) -> str:
    """The location of a family's field, as ``matrix/dialects/FILE:LINE``."""
    field = _table(chosen.name, family.name)
    for name in path:
        field = field.get(name)
    return f"{field.file.relative_to(TABLES.parent)}:{field.line}"


@functools.cache
def _table(chosen: str, family: str) -> Field:
    return dialect(chosen).table(family)
