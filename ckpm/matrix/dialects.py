"""Read dialects, archs, selections and upstreams from matrix/. A dialect is the kernels of one version of CK's codegen.

A dialect is a folder. dialect.yaml names its parent; a file for each family lists the differences from the parent's.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from ckpm.base.errors import SetupError, TableError, UnknownWordError, UsageError
from ckpm.base.paths import data
from ckpm.base.tablefile import Field, Later, Positive, Record, Table, add_names, decode, load, overlay, read_table
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
DEFAULT_FAMILY = "batch_prefill"


class Detection(Record, frozen=True):
    """The marks of a checkout's dialect: words that a codegen file has or lacks, a file that must not exist."""

    file: str
    has: tuple[str, ...]
    lacks: tuple[str, ...]
    lacks_file: str | None = None


class _KnownArchs(Record, frozen=True):
    archs: tuple[str, ...]
    why: str


class Feature(Detection, frozen=True, kw_only=True):
    """Changes of a pull request after the features' base, and the marks of a checkout that has them.

    ``tables`` is laid over the tables of the families, ``cpp`` over the dialect's row in kernels/spellings.yaml.
    ``parameters`` follow the base's parameters of C++ templates. No checkout is known by a feature without a ``file``.
    Of the variants of a feature a dialect has the last one named.
    """

    summary: str
    file: str = ""
    has: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    variant_of: str = ""
    pull_request: int | None = None
    tables: dict[str, Any] = msgspec.field(default_factory=dict)
    cpp: dict[str, bool] = msgspec.field(default_factory=dict)
    parameters: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)

    @property
    def source(self) -> str:
        return f"rocm-libraries pull request {self.pull_request}" if self.pull_request else self.file


class FeatureTable(Record, frozen=True):
    """The record of dialects/features.yaml. ``base`` is the dialect that features are laid over."""

    base: str
    features: dict[str, Feature]


class DialectHead(Record, frozen=True):
    """The record of a dialect.yaml. ``features`` are those of features.yaml that the dialect has.

    ``every_family`` is laid under the tables of the codegen's families.
    """

    dialect: str
    summary: str
    parent: str | None = None
    detect: Detection | None = None
    known_archs: _KnownArchs | None = None
    enumerators: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    targets: tuple[str, ...] = ()
    parameters: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    asked_everything: bool | None = None
    features: tuple[str, ...] = ()
    every_family: dict[str, Any] = msgspec.field(default_factory=dict)


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
    features: tuple[str, ...] = ()

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


class PackagedUpstream(Record, frozen=True):
    """A CK tree in a package of the Python package index: the exact file, its sha256, and the tree's path in it.

    ``base`` names the upstream that owns the tree: another one, or this one itself. ``headers`` is the folder of
    kernels/ with our headers, which precede the tree's on the include path; '' for none. ``license`` is the package's.
    ``default_tier`` is what builds take without --tier; '' for the command's own default.
    """

    summary: str
    dialect: str
    package: str = ""
    version: str = ""
    file: str = ""
    sha256: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")] = ""
    size: int = 0  # bytes of the file
    tree: str = ""
    base: str = ""
    headers: str = ""
    license: str = ""
    default_tier: str = ""
    name: Later = ""

    @property
    def has_codegen(self) -> bool:
        """Return True if the tree's own codegen lists the kernels of its dialect. Our headers have no codegen."""
        return not self.headers


class ComputeUnit(Record, frozen=True):
    """The bounds of the waves on one compute unit. Sources: matrix/archs.yaml."""

    vgprs: Positive  # 32-bit registers a lane, on one SIMD, arch and accumulation registers in one file
    vgpr_granule: Positive
    waves: Positive  # slots of one SIMD
    simds: Positive
    lds_bytes: Annotated[int, msgspec.Meta(ge=0, le=0)] = 0  # the arch's, which compute_units() sets


class Arch(Record, frozen=True):
    """An arch. ``compute_unit`` is None for archs that the matrix lists, but no library is built for."""

    generation: str
    wave_size: Literal[32, 64]
    lds_bytes: Positive
    compute_unit: ComputeUnit | None = None
    name: Later = ""


