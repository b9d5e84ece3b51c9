"""A registry of kernels to launch: one instance for each kernel, arch, upstream and mask set, built or declared.

A registry may be used by several threads: readers see a whole state, and :attr:`Registry.version` changes with it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ckpm.base.errors import (
    ArgumentError,
    LibraryError,
    NameSyntaxError,
    RecordError,
    TableError,
    UnknownWordError,
    demand_type,
)
from ckpm.base.files import write_atomically
from ckpm.base.records import Source, Value, as_text
from ckpm.base.trust import demand_trusted_library
from ckpm.kernels.families.table import FAMILIES
from ckpm.kernels.library.manifest import MANIFEST, Manifest, check_library, family_of
from ckpm.matrix.dialects import compute_units, dialect
from ckpm.matrix.families import MASK_IMPLS
from ckpm.matrix.keys import Key
from ckpm.matrix.names import make_key, parse

FORMAT = 1
_REMEDY = "Export the registry again, or name another file."

Identity = tuple[str, str, str, str, str]
Compile = Callable[[Sequence["Instance"]], Sequence[Path]]  # declared kernels of one call -> libraries that hold them


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """One kernel for one arch. ``library`` is None if it was only declared.

    Instances with a higher ``priority`` come first. ``sha256`` is the library's, '' if it wasn't checked.
    """

    key: Key
    arch: str
    upstream: str
    dialect: str
    library: Path | None = None
    priority: int = 0
    sha256: str = field(default="", compare=False, repr=False)

    @property
    def name(self) -> str:
        return self.key.name

    @property
    def identity(self) -> Identity:
        """Fields that no two instances share. Kernels in another family's libraries differ by library."""
        family = FAMILIES.get(self.key.family)
        file = str(self.library) if family is not None and family.library else ""
        return self.arch, self.upstream, self.key.mask_impl, self.key.name, file

    def row(self) -> dict[str, Any]:
        library = None if self.library is None else str(self.library)
        return {
            "name": self.name, "arch": self.arch, "upstream": self.upstream, "dialect": self.dialect,
            "mask_impl": self.key.mask_impl, "priority": self.priority, "library": library,
        }  # fmt: skip


class Registry:
    """Instances by priority, then in the order in which they came."""

    def __init__(self, instances: Iterable[Instance] = ()) -> None:
        self._lock = threading.Lock()
        self._instances: Mapping[Identity, Instance] = {}
        self._ordered: tuple[Instance, ...] = ()
        self._upstreams: Mapping[tuple[str, bool], frozenset[str]] = {}
        self.version = 0
        self.add(instances)

    def __len__(self) -> int:
        return len(self._instances)

    def instances(self, arch: str = "", family: str = "") -> tuple[Instance, ...]:
        """The instances of an arch and a family, of all if they are not given."""
        return tuple(
            instance
            for instance in self._ordered
            if arch in ("", instance.arch) and family in ("", instance.key.family)
        )

    def upstreams(self, family: str, *, built: bool = False) -> frozenset[str]:
        """The upstreams with registered kernels of a family, or with ``built`` ones."""
        return self._upstreams.get((family, built), frozenset())

    def _set(self, instances: Mapping[Identity, Instance]) -> None:
        """Set the instances; the lock is held."""
        self._instances = instances
        self._ordered = tuple(sorted(instances.values(), key=lambda instance: -instance.priority))
        kinds: dict[tuple[str, bool], set[str]] = {}
        for instance in self._ordered:
            for built in {False, instance.library is not None}:
                kinds.setdefault((instance.key.family, built), set()).add(instance.upstream)
        self._upstreams = {kind: frozenset(names) for kind, names in kinds.items()}
        self.version += 1

    def add(self, instances: Iterable[Instance]) -> None:
        """Add all instances or none. A built kernel replaces its declaration.

        Raises:
            LibraryError: an instance is registered already.
        """
        try:
            instances = tuple(instances)
        except TypeError as error:
            raise ArgumentError(f"instances: {error}. Give those that kernel_set returns.", kind="type") from error
        with self._lock:
            registered = dict(self._instances)
            for instance in instances:
                demand_type("an instance", instance, Instance, "an Instance, such as kernel_set returns")
                before = registered.get(instance.identity)
                if before is not None and (before.library is not None or instance.library is None):
                    raise LibraryError(_duplicate(instance, before), kind="duplicate-kernel")
                registered[instance.identity] = instance
            self._set(registered)

    def add_library(self, library: str | os.PathLike[str], priority: int = 0) -> tuple[Instance, ...]:
        """Add the kernels of the manifest beside a built library, and return them.

        Raises:
            RecordError: there is no manifest, or it lacks a field.
            LibraryError: the library is missing, too large or another than the manifest's, or a kernel is registered
                already.
            TrustError: another user could have made the library.
        """
        demand_type("the library", library, str | os.PathLike, "the path of a libckpm.so")
        added = _instances_of(Path(library), priority)
        self.add(added)
        return added

    def find(self, name: str, arch: str = "") -> Instance:
        """Return the first instance with a kernel's name.

        Raises:
            LibraryError: no registered kernel has the name.
        """
        demand_type("name", name, str, "a kernel's name")
        for instance in self.instances(arch):
            if instance.name == name:
                return instance
        raise LibraryError(f"no kernel {name} is registered{f' for {arch}' if arch else ''}.", kind="unknown-kernel")

    def set_priority(self, names: Sequence[str], priority: int) -> None:
        """Set the priority of all instances with these kernels' names.

        Raises:
            LibraryError: a name is not registered, or the priority is not a whole number.
        """
        demand_type("names", names, tuple | list | set | frozenset, "a list of kernels' names")
        if not isinstance(priority, int):
            raise LibraryError(f"the priority is {priority!r}: it must be a whole number.", kind="priority")
        with self._lock:
            there = {instance.name for instance in self._instances.values()}
            if unknown := [name for name in names if name not in there]:
                raise LibraryError(f"no kernel {unknown[0]} is registered.", kind="unknown-kernel")
            before = self._instances.items()
            self._set(
                {
                    at: replace(instance, priority=priority) if instance.name in names else instance
                    for at, instance in before
                }
            )

    def write(self, file: str | os.PathLike[str]) -> None:
        """Export the registry as JSON, in one step.

        Raises:
            DiskFullError, OutputError: the file can't be written.
        """
        demand_type("the file", file, str | os.PathLike, "its path")
        rows = [instance.row() for instance in self._instances.values()]
        write_atomically(Path(file), as_text({"format": FORMAT, "kernels": rows}))

    @classmethod
    def read(cls, file: str | os.PathLike[str]) -> Registry:
        """Import an export of :meth:`write`. Libraries are checked as by :meth:`add_library`, and opened when needed.

        Raises:
            RecordError: the file can't be read, is of another version, or a field is missing or wrong.
            LibraryError: a dialect or library has no such kernel, or a row comes twice.
            An error of ckpm.base.errors: see :meth:`add_library`.
        """
        demand_type("the file", file, str | os.PathLike, "its path")
        file = Path(file)
        document = Source(location=file, what="a registry", remedy=_REMEDY, error=RecordError).read()
        form = document.get("format").whole()
        if form != FORMAT:
            raise RecordError(
                f"{file}: a registry of format {form}, this program reads {FORMAT}. {_REMEDY}", kind="registry-version"
            )
        document.allow(("format", "kernels"))
        instances = tuple(map(_instance, document.get("kernels").items()))
        cls(instances)  # a row twice
        return cls(_check_libraries(file, instances))


