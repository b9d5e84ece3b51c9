"""Read sweep configurations: in upstream's JSON form (a variant and trait allow-lists), or by families and key fields.

Upstream's form: ``{"variant": "fwd", "trait_config": {"mask": {"values": ["no"]}}}``. Our form, in YAML::

    families: [fwd, fwd_splitkv]
    keep: {dtype: [fp16, bf16], hdim_q: [128], tile.bm0: [64, 128], sink: [false]}

Both may be JSON or YAML. A sweep becomes --where expressions, so that everything that narrows or reports a selection
works on it. matrix/sweeps.yaml lists the meanings of upstream's words.
"""

from __future__ import annotations

import argparse
import difflib
import functools
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ckpm.base.display import show
from ckpm.base.errors import TableError, UsageError
from ckpm.base.tablefile import Field, Record, load, read_table
from ckpm.matrix.dialects import FAMILIES, TABLES, Dialect, dialect, dialect_names
from ckpm.matrix.keys import KEY_FIELDS, TILE_NUMBERS
from ckpm.matrix.options import selection_from
from ckpm.matrix.selection import Selection

_FIELDS = (
    *(name for name in KEY_FIELDS if name not in ("name", "family", "tile")),
    *(f"tile.{name}" for name in TILE_NUMBERS),
)


@dataclass(frozen=True, slots=True)
class Sweep:
    """A sweep. A key must meet all expressions of ``where``; ``notes`` tell the file's author of surprises."""

    families: tuple[str, ...]
    where: tuple[str, ...]
    notes: tuple[str, ...] = ()


def sweep_selection(args: argparse.Namespace) -> tuple[Dialect, Selection]:
    """The dialect and the selection of ``sweep FILE`` with the options of a selection.

    ``--family`` narrows the sweep's families. The sweep's notes go to stderr.
    """
    sweep = read_sweep(args.sweep)
    chosen, selection = selection_from(args)
    families = sweep.families if args.family is None else [f for f in sweep.families if f in selection.families]
    if not families:
        raise UsageError(f"--family names none of the families of {args.sweep}: {', '.join(sweep.families)}")
    for note in sweep.notes:
        show(f"{args.sweep}: {note}", file=sys.stderr)
    return chosen, replace(selection, families=tuple(families), where=(*sweep.where, *selection.where))


class Trait(Record, frozen=True):
    """A trait of a sweep: a field of keys with its values, a flag, or any number."""

    field: str
    values: dict[str, tuple[str, ...]] | tuple[str, ...] | None = None
    flag: bool = False
    number: bool = False

    @property
    def spellings(self) -> Mapping[Any, tuple[Any, ...]] | None:
        """The field's values by spelling: True and False for a flag. None for a field with any number."""
        if self.flag:
            return {True: (True,), False: (False, None)}
        return {word: (word,) for word in self.values} if isinstance(self.values, tuple) else self.values


class SweepTable(Record, frozen=True):
    """The record of sweeps.yaml: a variant's families, each with the traits that upstream's builder reads for it."""

    variants: dict[str, dict[str, tuple[str, ...]]]
    traits: dict[str, Trait]
    notes: dict[str, str]


@functools.cache
def vocabulary() -> SweepTable:
    """Read sweeps.yaml."""
    return read_table(TABLES / "sweeps.yaml", SweepTable).record


def read_sweep(file: Path) -> Sweep:
    """The sweep of a configuration file in either form. Unknown words are TableErrors with file, line and path."""
    config = load(file)
    is_own_form = config.find("families") is not None or config.find("keep") is not None
    _demand_known(config, ("families", "keep") if is_own_form else ("variant", "trait_config", "tile_config"), "field")
    return _own_sweep(config) if is_own_form else _upstream_sweep(config)


def _upstream_sweep(config: Field) -> Sweep:
    table = vocabulary()
    variant = _known_word(config.get("variant"), table.variants, "variant")
    families = table.variants[variant]
    traits = config.find("trait_config")
    lists = {} if traits is None else traits.mapping()
    if traits is not None:
        _demand_known(traits, table.traits, "trait")
    where, notes = [], []
    if config.find("tile_config") is not None:
        notes.append(f"tile_config: {table.notes['tile_config']}")
    for name, row in lists.items():
        row.allow(("values",))
        trait = table.traits[name]
        allowed, used = _allowed_values(row.get("values"), name, trait)
        notes += [f"{row.path}: {table.notes[word]}" for word in (name, *used) if word in table.notes]
        readers = [family for family, read in families.items() if name in read]
        if not readers:
            notes.append(f"{row.path}: upstream's builder doesn't read it for {variant}: it leaves no kernel out")
            continue
        test = f"key.{trait.field} in {_tuple(allowed)}"
        where.append(test if len(readers) == len(families) else f"key.family not in {_tuple(readers)} or {test}")
    return Sweep(tuple(families), tuple(where), tuple(notes))


