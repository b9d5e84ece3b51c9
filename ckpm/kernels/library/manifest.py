"""manifest.json: keys of a built library, sha256 of every artifact, identities, flags, resources."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ckpm.base.errors import CkPrefillError, LibraryError, MeasureError, NameSyntaxError, RecordError
from ckpm.base.files import sha256_of, write_atomically
from ckpm.base.records import Source, Value, as_text
from ckpm.base.results import FOREIGN_LIBRARY, LIBRARY_SHA256
from ckpm.kernels.code.code_object import KernelResources
from ckpm.kernels.families.libraries import build_command, library_with
from ckpm.matrix.dialects import DEFAULT_FAMILY, Dialect, compute_units, dialect
from ckpm.matrix.families import MASK_IMPLS, Family
from ckpm.matrix.keys import Key
from ckpm.matrix.names import make_key, parse

MANIFEST = "manifest.json"  # beside the library
COUNTS = (
    "vgpr", "agpr", "sgpr", "vgpr_spills", "sgpr_spills", "lds_bytes", "scratch_bytes", "occupancy_waves",
)  # fmt: skip
_LARGEST_LIBRARY = 4 << 30  # bytes: the manifest of all kernels for three archs has a tenth
_MORE_COUNTS = ("kernarg_bytes", "max_workgroup", "wavefront", "text_bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltKernel:
    """The unit of a kernel, and its resources on each arch on which it has code.

    If a key is compiled to several kernels, ``archs`` contains the one with the most registers, ``others`` the rest.
    ``batch_invariant``: calls with this option may take the kernel. Suites compare its bits (``same_batches``).
    """

    unit: str
    batch_invariant: bool
    archs: Mapping[str, KernelResources]
    others: Mapping[str, tuple[KernelResources, ...]] = field(default_factory=dict)

    def resources_on(self, arch: str) -> tuple[KernelResources, ...]:
        """Return the resources of all kernels of this key for an arch."""
        return (*((self.archs[arch],) if arch in self.archs else ()), *self.others.get(arch, ()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A built library. ``artifacts`` are sha256 by file, relative to the manifest; ``left_out`` contains, by known
    defect, its reason and the kernels that are not built because of it.
    """

    library: str
    archs: tuple[str, ...]
    upstream: str
    upstream_identity: str
    dialect: str
    mask_impl: str
    selection: str
    unit_size: int
    left_out: Mapping[str, Any] = field(default_factory=dict)
    toolchain: str
    identity: str  # of the toolchain
    flags: str
    link_flags: str
    bf16: str = ""  # the conversion to bf16 (ckpm/kernels/code/bf16.py), '' if the build did not record it
    kernels: Mapping[str, BuiltKernel]
    artifacts: Mapping[str, str]

    @property
    def library_sha256(self) -> str:
        """The sha256 of the library as it was built, '' if the manifest doesn't list it."""
        return self.artifacts.get(self.library, "")

    def facts(self) -> dict[str, Any]:
        """Everything but the kernels and the artifacts."""
        scalars = {
            member.name: getattr(self, member.name)
            for member in dataclasses.fields(self)
            if member.name not in ("kernels", "artifacts")
        }
        return {**scalars, "archs": list(self.archs), "kernel_count": len(self.kernels)}

    def keys(self, names: Sequence[str] | None = None) -> tuple[Key, ...]:
        """Return the keys of the kernels ``names``, by default of all in the manifest's order.

        Raises:
            UnknownWordError, NameSyntaxError: a name is not one of the dialect's.
        """
        own_dialect = dialect(self.dialect)
        return tuple(_key(name, own_dialect, self.mask_impl) for name in (self.kernels if names is None else names))

    @property
    def remedy(self) -> str:
        """A sentence with the command that builds this library again."""
        try:
            library = library_with(family_of(dialect(self.dialect), next(iter(self.kernels), "")).name)
        except CkPrefillError:  # it lists no kernel, or what is damaged is the manifest
            library = DEFAULT_FAMILY
        return f"Build it again: {build_command(self.archs, self.upstream, library)}"

    def write(self, file: Path) -> None:
        """Replace ``file`` in one step."""
        kernels = {name: _row(kernel) for name, kernel in self.kernels.items()}
        write_atomically(file, as_text({**self.facts(), "kernels": kernels, "artifacts": dict(self.artifacts)}))

    @classmethod
    def read(cls, file: Path) -> Manifest:
        """Read a manifest. Raises RecordError: it is missing, or a field is missing or of another kind."""
        remedy = f"Name a library's {MANIFEST}, or build again."
        return cls.of(Source(location=file, what="a manifest", remedy=remedy, error=RecordError).read())

    @classmethod
    def of(cls, document: Value) -> Manifest:
        """Convert a manifest's JSON."""
        archs = tuple(arch.one_of(tuple(compute_units())) for arch in document.get("archs").items())
        texts = (
            "upstream", "upstream_identity", "dialect", "selection", "toolchain", "identity", "flags",
            "link_flags", "library",
        )  # fmt: skip
        return cls(
            **{name: document.get(name).text() for name in texts},
            archs=archs,
            mask_impl=document.get("mask_impl").one_of(MASK_IMPLS),
            unit_size=document.get("unit_size").count(),
            kernels=document.get("kernels").map(_kernel),
            artifacts=document.get("artifacts").texts(),
            bf16=document.optional("bf16", Value.text, ""),
            left_out=document.optional("left_out", lambda names: {n: v.value for n, v in names.members().items()}, {}),
        )


