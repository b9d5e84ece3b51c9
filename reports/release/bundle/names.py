"""Allowed names of a bundle's files: plain relative paths that mean the same file on every system."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ckpm.base.errors import TrustError

CHECKSUMS = "SHA256SUMS"
SIGNATURE = "SHA256SUMS.sig"
PROVENANCE = "provenance.intoto.json"
SBOM = "sbom.cdx.json"
VERDICT = "verdict.json"
STAGES = "stages.yaml"
WAIVERS = "waivers.yaml"
LEDGER = "ledger.yaml"
REQUIREMENTS = "requirements.txt"
_PART = r"[A-Za-z0-9](?:[A-Za-z0-9._+-]*[A-Za-z0-9_+-])?"
_NAME = re.compile(rf"{_PART}(?:/{_PART})*")
_LONGEST = 200  # characters: what a header of a POSIX tar takes besides the bundle's own name


def demand_plain(names: Iterable[str], where: str) -> None:
    """Raise TrustError, with the name, unless all names are plain.

    A name must not lead elsewhere, be other than ASCII, occur twice, differ from another by case alone, or be both a
    file and a folder.
    """
    seen: dict[str, str] = {}
    for name in names:
        if len(name) > _LONGEST or not _NAME.fullmatch(name):
            raise TrustError(
                f"{where}: {name[:_LONGEST]!r}: not a name that a bundle can have. Don't unpack it.", kind="archive"
            )
        folded = name.lower()
        if other := seen.get(folded):
            what = "is there twice" if other == name else f"and {other!r} differ by case alone"
            raise TrustError(f"{where}: {name!r} {what}. Don't unpack it.", kind="archive")
        seen[folded] = name
    for folded, name in seen.items():
        parts = folded.split("/")
        for depth in range(1, len(parts)):
            if other := seen.get("/".join(parts[:depth])):
                raise TrustError(
                    f"{where}: {other!r} is a file and a folder, that of {name!r}. Don't unpack it.", kind="archive"
                )
