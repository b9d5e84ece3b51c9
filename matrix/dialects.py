"""Dialects: what the codegen of an upstream's age knows, read from matrix/tables/dialects.

A dialect is a folder: dialect.yaml names its parent, a file for each family says what differs from the parent's.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ckpm.base.errors import (
    NoListOfArchError,
    TableError,
    UnknownArchError,
    UnknownDialectError,
    UnknownFamilyError,
    UnknownReceiptError,
    UnknownUpstreamError,
    UsageError,
)
from ckpm.base.tablefile import Field, load, overlay
from ckpm.matrix.families import Family
from ckpm.matrix.family_tables import read_family

TABLES = Path(__file__).parent / "tables"

# Upstream's APIs (generate.py --api) with the families that each lists, both in upstream's order.
APIS: Mapping[str, tuple[str, ...]] = {
    "fwd": ("fwd",),
    "fwd_splitkv": ("fwd_splitkv_combine", "fwd_splitkv"),
    "fwd_appendkv": ("fwd_appendkv",),
    "pagedkv_prefill": ("fwd_pagedkv",),
    "batch_prefill": ("batch_prefill",),
    "bwd": ("bwd_dot_do_o", "bwd_dq_dk_dv", "bwd_convert_dq"),
}
FAMILIES = tuple(family for families in APIS.values() for family in families)
# Families whose instances upstream keeps as files of their own: no codegen lists them, so `--family all` and the totals
# leave them out, no receipt narrows them, and a dialect doesn't inherit them.
HAND_WRITTEN = ("fwd_v3",)
_HEAD = ("dialect", "parent", "summary", "detect", "known_archs", "asked_everything")


@dataclass(frozen=True, slots=True)
class Detection:
    """How a checkout's age is recognised: words that a codegen file has or lacks, a file that must not exist."""

    file: str
    has: tuple[str, ...]
    lacks: tuple[str, ...]
    lacks_file: str | None


@dataclass(frozen=True, slots=True)
class Dialect:
    """``detection`` is None if only lists of names are known of that age: no checkout is taken for one of it.

    ``known_archs`` are those that something is known of; ``unknown_archs`` says why there are no others.
    ``enumerators`` are the members of C++ enumerations at that age: a tree with more has kernels that we lack, as has
    one whose codegen names ``targets`` that begin otherwise. ``parameters`` are those of C++ templates, in order.
    Unless its libraries are ``asked_everything``, suites leave out what it has no kernel for in any tier.
    """

    name: str
    summary: str
    detection: Detection | None
    known_archs: tuple[str, ...]
    unknown_archs: str
    enumerators: Mapping[str, tuple[str, ...]]
    targets: tuple[str, ...]
    parameters: Mapping[str, tuple[str, ...]]
    asked_everything: bool
    families: Families
    hand_written: Families

    def family(self, name: str) -> Family:
        """Raises UnknownFamilyError."""
        return self._holder(name)[name]

    def check_arch(self, name: str) -> Arch:
        """Raises UnknownArchError, and NoListOfArchError for one that nothing is known of in this dialect."""
        arch = check_arch(name)
        if name not in self.known_archs:
            raise NoListOfArchError(
                f"dialect {self.name} knows nothing of {name}: {self.unknown_archs}. "
                f"Ask for {' or '.join(self.known_archs)}, or for another dialect."
            )
        return arch

    def table(self, name: str) -> Field:
        """A family's table, see Families.table. Raises UnknownFamilyError."""
        return self._holder(name).table(name)

    def all_families(self) -> Iterator[Family]:
        """The codegen's families and then those written by hand."""
        yield from self.families.values()
        yield from self.hand_written.values()

    def _holder(self, name: str) -> Families:
        for some in (self.families, self.hand_written):
            if name in some:
                return some
        raise UnknownFamilyError(name, (*self.families, *self.hand_written))


