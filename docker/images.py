"""Read docker/images.yaml: bases, purposes, images."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ckpm.base.errors import UnknownWordError
from ckpm.base.tablefile import Field, load
from ckpm.matrix.dialects import archs, upstreams

FOLDER = Path(__file__).resolve().parent
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_SIZE = re.compile(r"[1-9][0-9]*[kmg]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """Base of an image: a Debian ``suite`` that is bootstrapped here, or a ``reference`` of a registry.

    ``epoch`` is the time of every file in the image, in seconds since 1970. ``packages`` are added by each purpose.
    """

    name: str
    epoch: int
    rocm: str
    packages: Mapping[str, tuple[str, ...]]
    suite: str = ""
    reference: str = ""
    digest: str = ""

    @property
    def pinned(self) -> str:
        """``name:tag@digest`` of a registry's image."""
        return f"{self.reference}@{self.digest}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Purpose:
    """Purpose of an image. ``lineage``: this and the extended purposes, smallest first. ``shm_size`` like 16g."""

    name: str
    lineage: tuple[str, ...]
    healthcheck: tuple[str, ...]
    devices: tuple[str, ...] = ()
    shm_size: str = ""


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
    def healthcheck(self) -> tuple[str, ...]:
        return self.purpose.healthcheck

    @property
    def is_local(self) -> bool:
        """True if it is built without a registry."""
        return bool(self.base.suite)


@functools.cache
def images(file: Path = FOLDER / "images.yaml") -> Mapping[str, Image]:
    """All images by name."""
    table = load(file)
    table.allow(("purposes", "bases", "images"))
    purposes = _purposes(table.get("purposes"))
    bases = {name: _base(name, field, purposes) for name, field in table.get("bases").mapping().items()}
    return {name: _image(name, field, bases, purposes) for name, field in table.get("images").mapping().items()}


def image(name: str) -> Image:
    """The image of this name. Raises UnknownWordError."""
    if name not in images():
        raise UnknownWordError("image", name, images())
    return images()[name]


def _purposes(table: Field) -> dict[str, Purpose]:
    purposes: dict[str, Purpose] = {}
    for name, field in table.mapping().items():
        field.allow(("extends", "healthcheck", "devices", "shm_size"))
        parent = field.find("extends")
        if parent and parent.text() not in purposes:
            raise parent.fail(f"no purpose above it has this name; there are {', '.join(purposes) or 'none'}")
        size = field.find("shm_size")
        if size and not _SIZE.fullmatch(size.text()):
            raise size.fail("must be a number with k, m or g, like 16g")
        devices = field.find("devices")
        purposes[name] = Purpose(
            name=name,
            lineage=(*(purposes[parent.text()].lineage if parent else ()), name),
            healthcheck=field.get("healthcheck").texts(),
            devices=devices.texts() if devices else (),
            shm_size=size.text() if size else "",
        )
    return purposes


def _base(name: str, field: Field, purposes: Mapping[str, Purpose]) -> Base:
    field.allow(("suite", "reference", "digest", "epoch", "rocm", "packages"))
    suite, reference = field.find("suite"), field.find("reference")
    if (suite is None) == (reference is None):
        raise field.fail("needs either a suite of Debian or a reference of a registry")
    packages = field.get("packages")
    packages.allow(purposes)
    base = Base(
        name=name,
        epoch=field.get("epoch").integer(),
        rocm=field.get("rocm").text(),
        packages={purpose: packages.get(purpose).texts() for purpose in purposes},
    )
    if suite is not None:
        if digest := field.find("digest"):
            raise digest.fail("a suite has none: its packages are recorded in docker/locks")
        return dataclasses.replace(base, suite=suite.text())
    reference, digest = field.get("reference"), field.get("digest")
    if not _DIGEST.fullmatch(digest.text()):
        raise digest.fail("must be sha256: and 64 hexadecimal digits")
    if ":" not in reference.text():
        raise reference.fail("must name a tag for people; the image is pulled by its digest")
    return dataclasses.replace(base, reference=reference.text(), digest=digest.text())


def _image(name: str, field: Field, bases: Mapping[str, Base], purposes: Mapping[str, Purpose]) -> Image:
    field.allow(("base", "purpose", "archs", "ck", "tested"))
    base, purpose, ck = field.get("base"), field.get("purpose"), field.find("ck")
    for word, known in ((base, bases), (purpose, purposes)):
        if word.text() not in known:
            raise word.fail(f"is none of {', '.join(known)}")
    for arch in field.get("archs").items():
        if arch.text() not in archs():
            raise arch.fail(f"is none of {', '.join(archs())}")
    packages = [name for name, package in upstreams().items() if package.base == name]
    if ck and ck.text() not in packages:
        raise ck.fail(f"is none of {', '.join(packages)}")
    return Image(
        name=name,
        base=bases[base.text()],
        purpose=purposes[purpose.text()],
        archs=field.get("archs").texts(),
        ck=ck.text() if ck else "",
        tested=field.get("tested").boolean(),
    )
