"""The C++ spellings of axis values in kernels/families/spellings.yaml; error messages name file, line and field."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ckpm.base.tablefile import Field, load

SPELLINGS = Path(__file__).with_name("spellings.yaml")

# axis: the kinds of spelling of each of its values; none where a value has one spelling
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
    """Spellings by name. A missing name raises TableError with its line in the table."""

    def __init__(self, field: Field, words: Mapping[str, Any]) -> None:
        super().__init__(words)
        self._field = field

    def __missing__(self, name: str) -> Any:
        raise self._field.fail(f"no C++ word for '{name}'; there are {', '.join(self)}")


@functools.cache
def spellings(file: Path = SPELLINGS) -> Words:
    """The spellings of every axis value: axis -> value -> spelling, or axis -> value -> kind -> spelling.

    Masks have a set for each mask implementation: mask -> mask_impl -> value -> kind -> spelling.

    Raises:
        TableError: the table can't be read, lacks a field, or has an unknown field.
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
