"""Stored lists of upstream's kernel names (matrix/golden/README.md), and the comparison of two lists of names."""

from __future__ import annotations

import functools
import hashlib
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ckpm.base.errors import TableError
from ckpm.base.paths import data
from ckpm.base.tablefile import Record, read_table
from ckpm.matrix.dialects import APIS

GOLDEN = data("matrix", "golden")
_SHOWN = 5  # names of each kind in a description: enough to see the pattern, few enough to read


@dataclass(frozen=True, slots=True)
class StoredList:
    """The names that upstream's codegen lists for one dialect, arch, API, receipt and mask set.

    ``families`` are the families of the API, in its order. ``sha256`` is the digest of the sorted text,
    ``sha256_emission_order`` of the text in upstream's order of emission (one name a line), None if the order is
    unknown. Lists with the same content share a member of ``archive``.
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
    archive: Path
    member: str

    def names(self) -> tuple[str, ...]:
        """Read the names, sorted. The archive's text must have the manifest's sha256."""
        try:
            with zipfile.ZipFile(self.archive) as archive:
                data = archive.read(self.member)
        except (OSError, EOFError, KeyError, zipfile.BadZipFile, zlib.error) as error:
            raise TableError(
                f"{self.archive}:1: {self.member} can't be read: {error.args[-1]}. Restore the file."
            ) from error
        digest = hashlib.sha256(data).hexdigest()
        if digest != self.sha256:
            raise TableError(
                f"{self.archive}:1: sha256 of {self.member} is {digest}, manifest.json has {self.sha256}. "
                "Restore the file."
            )
        return tuple(data.decode().splitlines())


class _Entry(Record, frozen=True):
    version: str
    arch: str
    api: str
    receipts: tuple[int, ...]
    mask: str
    count: int
    sha256: str
    sha256_emission_order: str | None
    file: str
    families: tuple[str, ...] = ()


class GoldenManifest(Record, frozen=True):
    """The record of golden/manifest.json."""

    format: str
    provenance: dict[str, Any]
    entries: tuple[_Entry, ...]


@functools.cache
def stored_lists(folder: Path = GOLDEN) -> tuple[StoredList, ...]:
    """Read ``folder``/manifest.json."""
    manifest = read_table(folder / "manifest.json", GoldenManifest).record  # JSON is YAML, too
    return tuple(
        StoredList(
            dialect=entry.version,
            arch=entry.arch,
            api=entry.api,
            families=entry.families or APIS.get(entry.api, (entry.api,)),  # lists of one family of an API name it
            receipt=receipt,
            mask_impl=entry.mask,
            count=entry.count,
            sha256=entry.sha256,
            sha256_emission_order=entry.sha256_emission_order,
            archive=folder / "lists.zip",
            member=entry.file,
        )
        for entry in manifest.entries
        for receipt in entry.receipts
    )


def emission_sha256(names: Iterable[str]) -> str:
    """Compute the sha256 of names in their order, to compare with ``StoredList.sha256_emission_order``."""
    return hashlib.sha256("".join(f"{name}\n" for name in names).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class OrderDifference:
    """The first position, from 0, where the common names of two lists differ, and the two names there."""

    position: int
    matrix: str
    upstream: str


@dataclass(frozen=True, slots=True)
class NameDifference:
    """The differences of the matrix's names from upstream's.

    ``missing`` names are upstream's alone, ``extra`` names (repetitions, too) the matrix's alone. ``order_differs`` is
    the first difference of order. ``common`` counts the names that both have.
    """

    missing: tuple[str, ...]
    extra: tuple[str, ...]
    order_differs: OrderDifference | None
    common: int

    @property
    def count(self) -> int:
        """The number of names that one list alone has."""
        return len(self.missing) + len(self.extra)

    @property
    def same(self) -> bool:
        return not (self.missing or self.extra or self.order_differs)

    def lines(self) -> tuple[str, ...]:
        """Return the difference in one line and its description, nothing for equal lists."""
        if self.same:
            return ()
        kinds = (("missing", self.missing), ("extra", self.extra))
        parts = [f"{len(names)} {kind} ({names[0]}{', ..' * (len(names) > 1)})" for kind, names in kinds if names]
        parts += [f"the order differs from position {self.order_differs.position} on"] if self.order_differs else []
        return ("; ".join(parts), self.describe())

    def describe(self) -> str:
        """Describe the difference in several lines: counts, some names of each kind, the first difference of order."""
        if self.same:
            return "the names are the same, in the same order"
        lines = [*_excerpt("missing", self.missing), *_excerpt("extra", self.extra)]
        if first := self.order_differs:
            lines += [
                f"the order differs from position {first.position} on (of the names that both have):",
                f"  ours   {first.matrix}",
                f"  theirs {first.upstream}",
            ]
        return "\n".join(lines)


def compare_names(matrix_names: Sequence[str], upstream_names: Sequence[str]) -> NameDifference:
    """Compare two lists of names, repetitions and order included.

    Names of only one list don't count as a difference of order. Pass lists without an order sorted.
    """
    matrix_counts, upstream_counts = Counter(matrix_names), Counter(upstream_names)
    both = matrix_counts & upstream_counts
    pairs = zip(_take(matrix_names, both), _take(upstream_names, both), strict=True)
    order = next((OrderDifference(i, a, b) for i, (a, b) in enumerate(pairs) if a != b), None)
    return NameDifference(
        missing=tuple((upstream_counts - matrix_counts).elements()),
        extra=tuple((matrix_counts - upstream_counts).elements()),
        order_differs=order,
        common=both.total(),
    )


def _take(names: Sequence[str], counts: Counter[str]) -> list[str]:
    """Return the names in their order, each at most as often as ``counts`` allows."""
    left = counts.copy()
    kept = []
    for name in names:
        if left[name] > 0:
            left[name] -= 1
            kept.append(name)
    return kept


def _excerpt(kind: str, names: Sequence[str]) -> list[str]:
    if not names:
        return []
    rest = [f"  and {len(names) - _SHOWN} more"] if len(names) > _SHOWN else []
    return [f"{len(names)} {kind}:", *(f"  {name}" for name in names[:_SHOWN]), *rest]