def _allowed_values(values: Field, name: str, trait: Trait) -> tuple[list[Any], list[str]]:
    """The field's values for an allow-list, and the words of the list."""
    items = _some(values)
    if trait.spellings is None:
        return [item.integer() for item in items], []
    allowed: list[Any] = []
    for item in items:
        value = item.boolean() if True in trait.spellings else _scalar(item)
        if value not in trait.spellings:
            raise _unknown(item, value, trait.spellings, f"value of {name}")
        allowed += trait.spellings[value]
    return list(dict.fromkeys(allowed)), [str(item.value) for item in items]


def _own_sweep(config: Field) -> Sweep:
    families = tuple(_known_word(item, FAMILIES, "family") for item in _some(config.get("families")))
    keep = config.find("keep")
    if keep is None:
        return Sweep(families, ())
    _demand_known(keep, _FIELDS, "field")
    where = []
    for name, values in keep.mapping().items():
        tile = name.startswith("tile.")
        allowed = [item.integer() if tile else _scalar(item) for item in _some(values)]
        if not tile:
            _check_values(values, name, families)
        # A family without the field is kept. A dialect without the field has kernels as with a flag that is off.
        neutral = (
            [""]
            if any(isinstance(value, str) for value in allowed)
            else [None]
            if any(value is False for value in allowed)
            else []
        )
        where.append(f"key.{name} in {_tuple([*neutral, *allowed])}")
    return Sweep(families, tuple(where))


def _check_values(values: Field, name: str, families: Sequence[str]) -> None:
    """Refuse a value that no family of the sweep has in any dialect."""
    allowed: dict[Any, None] = {}
    for each in dialect_names():
        for family in families:
            if family in dialect(each).families:
                allowed |= dict.fromkeys(dialect(each).families[family].values(name))
    if not allowed:
        raise TableError(
            f"{_location(values)}: none of {', '.join(families)} has the field '{name}'. Leave it out.", kind="sweep"
        )
    for item in values.items():
        if item.value is not None and (type(item.value), item.value) not in {(type(v), v) for v in allowed}:
            raise _unknown(item, item.value, [v for v in allowed if v is not None], f"value of {name}")


def _scalar(item: Field) -> Any:
    if isinstance(item.value, list | dict):
        raise item.fail("must be a word, a number, true or false")
    return item.value


def _some(values: Field) -> list[Field]:
    """The items of an allow-list; an empty list, which would allow nothing, is refused."""
    items = values.items()
    if not items:
        raise TableError(f"{_location(values)}: an empty list allows nothing. Name values or omit it.", kind="sweep")
    return items


def _demand_known(mapping: Field, names: Iterable[str], kind: str) -> None:
    allowed = list(names)
    for name, field in mapping.mapping().items():
        if name not in allowed:
            raise _unknown(field, name, allowed, kind)


def _known_word(field: Field, choices: Iterable[str], kind: str) -> str:
    names = list(choices)
    if field.text() not in names:
        raise _unknown(field, field.text(), names, kind)
    return field.text()


def _unknown(field: Field, word: object, choices: Iterable[Any], kind: str) -> TableError:
    choices = list(choices)
    names = [_plain(value) for value in choices]
    close = difflib.get_close_matches(_plain(word), names, n=1)
    if isinstance(word, int) and all(
        isinstance(value, int) for value in choices
    ):  # numbers that look alike aren't near
        close = [_plain(min(choices, key=lambda value: abs(value - word)))]
    hint = f"; did you mean '{close[0]}'?" if close else "."
    return TableError(
        f"{_location(field)}: unknown {kind} '{_plain(word)}'{hint} Known: {', '.join(names)}.", kind="sweep"
    )


def _location(field: Field) -> str:
    return f"{field.file}:{field.line}: {field.path}"


def _plain(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _tuple(values: Iterable[Any]) -> str:
    """The values as a Python tuple in a --where expression."""
    return repr(tuple(values))
