"""Write kernel names from a key's fields by the dialect's grammar, and parse them.

The grammar is a line such as ``fmha_batch_prefill_d{hdim_q}_{dtype}_{mode}_{tile}_...``; each field is written as its
word (table ``words``) or as its own text.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import getitem, itemgetter
from typing import Any

from ckpm.base.errors import NameSyntaxError
from ckpm.matrix.families import NUMBER, ROUND, SLOT, Axis, Family, Value, parse_tile, tile_pattern
from ckpm.matrix.keys import KEY_FIELDS, Key, Tile


def writer(family: Family, fields: Sequence[str]) -> Callable[[Sequence[Any]], str]:
    """Return a function from the values of ``fields``, in their order, to the kernel's name.

    The function runs for every key: it makes one table look-up for each slot and one join. The literal text before a
    slot is part of the slot's words. Tiles must be in the family's table.
    """
    *parts, tail = SLOT.split(family.grammar)
    literals, slots = parts[::2], parts[1::2]
    tables: list[dict[Any, str]] = []
    for literal, slot in zip(literals, slots, strict=True):
        if slot == "tile":
            tables.append({tile: literal + tile.word for tiles in family.tiles.values() for tile in tiles})
        else:
            slot_words = family.spellings.get(slot, {})
            tables.append({value: _join(literal, slot_words.get(value, str(value))) for value in family.values(slot)})
    pick = itemgetter(*(fields.index(slot) for slot in slots))

    def write(values: Sequence[Any]) -> str:
        return "".join(map(getitem, tables, pick(values))) + tail

    return write


def _join(literal: str, word: str) -> str:
    """Join text and word; with an empty word the text loses the separator at its end."""
    return literal + word if word else literal.removesuffix("_")


def make_key(family: Family, values: Mapping[str, Any], name: str) -> Key:
    """Make a key from the values of its fields, with mask_impl if the family has masks."""
    fields = {field: values[field] for field in KEY_FIELDS if field in values}
    return Key(**{**fields, "name": name, "family": family.name, "mask_impl": values.get("mask_impl", "")})


def parse(family: Family, name: str, mask_impl: str = "simplified") -> dict[str, Any]:
    """The axis values that a kernel name spells, also if the matrix has no such kernel.

    ``nmask`` is a word of both mask sets: then ``mask_impl`` decides, unless the pipeline has one set only. Other words
    are of one set (``mask`` of the simplified set, ``mc`` and ``mg`` of the generic set). A tile that is not in the
    tables gets ``when='always'``. An arch trait that some versions of upstream write is read as the dialect's own.

    Raises NameSyntaxError, with the field and the expected words, if the name doesn't fit the grammar.
    """
    patterns = _patterns(family)
    match = re.fullmatch("".join(patterns), name)
    if match is None:
        raise NameSyntaxError(_explain(family, patterns, name))
    values: dict[str, Any] = {slot: _read(family, slot, match[slot]) for slot in SLOT.findall(family.grammar)}
    values.setdefault("arch_trait", family.values("arch_trait")[0])
    values["arch_trait"] = family.own_trait(values["arch_trait"], values.get("pipeline", ""))
    if family.masks:
        mask_impl = family.own_masks(values.get("pipeline", "")) or mask_impl
        if values["mask"] not in family.masks[mask_impl]:
            mask_impl = next(impl for impl, masks in family.masks.items() if values["mask"] in masks)
        values["mask_impl"] = mask_impl
    _set_tile(family, values)
    for axis in (*family.axes, *(axis for block in family.pipelines for axis in block.axes)):
        _complete(axis, values)
    for field in family.fields:
        if field not in values:  # a field without a slot has one value
            values[field] = family.values(field)[0]
    return values


def own_name(families: Iterable[Family], name: str) -> str:
    """Replace the arch trait that some versions of upstream write by the dialect's own. Other names are unchanged."""
    for family in families:
        if not any(block.also_written for block in family.pipelines):
            continue
        if match := re.fullmatch("".join(_patterns(family)), name):
            start, end = match.span("arch_trait")
            return name[:start] + family.own_trait(match["arch_trait"], match["pipeline"]) + name[end:]
    return name


