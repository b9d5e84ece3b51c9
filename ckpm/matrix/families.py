"""The family of kernels in one dialect: axes, tiles, pipelines, rules, receipts, name grammar. See family_tables.py.

The kernels of a family are the product of the axes in ``order``, outermost loop first. If the family has ``pipelines``,
the axes of each block follow, with its rows innermost. Upstream's codegen loops in this way.
An axis is a field of the key, or several written together (``hdim_q hdim_v``) whose values are lists.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ckpm.matrix.keys import CHOICES, Tile
from ckpm.matrix.rule import Rule

Value = str | int | bool
Constraint = Mapping[str, tuple[Value, ...]]  # field -> the values it may have
TilePlace = tuple[str, str, int, int]  # arch trait, dtype, hdim_q, hdim_v

MASK_IMPLS = CHOICES["mask_impl"]
REQUEST_FIELDS = ("arch_trait", "receipt", "mask_impl")  # bound by the request, before the first axis

# An axis without a field of the key. Upstream lists some tiles ahead of others for all head dims, so it goes over the
# head dims in rounds. A kernel of several rounds keeps its first position.
ROUND = "round"

SLOT = re.compile(r"\{(\w+)\}")
NUMBER = "(?:0|[1-9][0-9]{0,5})"  # as upstream writes numbers: no leading zeros, so that a name has one spelling


@dataclass(frozen=True, slots=True)
class Axis:
    """One loop: the fields it binds and their values, one tuple a step."""

    fields: tuple[str, ...]
    values: tuple[tuple[Value, ...], ...]

    @property
    def name(self) -> str:
        return " ".join(self.fields)


@dataclass(frozen=True, slots=True)
class FamilyRow:
    """A pipeline: ``values`` of the block's row fields, for keys that ``constraint`` allows."""

    constraint: Constraint
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Pipelines:
    """A block of pipelines with loops of its own: the product of ``axes``, then rows, for keys of ``constraint``.

    ``mask_impl`` names the mask set if the block has one for every request, else it is "". ``also_written`` are other
    arch traits at the end of these kernels' names in some versions of upstream.
    """

    name: str
    constraint: Constraint
    axes: tuple[Axis, ...]
    row_fields: tuple[str, ...]
    rows: tuple[FamilyRow, ...]
    mask_impl: str
    also_written: tuple[str, ...] = ()

    def holds(self, values: Mapping[str, Any]) -> bool:
        """Return True if the block has a pipeline with these values, for any receipt if they have none."""
        own = tuple(values[name] for name in self.row_fields)
        return (
            fits(self.constraint, values)
            and all(tuple(values[name] for name in axis.fields) in axis.values for axis in self.axes)
            and any(row.values == own and fits(row.constraint, values) for row in self.rows)
        )


