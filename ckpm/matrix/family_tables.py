"""Read and check the table of a kernel family. Every error names file, line and field."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import re
from collections.abc import Callable, Mapping, Sequence

from ckpm.base.display import one_line
from ckpm.base.errors import did_you_mean
from ckpm.base.tablefile import Field
from ckpm.matrix.families import (
    MASK_IMPLS,
    NUMBER,
    REQUEST_FIELDS,
    ROUND,
    SLOT,
    Axis,
    Constraint,
    Family,
    FamilyRow,
    Pipelines,
    TilePlace,
    Value,
    parse_tile,
)
from ckpm.matrix.keys import CHOICES, KEY_FIELDS, PAGE_STEP, TILE_CONDITIONS, TILE_FIELDS, TILE_NUMBERS, Tile
from ckpm.matrix.rule import Rule
from ckpm.matrix.rules import RULES

_TABLE_FIELDS = (
    "archs", "absent", "name", "tile", "order", "axes", "masks", "spellings", "tiles", "pipelines", "rules", "receipts",
)  # fmt: skip
_DERIVED = ("name", "family", "tile", *REQUEST_FIELDS)
_LARGEST_PAGE = 2**30  # the largest power of two that the kernels' 32-bit argument holds
# lengths of a block; waves divide each one among them, in steps of an MFMA instruction
_DIVIDED = ("bm0", "bn0", "bk0", "bn1", "bk1")


def _read_word(name: str, choices: Sequence[str], field: Field) -> str:
    """Read a word of an axis, or of a tile's condition."""
    if (word := field.text()) not in choices:
        listed = f"Known: {', '.join(choices)} (ckpm/matrix/keys.py)"
        raise field.fail(f"{name} '{one_line(word, 80)}' is unknown{did_you_mean(word, choices)} {listed}")
    return word


def _read_count(field: Field) -> int:
    if (number := field.integer()) < 0:
        raise field.fail(f"must be a whole number >= 0, not {number}")
    return number


def _read_page(field: Field) -> int:
    if (size := _read_count(field)) & (size - 1):
        raise field.fail(f"a page has a power of two of tokens, not {size}; 0 is any multiple of {PAGE_STEP}")
    if size > _LARGEST_PAGE:
        raise field.fail(f"a page has at most {_LARGEST_PAGE} tokens, not {size}: the kernel's argument has 32 bits")
    return size


_READERS: Mapping[str, Callable[[Field], Value]] = {
    **{name: functools.partial(_read_word, name, choices) for name, choices in CHOICES.items()},
    **dict.fromkeys(("hdim_q", "hdim_v", "dpad", "dvpad", "receipt"), _read_count),
    "page_size": _read_page,
    **dict.fromkeys(
        ["logits", "lse", "dropout", "sink", "skip", "trload", "paged_kv", "dbias", "deterministic"], Field.boolean
    ),
}


def read_family(name: str, field: Field, arch_names: Sequence[str], receipt_numbers: Sequence[int]) -> Family:
    """Read a family's table."""
    field.allow(_TABLE_FIELDS)
    axes_alone = _axes_alone(name, field, arch_names)
    _check(axes_alone, field)
    tiles, tile_constraints = _tiles(field.get("tiles"), axes_alone)
    if "tile" not in SLOT.findall(axes_alone.grammar) and any(len(some) > 1 for some in tiles.values()):
        raise field.get("name").fail("a kernel's tile needs a slot {tile} where head dims have several")
    receipts, default_receipt = _receipts(field.get("receipts"), axes_alone, receipt_numbers)
    return dataclasses.replace(
        axes_alone,
        tiles=tiles,
        tile_constraints=tile_constraints,
        rules=tuple(_rule(row, axes_alone) for row in field.get("rules").items()),
        receipts=receipts,
        default_receipt=default_receipt,
    )


def _axes_alone(name: str, field: Field, arch_names: Sequence[str]) -> Family:
    """The family with axes and words, but without tiles, rules and receipts, which are checked against the axes."""
    for arch, trait in field.get("archs").mapping().items():
        if arch not in arch_names:
            raise trait.fail_word(f"'{arch}' is not in archs.yaml", arch, arch_names)
    masks_field, word_tables, pipelines = field.find("masks"), field.find("spellings"), field.find("pipelines")
    masks: Mapping[str, tuple[str, ...]] = {}
    if masks_field:
        masks_field.allow(MASK_IMPLS)
        masks = {impl: masks_field.get(impl).texts() for impl in MASK_IMPLS}
    return Family(
        name=name,
        archs=field.get("archs").map(lambda traits: tuple(trait.text() for trait in _many(traits))),
        absent=field.get("absent").text(),
        grammar=field.get("name").text(),
        tile_grammar=field.get("tile").text(),
        axes=_axes(field.get("order"), field.get("axes"), masks),
        pipelines=tuple(_block(block, table, masks) for block, table in pipelines.mapping().items())
        if pipelines
        else (),
        masks=masks,
        spellings=word_tables.map(_word_table) if word_tables else {},
        tiles={},
        tile_constraints={},
        rules=(),
        receipts={},
        default_receipt=({},),
    )


