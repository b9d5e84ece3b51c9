"""The software bill of materials of a bundle, CycloneDX 1.6 as JSON.

It lists the files, the upstream, the toolchain, the images, and the packages of requirements.txt. Packages that no
library is made with, such as linters, have the scope ``excluded``.
"""

from __future__ import annotations

import datetime
import json
import re
import tomllib
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from ckpm.base.errors import TrustError
from ckpm.base.records import Source, Value
from ckpm.matrix.dialects import upstreams
from ckpm.reports.release.statements import package_of
from ckpm.reports.release.verdict import ReleaseVerdict

_PIN = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;\\]+)(?P<rest>.*(?:\n[ \t].*)*)", re.MULTILINE)
_HASH = re.compile(r"--hash=sha256:([0-9a-f]+)")
_USER = re.compile(r"^ +#(?: via)? +([A-Za-z0-9._-]+)$", re.MULTILINE)  # `# via nox`, or `#   nox` below `# via`
_WORD = re.compile(r"[A-Za-z0-9._-]+")
_TOOLCHAIN = re.compile(r"(?P<name>.+?) (?P<version>(?:HIP )?\d.*)")
_LICENSE = "MIT"  # pyproject.toml; a test compares
_LONGEST_LICENSE = 100  # characters: some packages have the whole text in this field


@dataclass(frozen=True, slots=True)
class Pin:
    """A package of requirements.txt. ``users`` are the packages that want it, ``hashes`` sha256 of its archives."""

    name: str
    version: str
    hashes: tuple[str, ...]
    users: frozenset[str]
    text: str


def pins(requirements: str) -> list[Pin]:
    """Every package of a requirements.txt that pip-compile wrote."""
    return [
        Pin(name, version, tuple(_HASH.findall(rest)), frozenset(_USER.findall(rest)), match[0])
        for match in _PIN.finditer(requirements)
        for name, version, rest in [match.groups()]
    ]


def find_needed(pinned: Sequence[Pin], direct: Iterable[str]) -> set[str]:
    """Names of the packages in ``direct``, and of their dependencies."""
    matches = {_WORD.match(name.lower().replace("_", "-")) for name in direct}
    names = {match[0] for match in matches if match}
    while more := {pin.name for pin in pinned if pin.users & names} - names:
        names |= more
    return names


def direct_dependencies(pyproject: Path) -> list[str]:
    """Packages that our distribution depends on."""
    listed: list[str] = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]["dependencies"]
    return listed


def license_of(name: str, version: str) -> str:
    """The license that an installed package declares, '' if another version or none is installed here."""
    try:
        fields = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        return ""
    if fields["Version"] != version:
        return ""
    classifiers = [line.rpartition(" :: ")[2] for line in fields.get_all("Classifier") or [] if "License ::" in line]
    declared = fields["License-Expression"] or " or ".join(classifiers) or fields["License"] or ""
    return declared if len(declared) <= _LONGEST_LICENSE and "\n" not in declared else ""


def demand_complete(file: Path, sums: Mapping[str, str]) -> None:
    """Raise TrustError if the SBOM lacks a file, has one more, or another sha256. The message names it."""
    remedy = "Don't use the bundle; take it again from where it was published."
    document = Source(location=file, what="a CycloneDX SBOM", remedy=remedy, error=TrustError).read()
    files = [part for part in document.get("components").items() if part.get("type").text() == "file"]
    listed = {part.get("name").text(): _listed_sha256(part) for part in files}
    lines = [
        f"{name}: {'not listed' if name not in listed else 'no such file' if name not in sums else 'another sha256'}"
        for name in sorted(listed.keys() | sums.keys())
        if listed.get(name) != sums.get(name)
    ]
    if lines:
        raise TrustError(f"{file}: lists other files than the bundle's:\n  " + "\n  ".join(lines), kind="statement")


def _listed_sha256(part: Value) -> str:
    """The sha256 in a file's component; '' if it has none."""
    digests = [
        checksum.get("content").text()
        for checksum in part.get("hashes").items()
        if checksum.get("alg").text() == "SHA-256"
    ]
    return digests[0] if digests else ""


def sbom(
    name: str,
    sums: Mapping[str, str],
    verdict: ReleaseVerdict,
    requirements: str,
    *,
    direct: Sequence[str],
    compiler: str,
) -> bytes:
    """Return the bill of materials. ``sums`` and ``compiler`` are sha256: of the files by name, of the compiler.

    ``direct`` are the packages that our distribution depends on.
    """
    from cyclonedx.contrib.license.factories import LicenseFactory  # here: no other command waits for CycloneDX
    from cyclonedx.model import HashAlgorithm, HashType
    from cyclonedx.model.bom import Bom
    from cyclonedx.model.component import Component, ComponentScope, ComponentType
    from cyclonedx.output.json import JsonV1Dot6
    from packageurl import PackageURL

    def part(name: str, kind: ComponentType, ref: str, *digests: str, terms: str = "", **more: Any) -> Component:
        hashes = [HashType(alg=HashAlgorithm.SHA_256, content=digest) for digest in digests]
        licenses = [LicenseFactory().make_from_string(terms)] if terms else []
        return Component(name=name, type=kind, bom_ref=ref, hashes=hashes, licenses=licenses, **more)

    def package(name: str, version: str, *digests: str, **more: Any) -> Component:
        purl = PackageURL("pypi", None, name, version)
        return part(name, ComponentType.LIBRARY, str(purl), *digests, version=version, purl=purl, **more)

    bom = Bom(serial_number=uuid.uuid5(uuid.NAMESPACE_OID, json.dumps(dict(sorted(sums.items())))))
    bom.metadata.timestamp = datetime.datetime.fromtimestamp(verdict.epoch, datetime.UTC)
    facts = verdict.facts
    bom.metadata.component = root = part(name, ComponentType.APPLICATION, name, terms=_LICENSE, version=facts.commit)
    parts = [part(file, ComponentType.FILE, f"file:{file}", digest) for file, digest in sorted(sums.items())]
    parts.append(package(*package_of(facts.upstream_identity), terms=upstreams()[facts.upstream].license))
    needed = find_needed(pinned := pins(requirements), direct)
    tools: list[Component] = []
    for pin in pinned:
        scope = ComponentScope.REQUIRED if pin.name in needed else ComponentScope.EXCLUDED
        component = package(pin.name, pin.version, *pin.hashes, terms=license_of(pin.name, pin.version), scope=scope)
        (parts if pin.name in needed else tools).append(component)
    match = _TOOLCHAIN.fullmatch(identity := facts.toolchain)
    toolchain, version = (match["name"], match["version"]) if match else (identity, None)
    parts.append(part(toolchain, ComponentType.APPLICATION, f"toolchain:{identity}", compiler, version=version))
    for image in verdict.images:
        reference, _, digest = image.partition("@sha256:")
        parts.append(part(reference, ComponentType.CONTAINER, image, digest))
    bom.components.update(parts + tools)
    bom.register_dependency(root, parts)
    return f"{JsonV1Dot6(bom).output_as_string(indent=1)}\n".encode()
