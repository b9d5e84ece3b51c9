"""The software bill of materials, CycloneDX 1.6 as JSON: every file of a bundle, and what the libraries are made of."""

from __future__ import annotations

import datetime
import json
import re
import uuid
from collections.abc import Mapping
from pathlib import Path

from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from kernels.base.records import Source, Value
from reports.errors import StatementError
from reports.release.qualification.verdict import Verdict

_IDENTITY = re.compile(r"(?P<name>\S+) (?P<version>\S+) sha256:(?P<sha256>[0-9a-f]{64})")
_PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", re.MULTILINE)


def package_of(identity: str) -> tuple[str, str, str]:
    """Package, version and sha256 of a packaged upstream. Raises StatementError: the identity of something else."""
    match = _IDENTITY.fullmatch(identity)
    if not match:
        raise StatementError(f"upstream {identity!r}: no package with a version and a sha256, so it is not pinned.")
    return match["name"], match["version"], match["sha256"]


def pins(requirements: str) -> list[tuple[str, str]]:
    """Name and version of every package of a requirements.txt that pip-compile wrote."""
    return _PIN.findall(requirements)


def sbom(name: str, sums: Mapping[str, str], verdict: Verdict, requirements: str) -> bytes:
    """The document; ``sums`` is sha256 of the files by name. Raises StatementError, as :func:`package_of`."""
    bom = Bom(serial_number=uuid.uuid5(uuid.NAMESPACE_OID, json.dumps(dict(sorted(sums.items())))))
    bom.metadata.timestamp = datetime.datetime.fromtimestamp(verdict.epoch, datetime.UTC)
    root = Component(name=name, version=verdict.facts.commit, type=ComponentType.APPLICATION, bom_ref=name)
    bom.metadata.component = root
    parts = [_file(file, digest) for file, digest in sorted(sums.items())]
    package, version, digest = package_of(verdict.facts.upstream_identity)
    parts.append(_package(package, version, (_sha256(digest),)))
    parts += [_package(*pin) for pin in pins(requirements)]
    identity = verdict.facts.toolchain
    parts.append(Component(name=identity, type=ComponentType.APPLICATION, bom_ref=f"toolchain:{identity}"))
    for image in verdict.images:
        reference, _, digest = image.partition("@sha256:")
        parts.append(Component(name=reference, type=ComponentType.CONTAINER, bom_ref=image, hashes=[_sha256(digest)]))
    bom.components.update(parts)
    bom.register_dependency(root, parts)
    return f"{JsonV1Dot6(bom).output_as_string(indent=1)}\n".encode()


def demand_complete(file: Path, sums: Mapping[str, str]) -> None:
    """Raises StatementError: the SBOM lacks a file, has one more, or another sha256. The message names it."""
    remedy = "Don't use the bundle; take it again from where it was published."
    document = Source(place=file, what="a CycloneDX SBOM", remedy=remedy, error=StatementError).read()
    files = [part for part in document.get("components").items() if part.get("type").text() == "file"]
    listed = {part.get("name").text(): _listed_sha256(part) for part in files}
    lines = [
        f"{name}: {'not listed' if name not in listed else 'no such file' if name not in sums else 'another sha256'}"
        for name in sorted(listed.keys() | sums.keys())
        if listed.get(name) != sums.get(name)
    ]
    if lines:
        raise StatementError(f"{file}: speaks of other files than the bundle's:\n  " + "\n  ".join(lines))


def _listed_sha256(part: Value) -> str:
    """Of a file's component; '' if it has none."""
    digests = [one.get("content").text() for one in part.get("hashes").items() if one.get("alg").text() == "SHA-256"]
    return digests[0] if digests else ""


def _file(name: str, digest: str) -> Component:
    return Component(name=name, type=ComponentType.FILE, bom_ref=f"file:{name}", hashes=[_sha256(digest)])


def _package(name: str, version: str, hashes: tuple[HashType, ...] = ()) -> Component:
    purl = PackageURL("pypi", None, name, version)
    return Component(
        name=name, version=version, type=ComponentType.LIBRARY, bom_ref=str(purl), purl=purl, hashes=hashes
    )


def _sha256(digest: str) -> HashType:
    return HashType(alg=HashAlgorithm.SHA_256, content=digest)
