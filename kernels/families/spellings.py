"""The C++ words of axis values, out of kernels/families/spellings.yaml; every complaint names file, line and field."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ckpm.base.tablefile import Field, load

SPELLINGS = Path(__file__).with_name("spellings.yaml")

# axis: the words of each of its values; none where a value is one word
_AXES: Mapping[str, tuple[str, ...]] = {
    "dtype": ("type", "bytes"),
    "pipeline": ("type", "enum"),
    "mask": ("type", "check"),
    "bias": ("enum", "check"),
    "qscale": ("enum", "check"),
    "kv_layout": (),
    "kv_table": (),
    "load": (),
    "when": (),
    "dialects": ("paged", "launch_takes_block_size", "trait_names_trload", "own_headers"),
    "fwd_pipeline": ("type", "enum"),
    "pagedkv_pipeline": ("type", "enum"),
    "splitkv_pipeline": ("type", "enum"),
    "rope": ("enum", "check"),
    "bwd_dtype": (),
    "dropout_impl": ("type", "check"),
    "bwd_when": (),
}
_KINDS = {"bytes": Field.integer} | dict.fromkeys(_AXES["dialects"], Field.boolean)


class Words(dict[str, Any]):
    """Words by name. Asking for one that the table lacks raises TableError at the place where it belongs."""

    def __init__(self, field: Field, words: Mapping[str, Any]) -> None:
        super().__init__(words)
        self._field = field

    def __missing__(self, name: str) -> Any:
        raise self._field.fail(f"no C++ word for '{name}'; there are {', '.join(self)}")


@functools.cache
def spellings(file: Path = SPELLINGS) -> Words:
    """The words of every axis value: axis -> value -> word, or axis -> value -> kind of word -> word.

    Masks have a set of their own for each mask implementation: mask -> mask_impl -> value -> kind of word -> word.

    Raises:
        TableError: the table can't be read, lacks a field, or has one that nobody reads.
    """
    table = load(file)
    table.allow(_AXES)
    return Words(table, {axis: _axis(table.get(axis), axis) for axis in _AXES})


def _axis(field: Field, axis: str) -> Words:
    if axis == "mask":
        return Words(field, field.map(lambda masks: Words(masks, masks.map(lambda row: _row(row, _AXES[axis])))))
    return Words(field, field.map(lambda row: _row(row, _AXES[axis])))


def _row(field: Field, names: tuple[str, ...]) -> Words | str:
    if not names:
        return field.text()
    field.allow(names)
    return Words(field, {name: _KINDS.get(name, Field.text)(field.get(name)) for name in names})