class ArchTable(Record, frozen=True):
    """The record of archs.yaml."""

    archs: dict[str, Arch]


@functools.cache
def archs() -> Mapping[str, Arch]:
    """The archs of archs.yaml by name."""
    table = read_table(TABLES / "archs.yaml", ArchTable)
    for name, arch in table.record.archs.items():
        if not name.startswith(arch.generation):
            raise table.fail(f"'{name}' does not begin with {arch.generation}", "archs", name, "generation")
    return add_names(table.record.archs)


@functools.cache
def compute_units() -> Mapping[str, ComputeUnit]:
    """The compute unit of each arch that libraries are built for."""
    return {
        name: msgspec.structs.replace(arch.compute_unit, lds_bytes=arch.lds_bytes)
        for name, arch in archs().items()
        if arch.compute_unit
    }


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
    """The record of upstreams.yaml; ``profiles``: upstream -> profile -> the upstream that it stands for."""

    upstreams: dict[str, PackagedUpstream]
    profiles: dict[str, dict[str, str]]


@functools.cache
def upstreams() -> Mapping[str, PackagedUpstream]:
    """The packaged upstreams by name."""
    return read_upstreams(TABLES / "upstreams.yaml")


def read_upstreams(file: Path) -> Mapping[str, PackagedUpstream]:
    """Read a table of upstreams."""
    table = read_table(file, UpstreamTable)
    choices = {
        "dialect": dialect_names(),
        "default_tier": list(selections().record.tiers),
        "headers": sorted(folder.name for folder in data("kernels").glob("include_*")),
    }
    by_name: dict[str, PackagedUpstream] = {}
    for name, row in add_names(table.record.upstreams).items():
        for field, allowed in choices.items():
            if value := getattr(row, field):
                table.demand_known(value, allowed, "upstreams", name, field)
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
        package = by_name[row.base] if row.base else row
        tree = {field: getattr(package, field) for field in (*_PACKAGE, "license")}
        by_name[name] = msgspec.structs.replace(row, base=row.base or name, **tree)
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
def feature_table() -> Table[FeatureTable]:
    """The features of pull requests."""
    table = read_table(TABLES / "dialects" / "features.yaml", FeatureTable)
    table.demand_known(table.record.base, dialect_names(), "base")
    for name, feature in table.record.features.items():
        if feature.variant_of:
            table.demand_known(feature.variant_of, table.record.features, "features", name, "variant_of")
    return table


def features() -> Mapping[str, Feature]:
    """The features by name, in the order in which they are laid over the base."""
    return feature_table().record.features


def with_features(names: Iterable[str]) -> str:
    """The name of the dialect that has these features: one of :func:`dialect_names`, or ``base+FEATURE+FEATURE``.

    A stored dialect may have features without marks besides, which no checkout shows.
    """
    base, wanted = feature_table().record.base, set(names)
    ordered = [name for name in features() if name in wanted]
    for name in dialect_names() if ordered else ():
        own = dialect(name).features
        if wanted in (set(own), {feature for feature in own if features()[feature].file}):
            return name
    return "+".join((base, *ordered))


def without_features(name: str) -> tuple[str, list[Feature]]:
    """The dialect without its features of features.yaml, and these features."""
    added = dialect(name).features
    return (feature_table().record.base if added else name), [features()[feature] for feature in added]


@functools.cache
def dialect(name: str) -> Dialect:
    """Read a dialect by its name, which may be ``base+FEATURE+FEATURE``: with features of features.yaml."""
    stored, *added = name.split("+")
    if stored not in dialect_names():
        raise UnknownWordError("dialect", name, dialect_names())
    read = read_dialect(TABLES / "dialects" / stored, tuple(added))
    return replace(read, name=name)


