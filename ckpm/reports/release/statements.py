"""Provenance of a bundle's files, and its DSSE envelope.

Provenance is an in-toto Statement v1 with SLSA's predicate v1. It lists the inputs and commands of every file, without
time and machine's path. The signers of SHA256SUMS and of the envelope vouch for it.
"""

from __future__ import annotations

import base64
import json
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ckpm.base.errors import TrustError
from ckpm.base.records import Source, Value, as_text
from ckpm.kernels.library.manifest import Manifest
from ckpm.kernels.upstream.trees import OWN_HEADERS
from ckpm.reports.release.contents import REQUIREMENTS
from ckpm.reports.release.stages import StageStep
from ckpm.reports.release.verdict import ReleaseVerdict

STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "https://slsa.dev/provenance/v1"
BUILD_TYPE = "urn:ckpm:release-qualification:v1"
LIBRARY_BUILD_TYPE = "urn:ckpm:build:v1"
LOCAL_BUILDER = "urn:ckpm:builder:local"  # SLSA's builder.id without a named platform
_IDENTITY = re.compile(r"(?P<name>\S+) (?P<version>\S+) sha256:(?P<sha256>[0-9a-f]{64})")
_PAYLOAD_TYPE = "application/vnd.in-toto+json"
_REMEDY = "Don't use the bundle; take it again from where it was published."


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The origin of a bundle, as URIs: its builder, the repository, and this run ('': made of the files' digests).

    ``compiler_sha256`` is of the compiler's program. ``source`` is '' without a repository on the network.
    """

    builder: str
    compiler_sha256: str
    source: str = ""
    invocation: str = ""


def provenance(sums: Mapping[str, str], verdict: ReleaseVerdict, steps: Sequence[StageStep], origin: Origin) -> bytes:
    """The provenance of a bundle. ``sums`` is sha256 by name and includes requirements.txt."""
    facts = verdict.facts
    run = uuid.uuid5(uuid.NAMESPACE_OID, json.dumps([facts.commit, dict(sorted(sums.items()))]))
    definition = {
        "buildType": BUILD_TYPE,
        "externalParameters": {
            "archs": list(verdict.archs),
            "upstream": facts.upstream,
            "tier": facts.tier,
            "toolchain": verdict.toolchain,
        },
        "internalParameters": {"commands": [step.shown for step in steps]},
        "resolvedDependencies": _materials(sums, verdict, origin),
    }
    details = {"builder": {"id": origin.builder}, "metadata": {"invocationId": origin.invocation or run.urn}}
    return _statement(sums, definition, details)


def _statement(sums: Mapping[str, str], definition: Mapping[str, Any], details: Mapping[str, Any]) -> bytes:
    document = {
        "_type": STATEMENT,
        "subject": [{"name": name, "digest": {"sha256": digest}} for name, digest in sorted(sums.items())],
        "predicateType": PREDICATE,
        "predicate": {"buildDefinition": definition, "runDetails": details},
    }
    return as_text(document)


def _materials(sums: Mapping[str, str], verdict: ReleaseVerdict, origin: Origin) -> list[dict[str, Any]]:
    images = [image.partition("@sha256:") for image in verdict.images]
    return [
        *_sources(verdict.facts.commit, origin.source, verdict.facts.upstream_identity),
        {"name": verdict.facts.toolchain, "digest": {"sha256": origin.compiler_sha256}},
        {"name": REQUIREMENTS, "digest": {"sha256": sums[REQUIREMENTS]}},
        *({"name": f"image {name}", "digest": {"sha256": actual}} for name, _, actual in images),
    ]


def _sources(commit: str, source: str, *upstreams: str) -> list[dict[str, Any]]:
    """The project and the packages of upstreams, by their identities."""
    uri = {"uri": f"{source}@{commit}"} if source else {}
    listed: list[dict[str, Any]] = [{"name": "ck-prefill-matrix", **uri, "digest": {"gitCommit": commit}}]
    for package, version, digest in map(package_of, upstreams):
        listed.append({"name": "upstream", "uri": f"pkg:pypi/{package}@{version}", "digest": {"sha256": digest}})
    return listed


def library_provenance(sums: Mapping[str, str], manifests: Mapping[str, Manifest], commit: str, source: str) -> bytes:
    """The statement in a wheel of prebuilt libraries. ``sums`` is sha256 by file, ``manifests`` are by arch."""
    identities = sorted({manifest.upstream_identity.partition(OWN_HEADERS)[0] for manifest in manifests.values()})
    definition = {
        "buildType": LIBRARY_BUILD_TYPE,
        "externalParameters": {arch: manifest.selection for arch, manifest in manifests.items()},
        "internalParameters": {
            arch: {"compiler": manifest.identity, "flags": manifest.flags, "link_flags": manifest.link_flags}
            for arch, manifest in manifests.items()
        },
        "resolvedDependencies": _sources(commit, source, *identities),
    }
    return _statement(sums, definition, {"builder": {"id": LOCAL_BUILDER}})


def demand_true(file: Path, sums: Mapping[str, str], verdict: ReleaseVerdict, steps: Sequence[StageStep]) -> None:
    """Raise TrustError unless a release writes this provenance of these files and this verdict."""
    document = Source(location=file, what="an in-toto statement", remedy=_REMEDY, error=TrustError).read()
    subjects = {subject.get("name").text(): _sha256_of(subject) for subject in document.get("subject").items()}
    predicate = document.get("predicate")
    materials = predicate.get("buildDefinition").get("resolvedDependencies").items()
    compilers = [
        _sha256_of(material) for material in materials if material.get("name").text() == verdict.facts.toolchain
    ]
    run = predicate.get("runDetails")
    sources = [
        material.optional("uri", Value.text, "")
        for material in materials
        if "gitCommit" in material.get("digest").members()
    ]
    origin = Origin(
        builder=run.get("builder").get("id").text(),
        compiler_sha256="".join(compilers),
        source="".join(sources).removesuffix(f"@{verdict.facts.commit}"),
        invocation=run.get("metadata").get("invocationId").nonempty_text(),
    )
    for name in sorted(subjects.keys() | sums.keys()):
        if subjects.get(name) != sums.get(name):
            listed, actual = subjects.get(name, "none"), sums.get(name, "none")
            raise TrustError(f"{file}: {name}: its subject has sha256 {listed}, the file {actual}.", kind="statement")
    if file.read_bytes() != provenance(sums, verdict, steps, origin):
        raise TrustError(f"{file}: contradicts verdict and records.", kind="statement")


def _sha256_of(descriptor: Value) -> str:
    return descriptor.get("digest").get("sha256").text()


def package_of(identity: str) -> tuple[str, str, str]:
    """Package, version and sha256 of a packaged upstream."""
    match = _IDENTITY.fullmatch(identity)
    if not match:
        raise TrustError(
            f"upstream {identity!r}: no package with a version and a sha256, so it is not pinned.", kind="statement"
        )
    return match["name"], match["version"], match["sha256"]


def signed_text(statement: bytes) -> bytes:
    """The bytes that the envelope's signature covers: DSSE's pre-authentication encoding."""
    return b"DSSEv1 %d %s %d %s" % (len(_PAYLOAD_TYPE), _PAYLOAD_TYPE.encode(), len(statement), statement)


def envelope(statement: bytes, signatures: Sequence[str]) -> bytes:
    """A DSSE envelope on one line, as cosign and slsa-verifier read it. ``signatures`` are in base64."""
    document = {
        "payloadType": _PAYLOAD_TYPE,
        "payload": base64.b64encode(statement).decode(),
        "signatures": [{"keyid": "", "sig": signature} for signature in signatures],
    }
    return f"{json.dumps(document)}\n".encode()


def demand_envelope(file: Path, statement: bytes) -> None:
    """Raise TrustError unless the file is an envelope of this statement, whoever signed it."""
    document = Source(location=file, what="a DSSE envelope", remedy=_REMEDY, error=TrustError).read()
    signatures = [signature.get("sig").text() for signature in document.get("signatures").items()]
    if file.read_bytes() != envelope(statement, signatures):
        raise TrustError(f"{file}: an envelope of another statement.", kind="statement")
