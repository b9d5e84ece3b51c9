"""Dialects: what the codegen of an upstream's age knows, read from matrix/tables/dialects.

A dialect file names its parent and says only what differs from it.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from matrix.errors import (
    UnknownArchError,
    UnknownDialectError,
    UnknownFamilyError,
    UnknownReceiptError,
    UnknownUpstreamError,
)
from matrix.keys import KEY_FIELDS, Key, Tile
from matrix.rules import RULES, Rule
from matrix.tablefile import Field, load, overlay

TABLES = Path(__file__).parent / "tables"

Value = str | int | bool

MASK_IMPLS = ("simplified", "generic")

# Axes that a key can't do without, and readers of those whose values are not text.
_DERIVED = ("name", "family", "hdim_v", "mask_impl")
_REQUIRED = tuple(
    f.name for f in dataclasses.fields(Key) if f.default is dataclasses.MISSING and f.name not in _DERIVED
)
_READERS: Mapping[str, Callable[[Field], Value]] = {
    **dict.fromkeys(("hdim_q", "page_size"), Field.integer),
    **dict.fromkeys(("logits", "lse", "dropout", "sink"), Field.boolean),
}


@dataclass(frozen=True, slots=True)
class TileRow:
    """A tile and the keys it serves: dtypes x one head dim."""

    dtypes: tuple[str, ...]
    hdim: int
    tile: Tile


@dataclass(frozen=True, slots=True)
class Family:
    """The axes, rules, tiles, receipts and name grammar of one kernel family in one dialect.

    ``order`` lists the axes, outermost loop first. ``receipts`` maps a receipt to allow-lists by axis; a receipt that
    is missing here means receipt 0 (everything).
    """

    name: str
    archs: tuple[str, ...]
    absent: str
    grammar: str
    order: tuple[str, ...]
    axes: Mapping[str, tuple[Value, ...]]
    masks: Mapping[str, tuple[str, ...]]
    words: Mapping[str, Mapping[Value, str]]
    tiles: tuple[TileRow, ...]
    rules: tuple[Rule, ...]
    receipts: Mapping[int, Mapping[str, tuple[Value, ...]]]


@dataclass(frozen=True, slots=True)
class Detection:
    """How a checkout's age is told: words that a codegen file has or lacks, a file that must not exist."""

    file: str
    has: tuple[str, ...]
    lacks: tuple[str, ...]
    lacks_file: str | None


@dataclass(frozen=True, slots=True)
class Dialect:
    name: str
    summary: str
    detection: Detection
    families: Mapping[str, Family]

    def family(self, name: str) -> Family:
        """Raises UnknownFamilyError."""
        if name not in self.families:
            raise UnknownFamilyError(name, self.families)
        return self.families[name]


@dataclass(frozen=True, slots=True)
class PackagedUpstream:
    """A CK tree inside a package of the Python package index: exact file, its sha256, and where the tree lies in it."""

    name: str
    summary: str
    package: str
    version: str
    file: str
    sha256: str
    tree: str
    dialect: str


@dataclass(frozen=True, slots=True)
class Arch:
    name: str
    device: str
    generation: str
    wave_size: int
    lds_bytes: int


@functools.cache
def archs() -> Mapping[str, Arch]:
    table = load(TABLES / "archs.yaml").get("archs")
    found = {}
    for name, row in table.mapping().items():
        row.allow(("device", "generation", "wave_size", "lds_bytes"))
        found[name] = Arch(
            name,
            device=row.get("device").text(),
            generation=row.get("generation").text(),
            wave_size=row.get("wave_size").integer(),
            lds_bytes=row.get("lds_bytes").integer(),
        )
    return found


def check_arch(name: str) -> Arch:
    """Raises UnknownArchError, which lists the known ones."""
    if name not in archs():
        raise UnknownArchError(name, archs())
    return archs()[name]


@functools.cache
def receipts() -> Mapping[int, str]:
    """Receipt number -> what it is for."""
    table = load(TABLES / "receipts.yaml").get("receipts")
    return {_number(name, field): field.text() for name, field in table.mapping().items()}


def check_receipt(receipt: str | int) -> int:
    """The number of a receipt given as text. Raises UnknownReceiptError."""
    known = receipts()
    if str(receipt) not in map(str, known):
        raise UnknownReceiptError(str(receipt), [str(number) for number in known])
    return int(receipt)


