"""Manifests of libraries, with the error messages of reports."""

from __future__ import annotations

from pathlib import Path

from ckpm.base.errors import LibraryError, RecordError
from ckpm.kernels.library.manifest import Manifest


def read_manifest(file: Path, build: str = "ckpm build") -> Manifest:
    """Read a library's manifest. The message for a missing one names the command ``build``, which writes it."""
    if not file.exists():
        raise LibraryError(f"{file}: no such manifest. Build the library first: {build}", kind="not-built")
    try:
        return Manifest.read(file)
    except RecordError as error:
        raise RecordError(str(error), kind="manifest") from error
