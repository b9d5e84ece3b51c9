"""Stored lists of upstream's kernel names, for upstreams that can't be run here (matrix/golden/README.md)."""

from __future__ import annotations

import functools
import gzip
import hashlib
import json
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from matrix.errors import TableError

GOLDEN = Path(__file__).parent / "golden"


@dataclass(frozen=True, slots=True)
class StoredList:
    """The names that upstream's codegen lists for one dialect, arch, family, receipt and mask set.

    ``sha256`` is that of the sorted text, ``sha256_emission_order`` that of the text in upstream's order of emission
    (one name a line); lists with the same content share a file.
    """

    dialect: str
    arch: str
    family: str
    receipt: int
    mask_impl: str
    count: int
    sha256: str
    sha256_emission_order: str
    file: Path

    def names(self) -> tuple[str, ...]:
        """The names, sorted.

        Raises:
            TableError: the file is missing or not what the manifest says.
        """
        try:
            data = gzip.decompress(self.file.read_bytes())
        except (OSError, EOFError, zlib.error) as error:
            raise TableError(f"{self.file}:1: the stored list can't be read: {error}. Restore the file.") from error
        found = hashlib.sha256(data).hexdigest()
        if found != self.sha256:
            raise TableError(f"{self.file}:1: sha256 is {found}, manifest.json has {self.sha256}. Restore the file.")
        return tuple(data.decode().splitlines())


@functools.cache
def stored_lists(folder: Path = GOLDEN) -> tuple[StoredList, ...]:
    """Every list that ``folder``/manifest.json describes."""
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    return tuple(
        StoredList(
            dialect=entry["version"],
            arch=entry["arch"],
            family=entry["api"],
            receipt=entry["receipt"],
            mask_impl=entry["mask"],
            count=entry["count"],
            sha256=entry["sha256"],
            sha256_emission_order=entry["sha256_emission_order"],
            file=folder / entry["file"],
        )
        for entry in manifest["entries"]
    )


def emission_sha256(names: Iterable[str]) -> str:
    """sha256 of names in their order, one a line: comparable with ``StoredList.sha256_emission_order``."""
    return hashlib.sha256("".join(f"{name}\n" for name in names).encode()).hexdigest()
