"""Identity of a built library: its manifest, the sha256 of its file, the keys of its kernels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ckpm.base.errors import MeasureError, RecordError
from ckpm.base.results import FOREIGN_LIBRARY, LIBRARY_SHA256
from ckpm.kernels.library.manifest import MANIFEST, Manifest, check_library, library_digest
from ckpm.matrix.keys import Key


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
