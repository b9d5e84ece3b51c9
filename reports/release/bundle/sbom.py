"""The software bill of materials: its inputs, and a check that it lists every file of a bundle."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from ckpm.base.errors import TrustError
from ckpm.base.records import Source, Value

_IDENTITY = re.compile(r"(?P<name>\S+) (?P<version>\S+) sha256:(?P<sha256>[0-9a-f]{64})")
_PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", re.MULTILINE)


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
