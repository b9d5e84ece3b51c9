"""docker/images.yaml as frozen dataclasses: bases, purposes, images."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ckpm.base.tablefile import Field, load
from ckpm.docker.errors import UnknownImageError
from ckpm.matrix.dialects import archs, upstreams

FOLDER = Path(__file__).parent
INSTALLED = FOLDER.parts[-3:-1] == ("ckpm", "rooms")  # from a wheel: no clone is around it
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_SIZE = re.compile(r"[1-9][0-9]*[kmg]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """What an image starts from: a Debian ``suite`` that is bootstrapped here, or a ``reference`` of a registry.

    ``epoch`` is the time of every file in the image, in seconds since 1970. ``packages`` is what each purpose adds.
    """

    name: str
    epoch: int
    rocm: str
    packages: Mapping[str, tuple[str, ...]]
    suite: str = ""
    reference: str = ""
    digest: str = ""
    verified: bool = True

    @property
    def pinned(self) -> str:
        """``name:tag@digest`` of a registry's image."""
        return f"{self.reference}@{self.digest}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Purpose:
    """``lineage`` is the purposes whose packages it has, the smallest first; ``shm_size`` like 16g, or ''."""

    name: str
    lineage: tuple[str, ...]
    healthcheck: tuple[str, ...]
    devices: tuple[str, ...] = ()
    shm_size: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """``ck`` is a packaged upstream, a commit of a checkout, or ''; ``tested`` says whether it was built and run."""

    name: str
    base: Base
    purpose: Purpose
    archs: tuple[str, ...]
    ck: str = ""
    tested: bool = False

    @property
    def layers(self) -> tuple[tuple[str, ...], ...]:
        """Packages of each layer, so that images of one base share the layers of the smaller purposes."""
        added = (self.base.packages[purpose] for purpose in self.purpose.lineage)
        return tuple(packages for packages in added if packages)

    @property
    def healthcheck(self) -> tuple[str, ...]:
        return self.purpose.healthcheck

    @property
    def ck_package(self) -> str:
        return self.ck if self.ck and not self.ck_commit else ""

    @property
    def ck_commit(self) -> str:
        return self.ck if _COMMIT.fullmatch(self.ck) else ""

    @property
    def is_local(self) -> bool:
        """Whether it can be built without a registry."""
        return bool(self.base.suite)


@functools.cache
def images(file: Path = FOLDER / "images.yaml") -> Mapping[str, Image]:
    """All images by name. Raises TableError."""
    table = load(file)
    table.allow(("purposes", "bases", "images"))
    purposes = _purposes(table.get("purposes"))
    bases = {name: _base(name, field, purposes) for name, field in table.get("bases").mapping().items()}
    return {name: _image(name, field, bases, purposes) for name, field in table.get("images").mapping().items()}


def image(name: str) -> Image:
    """Raises UnknownImageError."""
    if name not in images():
        raise UnknownImageError(name, images())
    return images()[name]


def _purposes(table: Field) -> dict[str, Purpose]:
    purposes: dict[str, Purpose] = {}
    for name, field in table.mapping().items():
        field.allow(("extends", "healthcheck", "devices", "shm_size"))
        parent = field.find("extends")
        if parent and parent.text() not in purposes:
            raise parent.fail(f"no purpose above has this name; there are {', '.join(purposes) or 'none'}")
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
    field.allow(("suite", "reference", "digest", "verified", "epoch", "rocm", "packages"))
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
        for word in ("digest", "verified"):
            if unfit := field.find(word):
                raise unfit.fail("a suite has none: its packages are recorded in docker/locks")
        return dataclasses.replace(base, suite=suite.text())
    reference, digest = field.get("reference"), field.get("digest")
    if not _DIGEST.fullmatch(digest.text()):
        raise digest.fail("must be sha256: and 64 hexadecimal digits")
    if ":" not in reference.text():
        raise reference.fail("must name a tag, for people; the digest is what is pulled")
    verified = field.get("verified").boolean()
    return dataclasses.replace(base, reference=reference.text(), digest=digest.text(), verified=verified)


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
    if ck and ck.text() not in packages and not _COMMIT.fullmatch(ck.text()):
        raise ck.fail(f"is neither {' nor '.join(packages)} nor a commit of 40 hexadecimal digits")
    tested = field.get("tested")
    if tested.boolean() and not bases[base.text()].verified:
        raise tested.fail("an image whose base was never pulled can't have been tested")
    return Image(
        name=name,
        base=bases[base.text()],
        purpose=purposes[purpose.text()],
        archs=field.get("archs").texts(),
        ck=ck.text() if ck else "",
        tested=tested.boolean(),
    )