def _receipts(
    field: Field, family: Family, receipt_numbers: Sequence[int]
) -> tuple[Mapping[int, tuple[Constraint, ...]], tuple[Constraint, ...]]:
    """The constraints of each receipt that has its own, and the constraints of all other receipts."""
    for number, row in field.mapping().items():
        if number != "default" and not re.fullmatch("0|[1-9][0-9]*", number):
            raise row.fail(f"a receipt is a number, or 'default', not '{number}'")
        if number != "default" and int(number) not in receipt_numbers:
            raise row.fail("this receipt is not in selections.yaml")
    constraints = field.map(lambda row: tuple(_receipt_constraint(item, family) for item in _many(row)))
    default = constraints.pop("default", ({},))
    return {int(number): several for number, several in constraints.items()}, default


def _axes(order: Field, table: Field, masks: Mapping[str, tuple[str, ...]]) -> tuple[Axis, ...]:
    """The axes of an order, with their values; ``tile`` and ``mask`` have tables of their own."""
    names = order.texts()
    for key_field in (key_field for name in names for key_field in name.split()):
        if key_field not in ("tile", ROUND) and (key_field not in KEY_FIELDS or key_field in _DERIVED):
            raise order.fail(f"'{key_field}' is not an axis of a key")
    for name, listed in table.mapping().items():
        if name not in names or name == "tile":
            raise listed.fail_word(f"not in the order at {order.file}:{order.line}", name, names)
    axes = []
    for name in names:
        fields = tuple(name.split())
        values = table.find(name)
        if values is None and name not in ("tile", "mask"):
            raise order.fail(f"axis '{name}' has no values in axes")
        if values is not None:
            axes.append(Axis(fields, _steps(fields, values)))
        else:
            every = dict.fromkeys(mask for some in masks.values() for mask in some)
            axes.append(Axis(fields, tuple((mask,) for mask in every) if name == "mask" else ()))
    return tuple(axes)


def _steps(fields: tuple[str, ...], field: Field) -> tuple[tuple[Value, ...], ...]:
    steps: list[tuple[Value, ...]] = []
    for item in field.items():
        parts = [item] if len(fields) == 1 else item.items()
        if len(parts) != len(fields):
            raise item.fail(f"must hold {len(fields)} values ({', '.join(fields)}), not {len(parts)}")
        steps.append(tuple(_READERS.get(name, Field.text)(part) for name, part in zip(fields, parts, strict=True)))
    if len(set(steps)) != len(steps):
        raise field.fail("a value is listed twice")
    return tuple(steps)


def _block(name: str, field: Field, masks: Mapping[str, tuple[str, ...]]) -> Pipelines:
    field.allow(("for", "also_written", "masks", "order", "axes", "rows"))
    rows: list[FamilyRow] = []
    row_fields: tuple[str, ...] | None = None
    for item in field.get("rows").items():
        own = {key: value for key, value in item.mapping().items() if key != "for"}
        if row_fields is None:
            row_fields = tuple(own)
        if tuple(own) != row_fields:
            raise item.fail(f"must have {', '.join(row_fields)} in this order, as the first row has")
        constraint = _constraint(item.find("for"))
        choices = [[_READERS.get(key, Field.text)(v) for v in _many(value)] for key, value in own.items()]
        rows += [FamilyRow(constraint, values) for values in itertools.product(*choices)]
    return Pipelines(
        name=name,
        constraint=_constraint(field.find("for")),
        axes=_axes(field.get("order"), field.get("axes"), masks),
        row_fields=row_fields or (),
        rows=tuple(rows),
        mask_impl=_mask_impl(field.find("masks")),
        also_written=also_written.texts() if (also_written := field.find("also_written")) else (),
    )


def _mask_impl(field: Field | None) -> str:
    if field is None:
        return ""
    if field.text() not in MASK_IMPLS:
        raise field.fail(f"must be one of {', '.join(MASK_IMPLS)}, not '{field.text()}'")
    return field.text()