def _instances_of(library: Path, priority: int = 0) -> tuple[Instance, ...]:
    """The kernels of a built library."""
    if not library.is_file():
        raise LibraryError(f"{library}: no such library. Build it first.")
    demand_trusted_library(library)
    manifest = Manifest.read(library.parent / MANIFEST)
    digest = check_library(library, manifest)
    try:
        keys = manifest.keys()
    except (NameSyntaxError, UnknownWordError) as error:
        raise LibraryError(
            f"{library}: built from other tables: {error} {manifest.remedy}, or delete the folder {library.parent}.",
            kind="other-tables",
        ) from error
    return tuple(
        Instance(
            key=key, arch=arch, upstream=manifest.upstream, dialect=manifest.dialect,
            library=library.absolute(), priority=priority, sha256=digest,
        )
        for arch in manifest.archs
        for key in keys
        if manifest.kernels[key.name].resources_on(arch)
    )  # fmt: skip


def _check_libraries(file: Path, instances: Sequence[Instance]) -> Iterator[Instance]:
    """The instances with their libraries' sha256. Refuse a file that lists a kernel which its library doesn't have."""
    built = {
        library: {instance: instance.sha256 for instance in _instances_of(library)}
        for library in {instance.library for instance in instances}
        if library
    }
    for instance in instances:
        if instance.library is None:
            yield instance
        elif digest := built[instance.library].get(replace(instance, priority=0)):
            yield replace(instance, sha256=digest)
        else:
            raise LibraryError(
                f"{file}: {instance.library} has no {instance.name} for {instance.arch} of {instance.upstream}. "
                f"{_REMEDY}",
                kind="unknown-kernel",
            )


def _duplicate(instance: Instance, before: Instance) -> str:
    where = "declared" if before.library is None else f"registered from {before.library}"
    return f"{instance.name} for {instance.arch} of {instance.upstream} is {where} already. Leave one of the two out."


def _instance(row: Value) -> Instance:
    row.allow(("name", "arch", "upstream", "dialect", "mask_impl", "priority", "library"))
    named, mask_impl = _dialect_name(row.get("dialect")), row.get("mask_impl").text()
    if mask_impl and mask_impl not in MASK_IMPLS:
        raise row.get("mask_impl").fail(f"none of {', '.join(MASK_IMPLS)}")
    path = row.optional("library", Value.nonempty_text, None)
    return Instance(
        key=key_of(row.get("name").nonempty_text(), named, mask_impl),
        arch=row.get("arch").one_of(tuple(compute_units())),
        upstream=row.get("upstream").nonempty_text(),
        dialect=named,
        library=None if path is None else Path(path).absolute(),
        priority=row.get("priority").whole(),
    )


def _dialect_name(value: Value) -> str:
    """The name of a dialect, which may have features."""
    try:
        return dialect(value.nonempty_text()).name
    except (UnknownWordError, TableError) as error:
        raise value.fail(str(error)) from error


def key_of(name: str, of_dialect: str, mask_impl: str) -> Key:
    """The key of a kernel's name in a dialect."""
    named_dialect = dialect(of_dialect)
    try:
        family = family_of(named_dialect, name)
        return make_key(family, {"mask_impl": mask_impl, **parse(family, name, mask_impl or MASK_IMPLS[0])}, name)
    except NameSyntaxError as error:
        raise LibraryError(f"no kernel of {of_dialect}: {error}", kind="unknown-kernel") from error