@dataclass(frozen=True, slots=True)
class PackagedUpstream:
    """A CK tree inside a package of the Python package index: exact file, its sha256, and where the tree lies in it.

    ``base`` is the upstream whose tree it is, its own name where the tree is its own. ``headers`` is the folder of
    kernels/ with our headers that stand before the tree's, '' for none.
    """

    name: str
    summary: str
    package: str
    version: str
    file: str
    sha256: str
    tree: str
    dialect: str
    base: str
    headers: str

    @property
    def has_codegen(self) -> bool:
        """Whether the tree lists kernels of its dialect itself: our own headers come without a codegen."""
        return not self.headers


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeUnit:
    """What bounds the waves on one compute unit. Sources: matrix/tables/archs.yaml."""

    vgprs: int  # 32-bit registers a lane, on one SIMD, arch and accumulation registers in one file
    vgpr_granule: int
    waves: int  # slots of one SIMD
    simds: int
    lds_bytes: int


@dataclass(frozen=True, slots=True)
class Arch:
    """``compute_unit`` is None for archs that the matrix lists and no library is built for."""

    name: str
    device: str
    generation: str
    wave_size: int
    lds_bytes: int
    compute_unit: ComputeUnit | None


@functools.cache
def archs() -> Mapping[str, Arch]:
    table = load(TABLES / "archs.yaml").get("archs")
    by_name = {}
    for name, row in table.mapping().items():
        row.allow(("device", "generation", "wave_size", "lds_bytes", "compute_unit"))
        lds_bytes, unit = row.get("lds_bytes").integer(), row.find("compute_unit")
        by_name[name] = Arch(
            name,
            device=row.get("device").text(),
            generation=row.get("generation").text(),
            wave_size=row.get("wave_size").integer(),
            lds_bytes=lds_bytes,
            compute_unit=_compute_unit(unit, lds_bytes) if unit else None,
        )
    return by_name


def _compute_unit(row: Field, lds_bytes: int) -> ComputeUnit:
    figures = ("vgprs", "vgpr_granule", "waves", "simds")
    row.allow(figures)
    return ComputeUnit(lds_bytes=lds_bytes, **{name: row.get(name).integer() for name in figures})


@functools.cache
def compute_units() -> Mapping[str, ComputeUnit]:
    """Of each arch that libraries are built for."""
    return {name: arch.compute_unit for name, arch in archs().items() if arch.compute_unit}


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
    """Every packaged upstream by name. Raises TableError."""
    table = load(TABLES / "upstreams.yaml").get("upstreams")
    fields = ("summary", "package", "version", "file", "sha256", "tree", "dialect")
    by_name: dict[str, PackagedUpstream] = {}
    for name, row in table.mapping().items():
        if base := row.find("base"):
            row.allow(("summary", "base", "headers", "dialect"))
            if base.text() not in by_name:
                raise base.fail(f"is none of the upstreams before it: {', '.join(by_name)}")
            own = {field: row.get(field).text() for field in ("summary", "headers", "dialect")}
            by_name[name] = replace(by_name[base.text()], name=name, **own)
            continue
        row.allow(fields)
        own = {field: row.get(field).text() for field in fields}
        by_name[name] = PackagedUpstream(name=name, base=name, headers="", **own)
    return by_name


def check_upstream(name: str) -> PackagedUpstream:
    """Raises UnknownUpstreamError."""
    if name not in upstreams():
        raise UnknownUpstreamError(name, [*upstreams(), "checkout"])
    return upstreams()[name]


def check_built_arch(name: str) -> Arch:
    """An arch that libraries are built for. Raises UnknownArchError; UsageError: its kernels are only listed."""
    arch = check_arch(name)
    if arch.compute_unit is None:
        raise UsageError(f"--arch {name}: its kernels are only listed. Libraries are for {', '.join(compute_units())}.")
    return arch


def check_family(name: str) -> str:
    """Raises UnknownFamilyError."""
    if name not in (*FAMILIES, *HAND_WRITTEN):
        raise UnknownFamilyError(name, (*FAMILIES, *HAND_WRITTEN))
    return name


def dialect_names() -> list[str]:
    return sorted(file.parent.name for file in (TABLES / "dialects").glob("*/dialect.yaml"))


@functools.cache
def dialect(name: str) -> Dialect:
    """Read a dialect.

    Raises:
        UnknownDialectError: no such folder; the message lists the known ones.
        TableError: a file is malformed; the message starts with file:line: field.
    """
    if name not in dialect_names():
        raise UnknownDialectError(name, dialect_names())
    return read_dialect(TABLES / "dialects" / name)


