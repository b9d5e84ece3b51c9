"""Stored lists of upstream's kernel names, for upstreams that can't be run here (matrix/golden/README.md)."""

from __future__ import annotations

import functools
import gzip
import hashlib
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ckpm.base.errors import TableError
from ckpm.base.tablefile import Field, load
from ckpm.matrix.dialects import APIS

GOLDEN = Path(__file__).parents[1] / "golden"


@dataclass(frozen=True, slots=True)
class StoredList:
    """The names that upstream's codegen lists for one dialect, arch, API, receipt and mask set.

    ``families`` are what the API lists, in its order. ``sha256`` is that of the sorted text, ``sha256_emission_order``
    that of the text in upstream's order of emission (one name a line), None where the order isn't known; lists with the
    same content share a file.
    """

    dialect: str
    arch: str
    api: str
    families: tuple[str, ...]
    receipt: int
    mask_impl: str
    count: int
    sha256: str
    sha256_emission_order: str | None
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
        digest = hashlib.sha256(data).hexdigest()
        if digest != self.sha256:
            raise TableError(f"{self.file}:1: sha256 is {digest}, manifest.json has {self.sha256}. Restore the file.")
        return tuple(data.decode().splitlines())


@functools.cache
def stored_lists(folder: Path = GOLDEN) -> tuple[StoredList, ...]:
    """Every list that ``folder``/manifest.json describes.

    Raises:
        TableError: the manifest is missing, is no JSON, or lacks a field; the message names file, line and field.
    """
    entries = load(folder / "manifest.json").get("entries").items()  # JSON is YAML, too
    return tuple(_stored_list(entry, folder) for entry in entries)


def _stored_list(entry: Field, folder: Path) -> StoredList:
    api, order, alone = entry.get("api").text(), entry.get("sha256_emission_order"), entry.find("families")
    return StoredList(
        dialect=entry.get("version").text(),
        arch=entry.get("arch").text(),
        api=api,
        families=alone.texts() if alone else APIS.get(api, (api,)),  # a list of one family of an API says which
        receipt=entry.get("receipt").integer(),
        mask_impl=entry.get("mask").text(),
        count=entry.get("count").integer(),
        sha256=entry.get("sha256").text(),
        sha256_emission_order=None if order.value is None else order.text(),
        file=folder / entry.get("file").text(),
    )


def emission_sha256(names: Iterable[str]) -> str:
    """sha256 of names in their order, one a line: comparable with ``StoredList.sha256_emission_order``."""
    return hashlib.sha256("".join(f"{name}\n" for name in names).encode()).hexdigest()