def family_of(dialect: Dialect, name: str) -> Family:
    """Return the family of the dialect whose names begin like this one. Raises NameSyntaxError."""
    beginnings = {family.grammar.partition("{")[0]: family for family in dialect.all_families()}
    fitting = [beginning for beginning in beginnings if name.startswith(beginning)]
    if not fitting:
        raise NameSyntaxError(f"{name}: no family of {dialect.name} names kernels so. Build again.")
    return beginnings[max(fitting, key=len)]


def library_digest(library: Path) -> str:
    """Return the sha256 of a library's bytes. A file too large for a library is refused."""
    if (size := library.stat().st_size) > _LARGEST_LIBRARY:
        raise LibraryError(
            f"{library}: its {size:,} bytes can't be a library: every library is below {_LARGEST_LIBRARY >> 30} GiB."
        )
    return sha256_of(library)


def remedy_for(library: Path) -> str:
    """A sentence with the command that builds a damaged library again, as the manifest beside it describes it."""
    try:
        return Manifest.read(library.with_name(MANIFEST)).remedy
    except CkPrefillError:
        return "Build it again: ckpm build --help"


def check_library(library: Path, manifest: Manifest) -> str:
    """Return the sha256 of a library's bytes, which must be the one in its manifest."""
    digest = library_digest(library)
    if digest != manifest.library_sha256:
        raise LibraryError(
            f"{library}: it is not the library of the {MANIFEST} beside it: its sha256 is {digest}, the manifest's "
            f"{manifest.library_sha256 or 'not said'}. {manifest.remedy}. The suites and `ckpm measure` "
            "run it all the same if it is named with --library; their results then say what it was.",
            kind="mismatch",
        )
    return digest


def _key(name: str, dialect: Dialect, mask_impl: str) -> Key:
    family = family_of(dialect, name)
    return make_key(family, {"mask_impl": mask_impl, **parse(family, name, mask_impl)}, name)


def _row(kernel: BuiltKernel) -> dict[str, Any]:
    archs = {arch: _resource_row(resources) for arch, resources in kernel.archs.items()}
    others = {arch: [_resource_row(resources) for resources in several] for arch, several in kernel.others.items()}
    row = {"unit": kernel.unit, "batch_invariant": kernel.batch_invariant, "archs": archs}
    return {**row, **({"others": others} if others else {})}


def _resource_row(resources: KernelResources) -> dict[str, Any]:
    figures = dataclasses.asdict(resources)
    del figures["arch"]
    return figures


def _kernel(row: Value) -> BuiltKernel:
    archs = {arch: _resources(figures, arch) for arch, figures in row.get("archs").members().items()}
    others = row.optional("others", _others, {})
    invariant = row.optional("batch_invariant", Value.truth, False)
    return BuiltKernel(unit=row.optional("unit", Value.text, ""), batch_invariant=invariant, archs=archs, others=others)


def _others(row: Value) -> dict[str, tuple[KernelResources, ...]]:
    return {
        arch: tuple(_resources(figures, arch) for figures in several.items()) for arch, several in row.members().items()
    }


def _resources(figures: Value, arch: str) -> KernelResources:
    counts = {name: figures.get(name).count() for name in COUNTS}
    counts |= {name: figures.optional(name, Value.count, 0) for name in _MORE_COUNTS}
    symbol, digest = (figures.optional(name, Value.text, "") for name in ("symbol", "text_sha256"))
    return KernelResources(arch=arch, symbol=symbol, text_sha256=digest, **counts)


def manifest_of(library: Path, arch: str) -> Manifest:
    """The manifest beside a library, which must be built for the arch."""
    file = library.with_name(MANIFEST)
    for path in (library, file):
        if not path.is_file():
            raise MeasureError(f"{path}: no such file. Build the library first: ckpm build --arch {arch}")
    try:
        manifest = Manifest.read(file)
    except RecordError as error:
        raise MeasureError(f"no manifest of a built library: {error}") from error
    if arch not in manifest.archs:
        raise MeasureError(f"{library} is built for {', '.join(manifest.archs)}, not for {arch}.")
    return manifest


def identity_facts(library: Path, manifest: Manifest, *, foreign: bool) -> dict[str, str]:
    """The sha256 of the library's file, and the sha256 in the manifest if it differs."""
    digest = library_digest(library) if foreign else check_library(library, manifest)
    other = {FOREIGN_LIBRARY: f"sha256 {manifest.library_sha256 or 'not said'}"}
    return {LIBRARY_SHA256: digest, **(other if digest != manifest.library_sha256 else {})}


def keys_of(manifest: Manifest, names: Sequence[str], library: Path) -> tuple[Key, ...]:
    """Keys of the library's kernels in dispatch order. The manifest must list the same kernels."""
    if set(manifest.kernels) != set(names):
        raise MeasureError(f"{library}: its manifest lists other kernels than it contains. {manifest.remedy}")
    return manifest.keys(names)