def _many(field: Field) -> list[Field]:
    return field.items() if isinstance(field.value, list) else [field]


def _constraint(field: Field | None) -> Constraint:
    if field is None:
        return {}
    return {
        name: tuple(_READERS.get(name, Field.text)(item) for item in values.items())
        for name, values in field.mapping().items()
    }


def _word_table(field: Field) -> Mapping[Value, str]:
    read: dict[str, Value] = {"true": True, "false": False}
    return {read.get(value, int(value) if value.isdigit() else value): w.text() for value, w in field.mapping().items()}


def _check(family: Family, field: Field) -> None:
    """Check that each field is bound once by every block, that tiles follow their fields, that choices have a slot."""
    order = [name for axis in family.axes for name in axis.fields]
    if len(set(family.fields)) != len(family.fields):
        raise field.get("order").fail("an axis is listed twice")
    for needed in ("dtype", "hdim_q", "hdim_v", "mode", "tile"):
        if needed not in order:
            raise field.get("order").fail(f"axis '{needed}' is missing; every key has one")
    if not any({"hdim_q", "hdim_v"} <= set(axis.fields) for axis in family.axes):
        raise field.get("order").fail("hdim_q and hdim_v are one axis, 'hdim_q hdim_v'")
    if order.index("tile") < max(order.index(name) for name in ("dtype", "hdim_q", "hdim_v")):
        raise field.get("order").fail("tile depends on dtype and head dims and must come after them")
    inner = set(family.fields) - set(order)
    for block in family.pipelines:
        block_field = field.get("pipelines").get(block.name)
        own = {*(name for axis in block.axes for name in axis.fields), *block.row_fields}
        if own != inner:
            raise block_field.fail(f"binds {', '.join(sorted(own))}; the first block binds {', '.join(sorted(inner))}")
        names = (*order, *REQUEST_FIELDS, *own)
        for row in (block_field, *block_field.get("rows").items()):
            if constraint := row.find("for"):
                constraint.allow(names)
        if also_written := block_field.find("also_written"):
            if len(block.constraint.get("arch_trait", ())) != 1:
                raise also_written.fail("needs a 'for' with one arch_trait, the one that names end in here")
            if unknown := [trait for trait in block.also_written if trait not in family.values("arch_trait")]:
                raise also_written.fail(f"'{unknown[0]}' is not an arch trait of this family")
    slots = SLOT.findall(family.grammar)
    if "arch_trait" not in slots and any(len(traits) > 1 for traits in family.archs.values()):
        raise field.get("name").fail("an arch with several arch traits needs a slot {arch_trait}")
    for slot in slots:
        if slot not in (*family.fields, "arch_trait"):
            raise field.get("name").fail_word(f"slot '{slot}' is not an axis", slot, family.fields)
        if slots.count(slot) > 1:
            raise field.get("name").fail(f"slot '{slot}' is written twice")
    for axis in (*family.axes, *(axis for block in family.pipelines for axis in block.axes)):
        if axis.name not in ("tile", ROUND) and len(axis.values) > 1 and not set(axis.fields) & set(slots):
            raise field.get("name").fail(f"axis '{axis.name}' has several values and needs a slot {{{axis.fields[0]}}}")
    if unknown := [name for name in family.spellings if name not in (*family.fields, "arch_trait")]:
        raise field.get("spellings").get(unknown[0]).fail_word("no axis of that name", unknown[0], family.fields)
    if unknown := [name for name in SLOT.findall(family.tile_grammar) if name not in TILE_NUMBERS]:
        raise field.get("tile").fail_word(f"'{unknown[0]}' is not a number of a tile", unknown[0], TILE_FIELDS)


def _tiles(
    field: Field, family: Family
) -> tuple[Mapping[TilePlace, tuple[Tile, ...]], Mapping[TilePlace, Mapping[str, Constraint]]]:
    """The tiles of arch trait -> "dtype dtype" -> "hdim_qxhdim_v" -> tile words, flattened, and their constraints."""
    field.allow(family.values("arch_trait"))  # type: ignore[arg-type]
    tiles: dict[TilePlace, tuple[Tile, ...]] = {}
    constraints: dict[TilePlace, Mapping[str, Constraint]] = {}
    rows = (
        (trait, dtypes, by_hdim, hdims, tile_words)
        for trait, by_dtype in field.mapping().items()
        for dtypes, by_hdim in by_dtype.mapping().items()
        for hdims, tile_words in by_hdim.mapping().items()
    )
    for trait, dtypes, by_hdim, hdims, tile_words in rows:
        hdim_q, hdim_v = _head_dims(hdims, tile_words, family)
        listed, constrained = _tile_list(tile_words, family)
        for dtype in dtypes.split():
            if dtype not in family.values("dtype"):
                raise by_hdim.fail_word(f"'{dtype}' is not a value of the axis", dtype, family.values("dtype"))
            tile_key = (trait, dtype, hdim_q, hdim_v)
            tiles[tile_key] = listed
            if constrained:
                constraints[tile_key] = constrained
    return tiles, constraints


