"""Kernel names: written from a key's fields by the dialect's grammar, and parsed back.

The grammar is a line such as ``fmha_batch_prefill_d{hdim_q}_{dtype}_{mode}_{tile}_...``; each field is written as its
word (table ``words``) or as its own text.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from operator import getitem, itemgetter
from typing import Any

from matrix.dialects import Family, Value
from matrix.errors import NameSyntaxError
from matrix.keys import KEY_FIELDS, Key, Tile

_SLOT = re.compile(r"\{(\w+)\}")
_NUMBER = "(?:0|[1-9][0-9]{0,5})"  # as upstream writes them: no leading zeros, so that a name has one spelling only


def _dimensions(letter: str, count: int) -> str:
    return letter + "x".join([_NUMBER] * count)


_TILE = "_".join([_dimensions("b", 6), *(_dimensions(letter, 3) for letter in "rrww")]) + f"(?:_o{_NUMBER})?"


def writer(family: Family) -> Callable[[Sequence[Any]], str]:
    """A function from axis values, in the sequence of ``family.order``, to the kernel's name.

    It makes one table look-up for each slot and one join, since it runs for every key; the literal text before a slot
    is part of the slot's words. Tiles must be those of the family's table.
    """
    *parts, tail = _SLOT.split(family.grammar)
    literals, slots = parts[::2], parts[1::2]
    tables: list[dict[Any, str]] = []
    for literal, slot in zip(literals, slots, strict=True):
        if slot == "tile":
            tables.append({row.tile: literal + row.tile.word for row in family.tiles})
        else:
            words = family.words.get(slot, {})
            tables.append({value: f"{literal}{words.get(value, value)}" for value in _values(family, slot)})
    pick = itemgetter(*(family.order.index(slot) for slot in slots))

    def write(values: Sequence[Any]) -> str:
        return "".join(map(getitem, tables, pick(values))) + tail

    return write


def make_key(family: Family, values: Mapping[str, Any], name: str) -> Key:
    """A key from axis values (``tile`` gives hdim_v; mask_impl must be among the values)."""
    known = {field: values[field] for field in KEY_FIELDS if field in values}
    return Key(**{"name": name, "family": family.name, "hdim_v": values["tile"].bn1, **known})


def parse(family: Family, name: str, mask_impl: str = "simplified") -> dict[str, Any]:
    """The axis values that a kernel name spells, whether or not the matrix holds such a kernel.

    ``mask_impl`` tells which masks ``nmask`` means where the name alone doesn't (``mask`` is simplified, ``mc`` and
    ``mg`` are generic). A tile that is in no table gets ``when='always'``.

    Raises:
        NameSyntaxError: the name doesn't fit the grammar; the message says at which field and what was expected.
    """
    patterns = _patterns(family.grammar, tuple((slot, _field_words(family, slot)) for slot in _slots(family)))
    match = re.fullmatch("".join(patterns), name)
    if match is None:
        raise NameSyntaxError(_explain(family, patterns, name))
    values: dict[str, Any] = {}
    for slot in _slots(family):
        values[slot] = _read(family, slot, match[slot])
    if values["mask"] not in family.masks[mask_impl]:
        mask_impl = next(impl for impl, masks in family.masks.items() if values["mask"] in masks)
    values["mask_impl"] = mask_impl
    values["tile"] = _known_tile(family, values)
    for axis in family.order:
        if axis not in values:
            values[axis] = family.axes[axis][0]
    return values


def _slots(family: Family) -> list[str]:
    return _SLOT.findall(family.grammar)


def _field_words(family: Family, slot: str) -> tuple[str, ...]:
    """The words a slot can hold, longest first so that ``kv_blockscale`` wins over a shorter prefix; () for numbers."""
    if slot == "tile":
        return (_TILE,)
    words = family.words.get(slot, {})
    values = {*_values(family, slot), *words}
    if all(isinstance(value, int) and not isinstance(value, bool) for value in values):
        return (_NUMBER,)
    return tuple(sorted((re.escape(str(words.get(value, value))) for value in values), key=lambda w: (-len(w), w)))


def _values(family: Family, slot: str) -> tuple[Value, ...]:
    if slot == "mask":
        return tuple(mask for masks in family.masks.values() for mask in masks)
    return family.axes[slot]


@functools.cache
def _patterns(grammar: str, words: tuple[tuple[str, tuple[str, ...]], ...]) -> tuple[str, ...]:
    """The grammar as regular expressions, one a part: literal text and slots by turns."""
    table = dict(words)
    parts = _SLOT.split(grammar)
    return tuple(
        f"(?P<{part}>{'|'.join(table[part])})" if index % 2 else re.escape(part) for index, part in enumerate(parts)
    )


def _read(family: Family, slot: str, word: str) -> Value | Tile:
    if slot == "tile":
        numbers = [int(number) for number in re.findall(r"\d+", word)]
        return Tile(*numbers[:18], occupancy=numbers[18] if len(numbers) > 18 else -1)
    for value, written in family.words.get(slot, {}).items():
        if written == word:
            return value
    return int(word) if word.isdigit() else word


def _known_tile(family: Family, values: Mapping[str, Any]) -> Tile:
    for row in family.tiles:
        same = row.tile.word == values["tile"].word
        if same and values["dtype"] in row.dtypes and values["hdim_q"] == row.hdim:
            return row.tile
    tile: Tile = values["tile"]
    return tile


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
        slot = _SLOT.split(family.grammar)[count]
        expected = f"{slot} ({', '.join(w.replace(chr(92), '') for w in _field_words(family, slot))})"
        expected = "a tile (b..x.._r.._r.._w.._w..)" if slot == "tile" else expected
    else:
        expected = f"'{_SLOT.split(family.grammar)[count]}'"
    return (
        f"'{name}' is no {family.name} name of this dialect: {where}, expected {expected}, "
        f"found '{rest or 'the end'}'. The grammar is {family.grammar}"
    )
