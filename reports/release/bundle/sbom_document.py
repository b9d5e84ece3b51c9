"""The software bill of materials, CycloneDX 1.6 as JSON: every file of a bundle, and the materials of the libraries."""

from __future__ import annotations

import datetime
import json
import uuid
from collections.abc import Mapping

from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from ckpm.reports.release.bundle.sbom import package_of, pins
from ckpm.reports.release.qualification.verdict import Verdict


def sbom(name: str, sums: Mapping[str, str], verdict: Verdict, requirements: str) -> bytes:
    """The document. ``sums`` is sha256 of the files by name. Raises as :func:`package_of`."""
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


def _file(name: str, digest: str) -> Component:
    return Component(name=name, type=ComponentType.FILE, bom_ref=f"file:{name}", hashes=[_sha256(digest)])


def _package(name: str, version: str, hashes: tuple[HashType, ...] = ()) -> Component:
    purl = PackageURL("pypi", None, name, version)
    return Component(
        name=name, version=version, type=ComponentType.LIBRARY, bom_ref=str(purl), purl=purl, hashes=hashes
    )


def _sha256(digest: str) -> HashType:
    return HashType(alg=HashAlgorithm.SHA_256, content=digest)
