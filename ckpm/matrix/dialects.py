"""Read dialects from matrix/dialects: the kernels of one version of upstream's codegen.

A dialect is a folder. dialect.yaml names its parent; a file for each family lists the differences from the parent's.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec

from ckpm.base.errors import SetupError, TableError, UnknownWordError, UsageError
from ckpm.base.paths import data
from ckpm.base.tablefile import Field, Record, Table, decode, load, overlay, read_table
from ckpm.matrix.families import Family
from ckpm.matrix.family_tables import read_family

TABLES = data("matrix")

# Upstream's APIs (generate.py --api) and the families of each, both in upstream's order.
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


class Detection(Record, frozen=True):
    """The marks of a checkout's dialect: words that a codegen file has or lacks, a file that must not exist."""

    file: str
    has: tuple[str, ...]
    lacks: tuple[str, ...]
    lacks_file: str | None = None


class _KnownArchs(Record, frozen=True):
    archs: tuple[str, ...]
    why: str


class DialectHead(Record, frozen=True):
    """The record of a dialect.yaml."""

    dialect: str
    summary: str
    parent: str | None = None
    detect: Detection | None = None
    known_archs: _KnownArchs | None = None
    enumerators: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    targets: tuple[str, ...] = ()
    parameters: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    asked_everything: bool | None = None


@dataclass(frozen=True, slots=True)
class Dialect:
    """The kernels of one version of upstream's codegen.

    ``detection`` is None for a dialect of our own kernels, which no checkout has. ``unknown_archs`` is the reason why
    only ``known_archs`` are known. A tree has kernels that this dialect lacks if a C++ enumeration has more
    members than ``enumerators``, or if its codegen names an arch that begins with none of ``targets``. ``parameters``
    are the parameters of C++ templates, in order. If ``asked_everything`` is False, suites leave out problems that no
    kernel of any tier serves.
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
        """Return a family by name."""
        return self._holder(name)[name]

    def check_arch(self, name: str) -> Arch:
        """Return an arch by name; it must be known in this dialect."""
        arch = check_arch(name)
        if name not in self.known_archs:
            raise SetupError(
                f"dialect {self.name} has nothing for {name}: {self.unknown_archs}. "
                f"Ask for {' or '.join(self.known_archs)}, or for another dialect.",
                kind="no-list",
            )
        return arch

    def table(self, name: str) -> Field:
        """A family's table, as :meth:`Families.table`."""
        return self._holder(name).table(name)

    def all_families(self) -> Iterator[Family]:
        """Yield the codegen's families, then the hand-written ones."""
        yield from self.families.values()
        yield from self.hand_written.values()

    def _holder(self, name: str) -> Families:
        for some in (self.families, self.hand_written):
            if name in some:
                return some
        raise UnknownWordError("family", name, (*self.families, *self.hand_written))


class _UpstreamRow(Record, frozen=True):
    """An upstream: a package of its own, or the tree of ``base`` with our ``headers``."""

    summary: str
    dialect: str
    package: str = ""
    version: str = ""
    file: str = ""
    sha256: str = ""
    size: int = 0  # bytes of the file
    tree: str = ""
    base: str = ""
    headers: str = ""
    license: str = ""
    default_tier: str = ""


class PackagedUpstream(_UpstreamRow, frozen=True, kw_only=True):
    """A CK tree in a package of the Python package index: the exact file, its sha256, and the tree's path in it.

    ``base`` names the upstream that owns the tree: another one, or this one itself. ``headers`` is the folder of
    kernels/ with our headers, which precede the tree's on the include path; '' for none. ``license`` is the package's.
    ``default_tier`` is what builds take without --tier; '' for the command's own default.
    """

    name: str

    @property
    def has_codegen(self) -> bool:
        """Return True if the tree's own codegen lists the kernels of its dialect. Our headers have no codegen."""
        return not self.headers


class _ComputeUnitRow(Record, frozen=True):
    vgprs: int  # 32-bit registers a lane, on one SIMD, arch and accumulation registers in one file
    vgpr_granule: int
    waves: int  # slots of one SIMD
    simds: int


class ComputeUnit(_ComputeUnitRow, frozen=True, kw_only=True):
    """The bounds of the waves on one compute unit. Sources: matrix/archs.yaml."""

    lds_bytes: int


