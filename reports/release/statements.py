"""Statements about a bundle's files: provenance, and the software bill of materials.

Provenance is an in-toto Statement v1 with SLSA's predicate v1. It lists the inputs and commands of every file, without
time and machine's path. The signer of SHA256SUMS vouches for it. The bill of materials is CycloneDX 1.6 as JSON.
"""

from __future__ import annotations

import datetime
import json
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ckpm.base.errors import TrustError
from ckpm.base.records import Source, Value, as_text
from ckpm.reports.release.contents import REQUIREMENTS
from ckpm.reports.release.stages import Step
from ckpm.reports.release.verdict import Verdict

STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "https://slsa.dev/provenance/v1"
BUILD_TYPE = "urn:ckpm:release-qualification:v1"
LOCAL_BUILDER = "urn:ckpm:builder:local"  # SLSA's builder.id without a named platform
_IDENTITY = re.compile(r"(?P<name>\S+) (?P<version>\S+) sha256:(?P<sha256>[0-9a-f]{64})")
_PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The builder, as a URI, and the sha256 of the compiler's program."""

    builder: str
    compiler_sha256: str


def provenance(sums: Mapping[str, str], verdict: Verdict, steps: Sequence[Step], origin: Origin) -> bytes:
    """The document. ``sums`` is sha256 by name and includes requirements.txt. Raises TrustError."""
    facts = verdict.facts
    document = {
        "_type": STATEMENT,
        "subject": [{"name": name, "digest": {"sha256": digest}} for name, digest in sorted(sums.items())],
        "predicateType": PREDICATE,
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": {
                    "archs": list(verdict.archs),
                    "upstream": facts.upstream,
                    "tier": facts.tier,
                    "toolchain": verdict.toolchain,
                },
                "internalParameters": {"commands": [step.shown for step in steps]},
                "resolvedDependencies": _materials(sums, verdict, origin),
            },
            "runDetails": {"builder": {"id": origin.builder}},
        },
    }
    return as_text(document)


def _materials(sums: Mapping[str, str], verdict: Verdict, origin: Origin) -> list[dict[str, Any]]:
    package, version, digest = package_of(verdict.facts.upstream_identity)
    images = [image.partition("@sha256:") for image in verdict.images]
    return [
        {"name": "ck-prefill-matrix", "digest": {"gitCommit": verdict.facts.commit}},
        {"name": "upstream", "uri": f"pkg:pypi/{package}@{version}", "digest": {"sha256": digest}},
        {"name": verdict.facts.toolchain, "digest": {"sha256": origin.compiler_sha256}},
        {"name": REQUIREMENTS, "digest": {"sha256": sums[REQUIREMENTS]}},
        *({"name": f"image {name}", "digest": {"sha256": actual}} for name, _, actual in images),
    ]


def demand_true(file: Path, sums: Mapping[str, str], verdict: Verdict, steps: Sequence[Step]) -> None:
    """Raise TrustError unless a release writes this provenance of these files and this verdict."""
    remedy = "Don't use the bundle; take it again from where it was published."
    document = Source(place=file, what="an in-toto statement", remedy=remedy, error=TrustError).read()
    subjects = {one.get("name").text(): _sha256_of(one) for one in document.get("subject").items()}
    predicate = document.get("predicate")
    materials = predicate.get("buildDefinition").get("resolvedDependencies").items()
    compilers = [_sha256_of(one) for one in materials if one.get("name").text() == verdict.facts.toolchain]
    origin = Origin(
        builder=predicate.get("runDetails").get("builder").get("id").text(), compiler_sha256="".join(compilers)
    )
    for name in sorted(subjects.keys() | sums.keys()):
        if subjects.get(name) != sums.get(name):
            said, actual = subjects.get(name, "none"), sums.get(name, "none")
            raise TrustError(f"{file}: {name}: its subject has sha256 {said}, the file {actual}.", kind="statement")
    if file.read_bytes() != provenance(sums, verdict, steps, origin):
        raise TrustError(f"{file}: contradicts verdict and records.", kind="statement")


def _sha256_of(one: Value) -> str:
    return one.get("digest").get("sha256").text()


def package_of(identity: str) -> tuple[str, str, str]:
    """Package, version and sha256 of a packaged upstream. Raises TrustError: not an identity of a package."""
    match = _IDENTITY.fullmatch(identity)
    if not match:
        raise TrustError(
            f"upstream {identity!r}: no package with a version and a sha256, so it is not pinned.", kind="statement"
        )
    return match["name"], match["version"], match["sha256"]


def pins(requirements: str) -> list[tuple[str, str]]:
    """Name and version of every package of a requirements.txt that pip-compile wrote."""
    return _PIN.findall(requirements)


def demand_complete(file: Path, sums: Mapping[str, str]) -> None:
    """Raise TrustError if the SBOM lacks a file, has one more, or another sha256. The message names it."""
    remedy = "Don't use the bundle; take it again from where it was published."
    document = Source(place=file, what="a CycloneDX SBOM", remedy=remedy, error=TrustError).read()
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
    digests = [one.get("content").text() for one in part.get("hashes").items() if one.get("alg").text() == "SHA-256"]
    return digests[0] if digests else ""


def sbom(name: str, sums: Mapping[str, str], verdict: Verdict, requirements: str) -> bytes:
    """The bill of materials. ``sums`` is sha256 of the files by name. Raises as :func:`package_of`."""
    from cyclonedx.model import HashAlgorithm, HashType  # here: no other command waits for CycloneDX
    from cyclonedx.model.bom import Bom
    from cyclonedx.model.component import Component, ComponentType
    from cyclonedx.output.json import JsonV1Dot6
    from packageurl import PackageURL

    def part(name: str, kind: ComponentType, ref: str, digest: str = "", **more: Any) -> Component:
        hashes = [HashType(alg=HashAlgorithm.SHA_256, content=digest)] if digest else []
        return Component(name=name, type=kind, bom_ref=ref, hashes=hashes, **more)

    def package(name: str, version: str, digest: str = "") -> Component:
        purl = PackageURL("pypi", None, name, version)
        return part(name, ComponentType.LIBRARY, str(purl), digest, version=version, purl=purl)

    bom = Bom(serial_number=uuid.uuid5(uuid.NAMESPACE_OID, json.dumps(dict(sorted(sums.items())))))
    bom.metadata.timestamp = datetime.datetime.fromtimestamp(verdict.epoch, datetime.UTC)
    root = part(name, ComponentType.APPLICATION, name, version=verdict.facts.commit)
    bom.metadata.component = root
    parts = [part(file, ComponentType.FILE, f"file:{file}", digest) for file, digest in sorted(sums.items())]
    parts.append(package(*package_of(verdict.facts.upstream_identity)))
    parts += [package(*pin) for pin in pins(requirements)]
    identity = verdict.facts.toolchain
    parts.append(part(identity, ComponentType.APPLICATION, f"toolchain:{identity}"))
    for image in verdict.images:
        reference, _, digest = image.partition("@sha256:")
        parts.append(part(reference, ComponentType.CONTAINER, image, digest))
    bom.components.update(parts)
    bom.register_dependency(root, parts)
    return f"{JsonV1Dot6(bom).output_as_string(indent=1)}\n".encode()