def read_dialect(folder: Path, added: tuple[str, ...] = ()) -> Dialect:
    """Read a dialect's folder: dialect.yaml, a file for each family, and the folders of its ancestors.

    The features of dialect.yaml and ``added`` are laid over the families. A family's file is read at the family's
    first use.
    """
    line = lineage(folder)
    own, whole = decode(line[-1], DialectHead), decode(functools.reduce(overlay, line), DialectHead)
    head, inherited = own.record, whole.record
    if head.dialect != folder.name:
        raise own.fail(f"a dialect has the name of its folder, here '{folder.name}'", "dialect")
    chosen = (*inherited.features, *added)
    if chosen:
        chosen = _check_features(own, chosen, [table.file.parent.name for table in line])
        head = inherited  # enumerators, targets and parameters are the base's, too
    known_archs = inherited.known_archs
    for index, arch in enumerate(known_archs.archs if known_archs else ()):
        if arch not in archs():
            raise whole.fail(f"'{arch}' is not in archs.yaml", "known_archs", "archs", index)
    return Dialect(
        name=folder.name,
        summary=head.summary,
        detection=inherited.detect,
        known_archs=known_archs.archs if known_archs else tuple(archs()),
        unknown_archs=known_archs.why if known_archs else "",
        enumerators=head.enumerators,
        targets=head.targets,
        parameters={
            name: (
                *own_parameters,
                *(word for feature in chosen for word in features()[feature].parameters.get(name, ())),
            )
            for name, own_parameters in head.parameters.items()
        },
        asked_everything=inherited.asked_everything is not False,
        families=Families(tuple(table.file.parent for table in line), FAMILIES, chosen),
        hand_written=Families((folder,), HAND_WRITTEN),
        features=chosen,
    )


def _check_features(own: Table[DialectHead], chosen: Sequence[str], ancestors: Sequence[str]) -> tuple[str, ...]:
    """The chosen features, of the variants of a feature the last one."""
    table = feature_table().record
    for index, name in enumerate(chosen):
        if name not in table.features:
            raise UnknownWordError("feature", name, table.features)
        if name in chosen[:index]:
            raise own.fail(f"the dialect has the feature {name} twice")
    if table.base not in ancestors:
        raise own.fail(f"features.yaml's base is {table.base}, and this dialect has other ancestors")
    last = {variant_of: name for name in chosen if (variant_of := table.features[name].variant_of)}
    return tuple(name for name in chosen if last.get(table.features[name].variant_of, name) == name)


def lineage(folder: Path) -> list[Field]:
    """The dialect.yaml of a dialect and of its ancestors, the eldest first."""
    line = [load(folder / "dialect.yaml")]
    while parent := line[0].find("parent"):
        file = folder.parent / parent.text() / "dialect.yaml"
        if file in [table.file for table in line]:
            raise parent.fail("a dialect can't be its own ancestor")
        if not file.exists():
            raise parent.fail_word(f"no dialect '{parent.text()}' beside this one", parent.text(), dialect_names())
        line.insert(0, load(file))
    return line


class Families(Mapping[str, Family]):
    """The families of a dialect by name, each read at its first use: a command seldom needs all nine.

    The names are the families of ``wanted`` with a file in one of ``folders``.
    """

    def __init__(self, folders: tuple[Path, ...], wanted: tuple[str, ...], added: tuple[str, ...] = ()) -> None:
        self._folders, self._features, self._read = folders, added, dict[str, Family]()
        files = {file.stem: file for folder in folders for file in folder.glob("*.yaml") if file.stem != "dialect"}
        for name, file in files.items():
            if name not in (names := (*FAMILIES, *HAND_WRITTEN)):
                raise TableError(f"{file}:1: no such family; known: {', '.join(names)}. Rename or remove the file.")
        self._names = [name for name in wanted if name in files]

    def with_family(self, family: Family) -> Families:
        """Replace a family by another one of its name, in a copy."""
        families = Families(self._folders, tuple(self._names), self._features)
        families._read = {**self._read, family.name: family}
        return families

    def table(self, name: str) -> Field:
        """A family's table laid over the ancestors', then its features'; each field has its own file and line."""
        heads = [load(folder / "dialect.yaml") for folder in self._folders] if name in FAMILIES else []
        layers = [common for head in heads if (common := head.find("every_family"))]
        files = [folder / f"{name}.yaml" for folder in self._folders]
        layers += [load(file) for file in files if file.exists()]
        if self._features:
            every = feature_table().root.get("features")
            tables = [every.get(feature).find("tables") for feature in self._features]
            layers += [layer for table in tables if table and (layer := table.find(name))]
        return functools.reduce(overlay, layers)

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