class _ArchRow(Record, frozen=True):
    device: str
    generation: str
    wave_size: int
    lds_bytes: int
    compute_unit: _ComputeUnitRow | None = None


class Arch(_ArchRow, frozen=True, kw_only=True):
    """An arch. ``compute_unit`` is None for archs that the matrix lists, but no library is built for."""

    name: str
    compute_unit: ComputeUnit | None


class ArchTable(Record, frozen=True):
    """The record of archs.yaml."""

    archs: dict[str, _ArchRow]


@functools.cache
def archs() -> Mapping[str, Arch]:
    """The archs of archs.yaml by name."""
    rows = read_table(TABLES / "archs.yaml", ArchTable).record.archs
    return {name: _arch(name, **msgspec.structs.asdict(row)) for name, row in rows.items()}


def _arch(name: str, compute_unit: _ComputeUnitRow | None, **fields: Any) -> Arch:
    if compute_unit is None:
        return Arch(name=name, compute_unit=None, **fields)
    unit = ComputeUnit(lds_bytes=fields["lds_bytes"], **msgspec.structs.asdict(compute_unit))
    return Arch(name=name, compute_unit=unit, **fields)


@functools.cache
def compute_units() -> Mapping[str, ComputeUnit]:
    """The compute unit of each arch that libraries are built for."""
    return {name: arch.compute_unit for name, arch in archs().items() if arch.compute_unit}


def check_arch(name: str) -> Arch:
    """Return an arch by name; an unknown name is an UnknownWordError."""
    if name not in archs():
        raise UnknownWordError("arch", name, archs())
    return archs()[name]


class SelectionTable(Record, frozen=True):
    """The record of selections.yaml: the purpose of each receipt; --where expressions of each profile and tier."""

    receipts: dict[Annotated[int, msgspec.Meta(ge=0)], str]
    profiles: dict[str, str]
    tiers: dict[str, tuple[str, ...]]


@functools.cache
def selections() -> Table[SelectionTable]:
    """The named subsets of kernels."""
    return read_table(TABLES / "selections.yaml", SelectionTable)


def receipts() -> Mapping[int, str]:
    """The purpose of each receipt number."""
    return selections().record.receipts


def check_receipt(receipt: str | int) -> int:
    """The number of a receipt, which may be text."""
    purposes = receipts()
    if str(receipt) not in map(str, purposes):
        raise UnknownWordError("receipt", str(receipt), [str(number) for number in purposes])
    return int(receipt)


_PACKAGE = ("package", "version", "file", "sha256", "size", "tree")


class UpstreamTable(Record, frozen=True):
    """The record of upstreams.yaml; ``profiles`` maps an upstream's profile to the upstream that it stands for."""

    upstreams: dict[str, _UpstreamRow]
    profiles: dict[str, dict[str, str]]


@functools.cache
def upstreams() -> Mapping[str, PackagedUpstream]:
    """The packaged upstreams by name."""
    return read_upstreams(TABLES / "upstreams.yaml")


def read_upstreams(file: Path) -> Mapping[str, PackagedUpstream]:
    """Read a table of upstreams."""
    table = read_table(file, UpstreamTable)
    by_name: dict[str, PackagedUpstream] = {}
    for name, row in table.record.upstreams.items():
        if row.base and row.base not in by_name:
            raise table.fail(f"must be an upstream listed above: {', '.join(by_name)}", "upstreams", name, "base")
        required = ("headers",) if row.base else _PACKAGE
        for field in (*_PACKAGE, "headers"):
            if bool(getattr(row, field)) != (field in required):
                kind = "an upstream with a base" if row.base else "a package"
                raise table.fail(
                    f"{kind} has {', '.join(required)}; '{field}' is {'missing' if field in required else 'unknown'}",
                    "upstreams", name,
                )  # fmt: skip
        own = {field: getattr(row, field) for field in ("summary", "dialect", "headers", "default_tier")}
        package = by_name[row.base] if row.base else row
        tree = {field: getattr(package, field) for field in (*_PACKAGE, "license")}
        by_name[name] = PackagedUpstream(name=name, base=row.base or name, **own, **tree)
    return by_name