def _head_dims(text: str, field: Field, family: Family) -> tuple[int, int]:
    match = re.fullmatch(f"({NUMBER})x({NUMBER})", text)
    if not match:
        raise field.fail(f"head dims are written hdim_qxhdim_v, e.g. 128x128, not '{text}'")
    pairs = next(axis for axis in family.axes if "hdim_q" in axis.fields)
    head_dims = (int(match[1]), int(match[2]))
    if head_dims not in _pairs(pairs):
        raise field.fail(f"not among the values of axis '{pairs.name}'")
    return head_dims


def _tile_list(field: Field, family: Family) -> tuple[tuple[Tile, ...], Mapping[str, Constraint]]:
    """The tiles of a list, and the constraints of tiles by tile word."""
    tiles = tuple(_tile(item, family) for item in field.items())
    if len({tile.word for tile in tiles}) != len(tiles):
        raise field.fail("a tile is listed twice")
    constraints = {
        tile.word: _tile_constraint(item.get("for"), family)
        for tile, item in zip(tiles, field.items(), strict=True)
        if isinstance(item.value, dict) and item.find("for")
    }
    return tiles, constraints


def _tile_constraint(field: Field, family: Family) -> Constraint:
    """The constraint of a tile, on fields that are bound before the tile."""
    order = [name for axis in family.axes for name in axis.fields]
    field.allow(order[: order.index("tile")])
    return _known_constraint(field, family)


def _pairs(axis: Axis) -> set[tuple[Value, Value]]:
    """The (hdim_q, hdim_v) pairs of the axis that binds them."""
    q, v = axis.fields.index("hdim_q"), axis.fields.index("hdim_v")
    return {(step[q], step[v]) for step in axis.values}


def _tile(field: Field, family: Family) -> Tile:
    when = None
    word = field
    if isinstance(field.value, dict):
        field.allow(("tile", "when", "for"))
        word, when = field.get("tile"), field.find("when")
    condition = _read_word("condition", TILE_CONDITIONS, when) if when else "always"
    tile = parse_tile(family.tile_grammar, word.text(), condition)
    if tile is None:
        raise word.fail(f"'{word.text()}' is not a tile; the family writes them {family.tile_grammar}")
    for name in _DIVIDED:
        length, waves, step = (getattr(tile, name.replace("b", letter)) for letter in "brw")
        if length % (waves * step or 1):
            raise word.fail(f"no such block: {name} {length} is not a multiple of {waves} x {step}, its waves")
    waves0, waves1 = (math.prod(getattr(tile, f"r{axis}{gemm}") for axis in "mnk") for gemm in "01")
    if waves1 % (waves0 or 1):  # a static_assert of CK's TileFmhaShape
        raise word.fail(f"no such block: the {waves1} waves of gemm 1 are not a multiple of gemm 0's {waves0}")
    return tile


def _rule(field: Field, family: Family) -> Rule:
    if field.text() not in RULES:
        raise field.fail(f"no rule '{field.text()}' in ckpm/matrix/rules.py{did_you_mean(field.text(), list(RULES))}")
    rule = RULES[field.text()]
    if missing := [name for name in rule.fields if name not in (*family.fields, *REQUEST_FIELDS)]:
        raise field.fail(f"rule '{rule.name}' reads {', '.join(missing)}, which this family has no axis for")
    return rule


def _receipt_constraint(field: Field, family: Family) -> Constraint:
    names = (*family.fields, "arch_trait")
    field.allow(name for name in names if name != "tile")
    return _known_constraint(field, family)


def _known_constraint(field: Field, family: Family) -> Constraint:
    """A constraint whose values are all among the axes' own."""
    constraint = _constraint(field)
    for name, allowed in constraint.items():
        values = family.values(name)
        if unknown := [value for value in allowed if value not in values]:
            raise field.get(name).fail_word(f"'{unknown[0]}' is not a value of the axis", unknown[0], values)
    return constraint