def short_name(name: str) -> str:
    """The name as tables of kernels print it: without batch prefill's family, and what follows from kM0 x kN0."""
    name = re.sub(r"_r\d+x\d+x\d+_r\d+x\d+x\d+_w\d+x\d+x\d+_w\d+x\d+x\d+", "", name)
    return re.sub(r"_b(\d+x\d+)(?:x\d+){4}", r"_b\1", name.removeprefix("fmha_batch_prefill_"))


def names_with(text: str, names: Iterable[str]) -> list[str]:
    """The names whose whole or short form is the text; if there is none, those that contain it."""
    forms = [(name, short_name(name)) for name in names]
    whole = [name for name, short in forms if text in (name, short)]
    return whole or [name for name, short in forms if text in name or text in short]


def _complete(axis: Axis, values: dict[str, Any]) -> None:
    """Add the fields of an axis that the name doesn't spell, from the first step with the spelled values."""
    spelled = [(i, name) for i, name in enumerate(axis.fields) if name in values]
    if spelled and len(spelled) < len(axis.fields):
        for step in axis.values:
            if all(step[i] == values[name] for i, name in spelled):
                values |= {name: value for name, value in zip(axis.fields, step, strict=True) if name != ROUND}
                return


def _field_words(family: Family, slot: str) -> tuple[str, ...]:
    """The patterns of a slot's words, the longest first: ``psskddv`` is tried before ``pssk``."""
    if slot == "tile":
        return (tile_pattern(family.tile_grammar),)
    slot_words = family.spellings.get(slot, {})
    values = {*family.values(slot), *slot_words}
    if not slot_words and all(isinstance(value, int) and not isinstance(value, bool) for value in values):
        return (NUMBER,)
    return tuple(sorted((re.escape(slot_words.get(value, str(value))) for value in values), key=lambda w: (-len(w), w)))


@functools.lru_cache(maxsize=64)
def _patterns(family: Family) -> tuple[str, ...]:
    """The grammar as regular expressions, one a part: literal text and slots alternate."""
    table = {slot: _field_words(family, slot) for slot in SLOT.findall(family.grammar)}
    parts = SLOT.split(family.grammar)
    patterns = []
    for index, part in enumerate(parts):
        if index % 2 == 0:
            optional = index + 1 < len(parts) and "" in table[parts[index + 1]]
            patterns.append(re.escape(part[:-1]) + "_?" if optional else re.escape(part))
        else:
            patterns.append(f"(?P<{part}>{'|'.join(table[part])})")
    return tuple(patterns)


def _read(family: Family, slot: str, word: str) -> Value | Tile:
    if slot == "tile":
        tile = parse_tile(family.tile_grammar, word)
        assert tile is not None  # the pattern has matched
        return tile
    for value, written in family.spellings.get(slot, {}).items():
        if written == word:
            return value
    return int(word) if word.isdigit() else word


def _set_tile(family: Family, values: dict[str, Any]) -> None:
    """Set the tile of the family's table, and with it a head dim that the name doesn't spell."""
    word = values["tile"].word if "tile" in values else None  # None: the family has one tile
    for (trait, dtype, hdim_q, hdim_v), tiles in family.tiles.items():
        if (trait, dtype, hdim_q) == (values["arch_trait"], values["dtype"], values["hdim_q"]):
            for tile in tiles:
                if word in (None, tile.word):
                    values |= {"tile": tile, "hdim_v": hdim_v}
                    return
    tile = values.setdefault("tile", Tile())
    values.setdefault("hdim_v", tile.bn1 or tile.bhdv or tile.bdv or values["hdim_q"])


def _explain(family: Family, patterns: tuple[str, ...], name: str) -> str:
    for count in range(len(patterns), 0, -1):
        if match := re.match("".join(patterns[:count]), name):
            break
    else:
        count, match = 0, re.match("", name)
    rest = name[match.end() if match else 0 :]
    where = f"after '{name[: len(name) - len(rest)]}'" if rest != name else "at its start"
    if count == len(patterns):
        expected = "the end"
    elif count % 2:
        slot = SLOT.split(family.grammar)[count]
        expected = f"{slot} ({', '.join(w.replace(chr(92), '') for w in _field_words(family, slot))})"
        expected = "a tile (b..x.._r.._r.._w.._w..)" if slot == "tile" else expected
    else:
        expected = f"'{SLOT.split(family.grammar)[count]}'"
    return (
        f"'{name}' is not a {family.name} name of this dialect: {where}, expected {expected}, "
        f"found '{rest or 'the end'}'. The grammar is {family.grammar}"
    )
