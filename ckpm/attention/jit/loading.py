"""A library that was compiled on demand, or built, opened on a device by its folder."""

from __future__ import annotations

from pathlib import Path

from ckpm.attention.launch.c_abi import Library
from ckpm.attention.launch.device import Device
from ckpm.base.errors import LibraryError
from ckpm.kernels.families.libraries import host, library_with
from ckpm.kernels.library.manifest import MANIFEST, Manifest, check_library, family_of
from ckpm.matrix.dialects import dialect


def load(folder: Path, device: Device) -> Library:
    """Open the library of ``folder`` by the C ABI of its families. It must fit its manifest and the device's arch."""
    manifest = Manifest.read(folder / MANIFEST)
    library = folder / manifest.library
    if not library.is_file():
        raise LibraryError(f"{library}: no such library. Build it first.")
    digest = check_library(library, manifest)
    if device.arch not in manifest.archs:
        raise LibraryError(f"{library}: it is for {', '.join(manifest.archs)}, and the device is a {device.arch}.")
    if not manifest.kernels:
        raise LibraryError(f"{folder / MANIFEST}: lists no kernel. {manifest.remedy}")
    family = family_of(dialect(manifest.dialect), next(iter(manifest.kernels))).name
    return device.load(library, host(library_with(family)).arguments, digest)