@functools.cache
def own_upstreams() -> frozenset[str]:
    """The upstreams with kernels of our own headers."""
    return frozenset(name for name, upstream in upstreams().items() if upstream.headers)


def check_upstream(name: str) -> PackagedUpstream:
    """Return a packaged upstream by name; an unknown name is an UnknownWordError."""
    if name not in upstreams():
        raise UnknownWordError("upstream", name, [*upstreams(), "checkout"])
    return upstreams()[name]


def check_built_arch(name: str) -> Arch:
    """Return an arch by name; libraries must be built for it."""
    arch = check_arch(name)
    if arch.compute_unit is None:
        raise UsageError(f"--arch {name}: its kernels are only listed. Libraries are for {', '.join(compute_units())}.")
    return arch


def check_family(name: str) -> str:
    """Return the name of a family; an unknown name is an UnknownWordError."""
    if name not in (*FAMILIES, *HAND_WRITTEN):
        raise UnknownWordError("family", name, (*FAMILIES, *HAND_WRITTEN))
    return name


def dialect_names() -> list[str]:
    return sorted(file.parent.name for file in (TABLES / "dialects").glob("*/dialect.yaml"))


@functools.cache
def dialect(name: str) -> Dialect:
    """Read a dialect by name."""
    if name not in dialect_names():
        raise UnknownWordError("dialect", name, dialect_names())
    return read_dialect(TABLES / "dialects" / name)


def read_dialect(folder: Path) -> Dialect:
    """Read a dialect's folder: dialect.yaml, a file for each family, and the folders of its ancestors.

    A family's file is read at the family's first use.
    """
    line = lineage(folder)
    own, whole = decode(line[-1], DialectHead), decode(functools.reduce(overlay, line), DialectHead)
    head, inherited = own.record, whole.record
    if head.dialect != folder.name:
        raise own.fail(f"a dialect has the name of its folder, here '{folder.name}'", "dialect")
    known_archs = inherited.known_archs
    for index, arch in enumerate(known_archs.archs if known_archs else ()):
        if arch not in archs():
            raise whole.fail(f"'{arch}' is not in archs.yaml", "known_archs", "archs", index)
    return Dialect(
        name=head.dialect,
        summary=head.summary,
        detection=inherited.detect,
        known_archs=known_archs.archs if known_archs else tuple(archs()),
        unknown_archs=known_archs.why if known_archs else "",
        enumerators=head.enumerators,
        targets=head.targets,
        parameters=head.parameters,
        asked_everything=inherited.asked_everything is not False,
        families=Families(tuple(table.file.parent for table in line), FAMILIES),
        hand_written=Families((folder,), HAND_WRITTEN),
    )


def lineage(folder: Path) -> list[Field]:
    """The dialect.yaml of a dialect and of its ancestors, the eldest first."""
    line = [load(folder / "dialect.yaml")]
    while parent := line[0].find("parent"):
        file = folder.parent / parent.text() / "dialect.yaml"
        if file in [table.file for table in line]:
            raise parent.fail("a dialect can't be its own ancestor")
        if not file.exists():
            raise parent.fail(f"no dialect '{parent.text()}' beside this one")
        line.insert(0, load(file))
    return line


class Families(Mapping[str, Family]):
    """The families of a dialect by name, each read at its first use: a command seldom needs all nine.

    The names are the families of ``wanted`` with a file in one of ``folders``.
    """

    def __init__(self, folders: tuple[Path, ...], wanted: tuple[str, ...]) -> None:
        self._folders, self._read = folders, dict[str, Family]()
        files = {file.stem: file for folder in folders for file in folder.glob("*.yaml") if file.stem != "dialect"}
        for name, file in files.items():
            if name not in (names := (*FAMILIES, *HAND_WRITTEN)):
                raise TableError(f"{file}:1: no such family; known: {', '.join(names)}. Rename or remove the file.")
        self._names = [name for name in wanted if name in files]

    def table(self, name: str) -> Field:
        """A family's table laid over the tables of the ancestors; each field has its own file and line."""
        files = [folder / f"{name}.yaml" for folder in self._folders]
        return functools.reduce(overlay, [load(file) for file in files if file.exists()])

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
