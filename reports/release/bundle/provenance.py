"""Provenance: an in-toto Statement v1 with SLSA's predicate v1. It lists the inputs and commands of every file.

It has no time and no machine's path. The signer of SHA256SUMS vouches for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ckpm.base.errors import TrustError
from ckpm.base.records import Source, Value, as_text
from ckpm.reports.release.bundle.names import REQUIREMENTS
from ckpm.reports.release.bundle.sbom import package_of
from ckpm.reports.release.qualification.stages import Step
from ckpm.reports.release.qualification.verdict import Verdict

STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "https://slsa.dev/provenance/v1"
BUILD_TYPE = "urn:ckpm:release-qualification:v1"
LOCAL_BUILDER = "urn:ckpm:builder:local"  # SLSA's builder.id without a named platform


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
