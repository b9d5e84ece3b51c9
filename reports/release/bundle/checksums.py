"""SHA256SUMS: the sha256 of every file of a bundle by its full path, as ``sha256sum --check`` reads it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from ckpm.base.bounded import read_bytes
from ckpm.base.errors import TrustError
from ckpm.base.files import sha256_of
from ckpm.reports.release.bundle.names import CHECKSUMS, SIGNATURE

_LARGEST = 4 << 30  # bytes
_LINE = re.compile(r"([0-9a-f]{64})  ([^\n]+)")


def text_of(sums: Mapping[str, str]) -> str:
    """The file's content, sorted by name. ``sums`` is sha256 by name."""
    return "".join(f"{sums[name]}  {name}\n" for name in sorted(sums))


def demand_listed(folder: Path, files: list[str]) -> Mapping[str, str]:
    """sha256 by name of every file but SHA256SUMS and its signature; each must be as listed.

    ``files`` are the names of all files in the folder.

    Raises:
        TrustError: SHA256SUMS is missing or malformed, or a file is changed, missing, or not listed.
    """
    listed = _read_sums(folder)
    present = set(files) - {CHECKSUMS, SIGNATURE}
    missing, added = sorted(listed.keys() - present), sorted(present - listed.keys())
    lines = [f"{name}: missing, {CHECKSUMS} lists it" for name in missing]
    lines += [f"{name}: not listed in {CHECKSUMS}" for name in added]
    for name in sorted(listed.keys() & present):
        if (folder / name).stat().st_size > _LARGEST:
            raise TrustError(
                f"{folder}/{name}: it has more than {_LARGEST >> 30} GiB, as no file of a release.", kind="bundle-file"
            )
        actual = sha256_of(folder / name)
        if actual != listed[name]:
            lines.append(f"{name}: its sha256 is {actual}, {CHECKSUMS} lists {listed[name]}")
    if lines:
        raise TrustError(f"{folder}: not the bundle that was released:\n  " + "\n  ".join(lines), kind="bundle-file")
    return listed


def _read_sums(folder: Path) -> dict[str, str]:
    try:
        text = read_bytes(folder / CHECKSUMS).decode("ascii")
    except (OSError, ValueError) as error:
        raise TrustError(f"{folder}/{CHECKSUMS}: can't be read: {error}", kind="bundle-file") from error
    listed: dict[str, str] = {}
    for number, line in enumerate(text.split("\n")[:-1], start=1):
        match = _LINE.fullmatch(line)
        if not match:
            raise TrustError(
                f"{folder}/{CHECKSUMS}:{number}: no sha256, two spaces and a name: {line[:100]!r}", kind="bundle-file"
            )
        listed[match[2]] = match[1]
    if text_of(listed) != text:
        raise TrustError(
            f"{folder}/{CHECKSUMS}: not as a release writes it: each name once, in order.", kind="bundle-file"
        )
    return listed