@functools.cache
def upstreams() -> Mapping[str, PackagedUpstream]:
    table = load(TABLES / "upstreams.yaml").get("upstreams")
    fields = ("summary", "package", "version", "file", "sha256", "tree", "dialect")
    found = {}
    for name, row in table.mapping().items():
        row.allow(fields)
        found[name] = PackagedUpstream(name, *(row.get(field).text() for field in fields))
    return found


def check_upstream(name: str) -> PackagedUpstream:
    """Raises UnknownUpstreamError."""
    if name not in upstreams():
        raise UnknownUpstreamError(name, [*upstreams(), "checkout"])
    return upstreams()[name]


def dialect_names() -> list[str]:
    return sorted(file.stem for file in (TABLES / "dialects").glob("*.yaml"))


@functools.cache
def dialect(name: str) -> Dialect:
    """Read a dialect.

    Raises:
        UnknownDialectError: no such file; the message lists the known ones.
        TableError: the file is malformed; the message starts with file:line: field.
    """
    if name not in dialect_names():
        raise UnknownDialectError(name, dialect_names())
    return read_dialect(TABLES / "dialects" / f"{name}.yaml")


def read_dialect(file: Path) -> Dialect:
    """Read a dialect file and the parents it names, which lie beside it.

    Raises:
        TableError: a file is malformed or says something impossible.
    """
    table = dialect_table(file)
    table.allow(("dialect", "parent", "summary", "detect", "families"))
    if table.get("dialect").text() != file.stem:
        raise table.get("dialect").fail(f"a dialect has the name of its file, here '{file.stem}'")
    return Dialect(
        name=table.get("dialect").text(),
        summary=table.get("summary").text(),
        detection=_detection(table.get("detect")),
        families={name: _family(name, field) for name, field in table.get("families").mapping().items()},
    )


def dialect_table(file: Path, children: tuple[Path, ...] = ()) -> Field:
    """A dialect file laid over the parents it names; each field still knows the file and line it was written in."""
    table = load(file)
    parent = table.find("parent")
    if parent is None:
        return table
    parent_file = file.with_name(f"{parent.text()}.yaml")
    if parent_file in (file, *children):
        raise parent.fail("a dialect can't be its own ancestor")
    if not parent_file.exists():
        raise parent.fail(f"no dialect file '{parent_file.name}' beside this one")
    return overlay(dialect_table(parent_file, (*children, file)), table)


def _detection(field: Field) -> Detection:
    field.allow(("file", "has", "lacks", "lacks_file"))
    lacks_file = field.find("lacks_file")
    return Detection(
        file=field.get("file").text(),
        has=field.get("has").texts(),
        lacks=field.get("lacks").texts(),
        lacks_file=lacks_file.text() if lacks_file else None,
    )


def _family(name: str, field: Field) -> Family:
    field.allow(("archs", "absent", "name", "order", "axes", "masks", "words", "tiles", "rules", "receipts"))
    order = field.get("order").texts()
    field.get("axes").allow(axis for axis in order if axis not in ("tile", "mask"))
    axes = {axis: _values(axis, values) for axis, values in field.get("axes").mapping().items()}
    _check_order(field.get("order"), axes)
    field.get("masks").allow(MASK_IMPLS)
    masks = {name: field.get("masks").get(name).texts() for name in MASK_IMPLS}
    field.get("words").allow(order)
    _check_grammar(field.get("name"), order, axes)
    for arch in field.get("archs").items():
        if arch.text() not in archs():
            raise arch.fail(f"'{arch.text()}' is not in archs.yaml")
    return Family(
        name=name,
        archs=field.get("archs").texts(),
        absent=field.get("absent").text(),
        grammar=field.get("name").text(),
        order=order,
        axes=axes,
        masks=masks,
        words={axis: _words(axis, words) for axis, words in field.get("words").mapping().items()},
        tiles=tuple(_tile_row(row, axes) for row in field.get("tiles").items()),
        rules=tuple(_rule(row, order) for row in field.get("rules").items()),
        receipts=_receipts(field.get("receipts"), {**axes, "mask": tuple(m for some in masks.values() for m in some)}),
    )


