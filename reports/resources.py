"""A library's manifest with the errors of reports/."""

from __future__ import annotations

from pathlib import Path

from ckpm.base.errors import RecordError
from ckpm.kernels.library.manifest import Manifest
from ckpm.reports.errors import ManifestError, NoManifestError


def read_manifest(file: Path) -> Manifest:
    """A library's manifest.

    Raises:
        NoManifestError: there is none.
        ManifestError: it can't be read, or a field is missing or of another kind.
    """
    if not file.exists():
        raise NoManifestError(f"{file}: no such manifest. Build first: ckpm build --help.")
    try:
        return Manifest.read(file)
    except RecordError as error:
        raise ManifestError(str(error)) from error