def read_dialect(folder: Path) -> Dialect:
    """Read a dialect's folder: dialect.yaml, a file for each family, and the parents it names, which lie beside it.

    Raises:
        TableError: a file is malformed or says something impossible; for a family's file, when it is first asked for.
    """
    line = lineage(folder)
    table = line[-1]
    table.allow((*_HEAD, "enumerators", "targets", "parameters"))
    if table.get("dialect").text() != folder.name:
        raise table.get("dialect").fail(f"a dialect has the name of its folder, here '{folder.name}'")
    detect, known = _overlaid(line).find("detect"), _overlaid(line).find("known_archs")
    targets, asked = table.find("targets"), _overlaid(line).find("asked_everything")
    return Dialect(
        name=table.get("dialect").text(),
        summary=table.get("summary").text(),
        detection=_detection(detect) if detect else None,
        known_archs=tuple(map(_known_arch, known.get("archs").items())) if known else tuple(archs()),
        unknown_archs=known.get("why").text() if known else "",
        enumerators=_lists(table.find("enumerators")),
        targets=targets.texts() if targets else (),
        parameters=_lists(table.find("parameters")),
        asked_everything=asked.boolean() if asked else True,
        families=Families(tuple(one.file.parent for one in line), FAMILIES),
        hand_written=Families((folder,), HAND_WRITTEN),
    )


def _known_arch(field: Field) -> str:
    if field.text() not in archs():
        raise field.fail(f"'{field.text()}' is not in archs.yaml")
    return field.text()


def lineage(folder: Path) -> list[Field]:
    """dialect.yaml of a dialect and of its ancestors, the eldest first. Raises TableError."""
    line = [load(folder / "dialect.yaml")]
    while parent := line[0].find("parent"):
        file = folder.parent / parent.text() / "dialect.yaml"
        if file in [one.file for one in line]:
            raise parent.fail("a dialect can't be its own ancestor")
        if not file.exists():
            raise parent.fail(f"no dialect '{parent.text()}' beside this one")
        line.insert(0, load(file))
    return line


def _lists(field: Field | None) -> dict[str, tuple[str, ...]]:
    return {name: row.texts() for name, row in field.mapping().items()} if field else {}


def _overlaid(tables: Sequence[Field]) -> Field:
    return functools.reduce(overlay, tables)


class Families(Mapping[str, Family]):
    """Families of a dialect by name, each read when it is first asked for: a command seldom needs all nine.

    They are those of ``wanted`` that one of ``folders`` has a file for.
    """

    def __init__(self, folders: tuple[Path, ...], wanted: tuple[str, ...]) -> None:
        self._folders, self._read = folders, dict[str, Family]()
        files = {file.stem: file for folder in folders for file in folder.glob("*.yaml") if file.stem != "dialect"}
        for name, file in files.items():
            if name not in (known := (*FAMILIES, *HAND_WRITTEN)):
                raise TableError(f"{file}:1: no such family; known: {', '.join(known)}. Rename or remove the file.")
        self._names = [name for name in wanted if name in files]

    def table(self, name: str) -> Field:
        """A family's table laid over those of the ancestors; each field knows the file and line it was written in."""
        files = [folder / f"{name}.yaml" for folder in self._folders]
        return _overlaid([load(file) for file in files if file.exists()])

    def __getitem__(self, name: str) -> Family:
        if name not in self._read:
            if name not in self._names:
                raise KeyError(name)
            self._read[name] = read_family(name, self.table(name), tuple(archs()), tuple(receipts()))
        return self._read[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _detection(field: Field) -> Detection:
    field.allow(("file", "has", "lacks", "lacks_file"))
    lacks_file = field.find("lacks_file")
    return Detection(
        file=field.get("file").text(),
        has=field.get("has").texts(),
        lacks=field.get("lacks").texts(),
        lacks_file=lacks_file.text() if lacks_file else None,
    )


def _number(name: str, field: Field) -> int:
    if not re.fullmatch("0|[1-9][0-9]*", name):
        raise field.fail(f"a receipt is a number, not '{name}'")
    return int(name)