def _check_order(field: Field, axes: Mapping[str, tuple[Value, ...]]) -> None:
    """Every axis once, none missing, none that a key lacks, and tiles after what they depend on."""
    order = field.texts()
    for axis in order:
        if axis not in KEY_FIELDS or axis in _DERIVED:
            raise field.fail(f"'{axis}' is no axis of a key")
        if axis not in axes and axis not in ("tile", "mask"):
            raise field.fail(f"axis '{axis}' has no values in axes")
    if len(set(order)) != len(order):
        raise field.fail("an axis is listed twice")
    if missing := [axis for axis in _REQUIRED if axis not in order]:
        raise field.fail(f"axis '{missing[0]}' is missing; every key has one")
    if order.index("tile") < max(order.index("dtype"), order.index("hdim_q")):
        raise field.fail("tile depends on dtype and hdim_q and must come after them")


def _check_grammar(field: Field, order: tuple[str, ...], axes: Mapping[str, tuple[Value, ...]]) -> None:
    """A name must tell every kernel from every other: each axis with a choice has its slot, once."""
    slots = re.findall(r"\{(\w+)\}", field.text())
    for slot in slots:
        if slot not in order:
            raise field.fail(f"slot '{slot}' is no axis; known: {', '.join(order)}")
        if slots.count(slot) > 1:
            raise field.fail(f"slot '{slot}' is written twice")
    for axis in order:
        if axis not in slots and len(axes.get(axis, "..")) > 1:
            raise field.fail(f"axis '{axis}' has several values and needs a slot {{{axis}}}")


def _values(axis: str, field: Field) -> tuple[Value, ...]:
    read = _READERS.get(axis, Field.text)
    values = tuple(read(item) for item in field.items())
    if len(set(values)) != len(values):
        raise field.fail("a value is listed twice")
    return values


def _words(axis: str, field: Field) -> Mapping[Value, str]:
    read: dict[str, Value] = {"true": True, "false": False}
    return {read.get(value, value): word.text() for value, word in field.mapping().items()}


def _tile_row(field: Field, axes: Mapping[str, tuple[Value, ...]]) -> TileRow:
    field.allow(("dtype", "hdim", "block", "waves", "warp_tile", "occupancy", "when"))
    for dtype in field.get("dtype").items():
        if dtype.text() not in axes["dtype"]:
            raise dtype.fail(f"'{dtype.text()}' is not among the axis's values: {', '.join(map(str, axes['dtype']))}")
    if field.get("hdim").integer() not in axes["hdim_q"]:
        raise field.get("hdim").fail(f"not among the values of hdim_q: {', '.join(map(str, axes['hdim_q']))}")
    occupancy, when = field.find("occupancy"), field.find("when")
    tile = Tile(
        *field.get("block").integers(6),
        *field.get("waves").integers(6),
        *field.get("warp_tile").integers(6),
        occupancy=occupancy.integer() if occupancy else -1,
        when=when.text() if when else "always",
    )
    return TileRow(field.get("dtype").texts(), field.get("hdim").integer(), tile)


def _rule(field: Field, order: tuple[str, ...]) -> Rule:
    if field.text() not in RULES:
        raise field.fail(f"no rule '{field.text()}' in matrix/rules.py; known: {', '.join(RULES)}")
    rule = RULES[field.text()]
    if missing := [name for name in rule.fields if name not in order]:
        raise field.fail(f"rule '{rule.name}' reads {', '.join(missing)}, which this family has no axis for")
    return rule


def _receipts(field: Field, axes: Mapping[str, tuple[Value, ...]]) -> Mapping[int, Mapping[str, tuple[Value, ...]]]:
    table = {}
    for name, row in field.mapping().items():
        if _number(name, row) not in receipts():
            raise row.fail("this receipt is not in receipts.yaml")
        row.allow(axes)
        table[int(name)] = {axis: _values(axis, values) for axis, values in row.mapping().items()}
        for axis, allowed in table[int(name)].items():
            if unknown := [value for value in allowed if value not in axes[axis]]:
                known = ", ".join(map(str, axes[axis]))
                raise row.get(axis).fail(f"'{unknown[0]}' is not among the axis's values: {known}")
    return table


def _number(name: str, field: Field) -> int:
    if not re.fullmatch("0|[1-9][0-9]*", name):
        raise field.fail(f"a receipt is a number, not '{name}'")
    return int(name)