@dataclass(frozen=True, slots=True, eq=False)  # equality is identity, so that a family can be a cache's key
class Family:
    """A kernel family in one dialect.

    ``archs`` maps each arch that has kernels to their arch traits, ``tiles`` an arch trait, dtype and (hdim_q, hdim_v)
    to tiles, both in dispatch order; ``tile_constraints`` has the constraints of tiles, by tile word, that only some
    of these keys have. ``receipts`` maps a receipt to constraints of which a key must satisfy one; a missing receipt
    has the constraints of ``default_receipt``.
    """

    name: str
    archs: Mapping[str, tuple[str, ...]]
    absent: str
    grammar: str
    tile_grammar: str
    axes: tuple[Axis, ...]
    pipelines: tuple[Pipelines, ...]
    masks: Mapping[str, tuple[str, ...]]
    spellings: Mapping[str, Mapping[Value, str]]
    tiles: Mapping[TilePlace, tuple[Tile, ...]]
    tile_constraints: Mapping[TilePlace, Mapping[str, Constraint]]
    rules: tuple[Rule, ...]
    receipts: Mapping[int, tuple[Constraint, ...]]
    default_receipt: tuple[Constraint, ...]

    def constraints(self, receipt: int) -> tuple[Constraint, ...]:
        """The constraints of a receipt; without a constraint it keeps no kernel."""
        return self.receipts.get(receipt, self.default_receipt)

    def tiles_of(self, arch_trait: str, dtype: str, hdim_q: int, hdim_v: int) -> tuple[Tile, ...]:
        return self.tiles.get((arch_trait, dtype, hdim_q, hdim_v), ())

    def tile_constraint(self, table_key: TilePlace, tile: Tile) -> Constraint:
        """The values that other fields of a key with this tile must have."""
        return self.tile_constraints.get(table_key, {}).get(tile.word, {})

    @property
    def receipt_rules(self) -> tuple[Rule, ...]:
        """The rules that hold for some receipts only."""
        return tuple(rule for rule in self.rules if "receipt" in rule.fields)

    def own_masks(self, pipeline: str) -> str:
        """The mask set that a pipeline has for every request, "" if it has the requested set."""
        for block in self.pipelines:
            if block.mask_impl and any(pipeline in row.values for row in block.rows):
                return block.mask_impl
        return ""

    def own_trait(self, arch_trait: str, pipeline: str) -> str:
        """The arch trait of a pipeline's kernels if a version of upstream writes ``arch_trait`` for it."""
        for block in self.pipelines:
            if arch_trait in block.also_written and any(pipeline in row.values for row in block.rows):
                return str(block.constraint["arch_trait"][0])
        return arch_trait

    def values(self, field: str) -> tuple[Value, ...]:
        """Every value of a field in any block, in the order of the table; masks of both sets."""
        if field == "arch_trait":
            return tuple(dict.fromkeys(trait for traits in self.archs.values() for trait in traits))
        values: dict[Value, None] = {}
        for axis in (*self.axes, *(axis for block in self.pipelines for axis in block.axes)):
            if field in axis.fields:
                values |= dict.fromkeys(step[axis.fields.index(field)] for step in axis.values)
        for block in self.pipelines:
            if field in block.row_fields:
                values |= dict.fromkeys(row.values[block.row_fields.index(field)] for row in block.rows)
        return tuple(values)

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields that the family binds, in the order of its loops (blocks may loop in an order of their own)."""
        inner: tuple[str, ...] = ()
        if self.pipelines:
            first = self.pipelines[0]
            inner = (*(name for axis in first.axes for name in axis.fields), *first.row_fields)
        return tuple(name for name in (*(name for axis in self.axes for name in axis.fields), *inner) if name != ROUND)


def tile_pattern(grammar: str) -> str:
    """A regular expression for the family's tile words.

    ``[_o{occupancy}]`` is written unless occupancy is -1, ``_o{occupancy}`` always.
    """
    return "".join(
        f"(?:{_slots(part[1:-1])})?" if part.startswith("[") else _slots(part, occupancy=f"(?:-1|{NUMBER})")
        for part in re.split(r"(\[[^\]]*\])", grammar)
    )


def _slots(text: str, occupancy: str = NUMBER) -> str:
    return "".join(
        (occupancy if part == "occupancy" else NUMBER) if i % 2 else re.escape(part)
        for i, part in enumerate(SLOT.split(text))
    )


@functools.lru_cache(maxsize=4096)  # many rows have the same tile, which is then one object
def parse_tile(grammar: str, word: str, when: str = "always") -> Tile | None:
    """The tile that a word spells, None if it doesn't fit the grammar."""
    if not re.fullmatch(tile_pattern(grammar), word):
        return None
    numbers = [int(number) for number in re.findall(r"-?[0-9]+", word)]
    return Tile(**dict(zip(SLOT.findall(grammar), numbers, strict=False)), when=when, word=word)


def tile_place(values: Mapping[str, Any]) -> TilePlace:
    """The key of the table of tiles for a key's values."""
    return values["arch_trait"], values["dtype"], values["hdim_q"], values["hdim_v"]


def fits(constraint: Constraint, values: Mapping[str, Any]) -> bool:
    """Return True if a constraint allows all values (field name to value). A missing field is allowed."""
    return all(values[name] in allowed for name, allowed in constraint.items() if name in values)
