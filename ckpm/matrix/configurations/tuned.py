"""A custom tune configuration (`--tune FILE`): its tiles take the place of all tiles of a dialect's forward family.

The file is the one that upstream's codegen reads from CK_TILE_FMHA_FWD_CUSTOM_TUNE_CONFIG_FILE (rocm-libraries pull
request 11298). As there, unknown fields are ignored, and the words of filters are the codegen's own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from ckpm.base.tablefile import Record, Table, read_table
from ckpm.matrix.dialects import Dialect, check_arch
from ckpm.matrix.families import SLOT, Family, TilePlace, parse_tile
from ckpm.matrix.keys import Tile
from ckpm.matrix.problems.serving import padding
from ckpm.matrix.rule import Rule

FAMILY = "fwd"
_TILE_RULE = "qr_and_qr_async_take_128_row_tiles"  # upstream's check_hdim_tile
_OCCUPANCY = "[_o{occupancy}]"
_PADS = ("spad", "skpad", "dpad", "dvpad")
_FILTERS = (
    *("mode", "mask", "bias", "lse", "dropout", "logits", "qscale", "vlayout", "skip", "sink", "trload"),
    *_PADS,
)


class _Relaxed(Record, frozen=True, forbid_unknown_fields=False):
    disable_check_hdim_tile: bool = False


class TuneConfiguration(Record, frozen=True, forbid_unknown_fields=False):
    """The record of a tune configuration. ``tiles`` maps a dtype and "HDIM,HDIMV" to rows of F_bm0 to F_occupancy."""

    target: str
    tiles: dict[str, dict[str, tuple[dict[str, Any], ...]]]
    dtypes: tuple[str, ...] = ()
    filters: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    relax_rules: _Relaxed = _Relaxed()


def take_tuned(chosen: Dialect, file: Path) -> Dialect:
    """The dialect with the tiles, filters and relaxed rules of a tune configuration. Raises TableError."""
    table = read_table(file, TuneConfiguration)
    configuration, family = table.record, chosen.family(FAMILY)
    traits = family.archs.get(check_arch(configuration.target).name)
    if not traits:
        raise table.fail(f"dialect {chosen.name} has no kernels of {FAMILY} for this arch", "target")
    rules = tuple(
        rule
        for rule in family.rules
        if not (configuration.relax_rules.disable_check_hdim_tile and rule.name == _TILE_RULE)
    )
    own = dataclasses.replace(
        family,
        archs=dict.fromkeys(family.archs, traits),  # the target decides, whatever arch is listed
        tiles=_tiles(table, family, traits[0]),
        tile_constraints={},
        rules=(*rules, _filter_rule(table)),
    )
    return dataclasses.replace(chosen, families=chosen.families.with_family(own))


def _tiles(table: Table[TuneConfiguration], family: Family, trait: str) -> dict[TilePlace, tuple[Tile, ...]]:
    configuration = table.record
    places: dict[TilePlace, tuple[Tile, ...]] = {}
    for dtype, by_head_dims in configuration.tiles.items():
        table.demand_known(dtype, map(str, family.values("dtype")), "tiles", dtype)
        for head_dims, rows in by_head_dims.items():
            hdim_q, comma, hdim_v = head_dims.partition(",")
            if not (comma and hdim_q.strip().isdigit() and hdim_v.strip().isdigit()):
                raise table.fail(f"'{head_dims}' is not HDIM,HDIMV, such as 128,128", "tiles", dtype, head_dims)
            tiles = tuple(
                _tile(table, family, ("tiles", dtype, head_dims, index), row) for index, row in enumerate(rows)
            )
            if [tile.bm0 for tile in tiles] != sorted(tile.bm0 for tile in tiles):
                raise table.fail("tiles must be in ascending order of F_bm0", "tiles", dtype, head_dims)
            if not configuration.dtypes or dtype in configuration.dtypes:
                places[trait, dtype, int(hdim_q), int(hdim_v)] = tiles
    return places


def _tile(table: Table[TuneConfiguration], family: Family, path: tuple[str | int, ...], row: Mapping[str, Any]) -> Tile:
    numbers: dict[str, int] = {}
    for slot in SLOT.findall(family.tile_grammar):
        number = row.get(f"F_{slot}")
        if type(number) is not int:
            raise table.fail(f"F_{slot} must be a whole number, not {number!r}", *path)
        numbers[slot] = number
    constraint = row.get("cpp_constraint", "") or "always"
    if not isinstance(constraint, str):
        raise table.fail("cpp_constraint must be text, a condition in C++", *path)
    grammar = family.tile_grammar.replace(_OCCUPANCY, "" if numbers["occupancy"] == -1 else _OCCUPANCY[1:-1])
    word = SLOT.sub(lambda slot: str(numbers[slot[1]]), grammar)
    tile = parse_tile(family.tile_grammar, word, constraint)
    if tile is None:
        raise table.fail(f"{word} is not a tile: its numbers are 0 to 999999, F_occupancy may be -1", *path)
    return tile


def _filter_rule(table: Table[TuneConfiguration]) -> Rule:
    """The rule that excludes what a configuration's filters leave out. An empty list filters nothing."""
    for name in table.record.filters:
        table.demand_known(name, _FILTERS, "filters", name)
    filters = {name: allowed for name, allowed in table.record.filters.items() if allowed}
    fields = tuple(dict.fromkeys("pad" if name in _PADS else name for name in filters))

    def excludes(mask_impl: str, *values: Any) -> bool:
        own = dict(zip(fields, values, strict=True))
        return any(_codegen_word(name, own, mask_impl) not in allowed for name, allowed in filters.items())

    reason = "the tune configuration's filters leave it out"
    source = str(table.root.file)
    return Rule(
        "tune_configuration_filters", ("mask_impl", *fields), reason, source, contradiction="", excludes=excludes
    )


def _codegen_word(name: str, values: Mapping[str, Any], mask_impl: str) -> str:
    """The codegen's own word for a field's value: t or f for a truth, s_no and s_mask for simplified masks."""
    if name in _PADS:
        return "t" if name.removesuffix("pad") in padding(values["pad"]) else "f"
    value = values[name]
    if isinstance(value, bool):
        return "t" if value else "f"
    return f"s_{value}" if name == "mask" and mask_impl == "simplified" else str(value)
