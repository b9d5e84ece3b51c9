"""A library's manifest with the errors of reports/."""

from __future__ import annotations

from pathlib import Path

from ckpm.base.errors import LibraryError, RecordError
from ckpm.kernels.library.manifest import Manifest


def read_manifest(file: Path) -> Manifest:
    """A library's manifest.

    Raises:
        LibraryError: there is none.
        RecordError: it can't be read, or a field is missing or of another kind.
    """
    if not file.exists():
        raise LibraryError(f"{file}: no such manifest. Build first: ckpm build --help.", kind="no-manifest")
    try:
        return Manifest.read(file)
    except RecordError as error:
        raise RecordError(str(error), kind="manifest") from error
