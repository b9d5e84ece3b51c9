"""Read docker/images.yaml: bases, purposes, images."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from ckpm.base.errors import UnknownWordError
from ckpm.base.paths import data
from ckpm.base.tablefile import Later, Record, Table, add_names, read_table
from ckpm.matrix.dialects import archs, upstreams

FOLDER = data("docker")


class Purpose(Record, frozen=True):
    """Purpose of an image. ``lineage``: this and the extended purposes, smallest first. ``shm_size`` like 16g."""

    healthcheck: tuple[str, ...]
    extends: str | None = None
    devices: tuple[str, ...] = ()
    shm_size: Annotated[str, Meta(pattern="^[1-9][0-9]*[kmg]$")] = ""
    name: Later = ""
    lineage: Annotated[tuple[str, ...], Meta(max_length=0)] = ()  # set by images()


class Base(Record, frozen=True):
    """Base of an image: a Debian ``suite`` that is bootstrapped here, or a ``reference`` of a registry.

    ``epoch`` is the time of every file in the image, in seconds since 1970. ``packages``: for each
    purpose, the packages that it adds.
    """

    epoch: int
    rocm: str
    packages: dict[str, tuple[str, ...]]
    suite: str = ""
    reference: Annotated[str, Meta(pattern=":")] = ""  # with a tag for people; the image is pulled by its digest
    digest: Annotated[str, Meta(pattern="^sha256:[0-9a-f]{64}$")] = ""
    name: Later = ""

    @property
    def pinned(self) -> str:
        """``name:tag@digest`` of a registry's image."""
        return f"{self.reference}@{self.digest}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """An image. ``ck`` is a packaged upstream or ''; ``tested`` is True if the image was built and run."""

    name: str
    base: Base
    purpose: Purpose
    archs: tuple[str, ...]
    ck: str = ""
    tested: bool = False

    @property
    def layers(self) -> tuple[tuple[str, ...], ...]:
        """Packages of each layer. Images of one base share the layers of the smaller purposes."""
        added = (self.base.packages[purpose] for purpose in self.purpose.lineage)
        return tuple(packages for packages in added if packages)

    @property
    def has_rocm(self) -> bool:
        """Return True if the image contains ROCm's compiler."""
        return "build" in self.purpose.lineage

    @property
    def is_local(self) -> bool:
        """Return True if the image is built without a registry."""
        return bool(self.base.suite)


class _Image(Record, frozen=True):
    base: str
    purpose: str
    archs: tuple[str, ...]
    tested: bool
    ck: str = ""


class ImageTable(Record, frozen=True):
    """The record of images.yaml."""

    purposes: dict[str, Purpose]
    bases: dict[str, Base]
    images: dict[str, _Image]


@functools.cache
def images(file: Path = FOLDER / "images.yaml") -> Mapping[str, Image]:
    """All images by name."""
    table = read_table(file, ImageTable)
    purposes: dict[str, Purpose] = {}
    for name, purpose in add_names(table.record.purposes).items():
        above: tuple[str, ...] = ()
        if purpose.extends is not None:
            table.demand_known(purpose.extends, purposes, "purposes", name, "extends")
            above = purposes[purpose.extends].lineage
        purposes[name] = msgspec.structs.replace(purpose, lineage=(*above, name))
    bases = add_names(table.record.bases)
    for base in bases.values():
        _check_base(table, base)
    packages = [name for name, package in upstreams().items() if package.base == name]
    by_name = {}
    for name, row in table.record.images.items():
        choices: dict[str, Collection[str]] = {
            "base": bases,
            "purpose": purposes,
            "archs": archs(),
            **({"ck": packages} if row.ck else {}),
        }
        for field, names in choices.items():
            table.demand_known(getattr(row, field), names, "images", name, field)
        fields = {**msgspec.structs.asdict(row), "base": bases[row.base], "purpose": purposes[row.purpose]}
        by_name[name] = Image(name=name, **fields)
    return by_name


def _check_base(table: Table[ImageTable], base: Base) -> None:
    if bool(base.suite) == bool(base.reference):
        raise table.fail("needs either a suite of Debian or a reference of a registry", "bases", base.name)
    if bool(base.reference) != bool(base.digest):  # the packages of a suite are recorded in docker/locks
        raise table.fail("a reference has a digest, a suite has none", "bases", base.name)
    if set(base.packages) != set(table.record.purposes):
        raise table.fail(f"must have {', '.join(table.record.purposes)}", "bases", base.name, "packages")


def image(name: str) -> Image:
    """The image of this name."""
    if name not in images():
        raise UnknownWordError("image", name, images())
    return images()[name]
