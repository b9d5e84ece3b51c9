"""Files of a bundle: their paths, allowed names, and SHA256SUMS, as ``sha256sum --check`` reads it.

Names are plain relative paths that mean the same file on every system.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

from ckpm.base.bounded import read_bytes
from ckpm.base.errors import TrustError
from ckpm.base.files import sha256_of
from ckpm.reports.release.record import Facts
from ckpm.reports.release.stages import PROJECT, StageStep

CHECKSUMS = "SHA256SUMS"
SIGNATURE = "SHA256SUMS.sig"
PROVENANCE = "provenance.intoto.json"
ENVELOPE = "provenance.intoto.jsonl"
SBOM = "sbom.cdx.json"
VERDICT = "verdict.json"
STAGES = "stages.yaml"
WAIVERS = "waivers.yaml"
LEDGER = "ledger.yaml"
REQUIREMENTS = "requirements.txt"
_ABOUT = (SBOM, PROVENANCE, ENVELOPE, CHECKSUMS, SIGNATURE)  # each lists everything before it
_PART = r"[A-Za-z0-9](?:[A-Za-z0-9._+-]*[A-Za-z0-9_+-])?"
_NAME = re.compile(rf"{_PART}(?:/{_PART})*")
_LONGEST = 200  # characters: what a header of a POSIX tar takes besides the bundle's own name
_LARGEST = 4 << 30  # bytes
MOST_FILES = 4096  # in a bundle: ten times the files of a release for three archs
_LINE = re.compile(r"([0-9a-f]{64})  ([^\n]+)")


def bundle_name(facts: Facts) -> str:
    """Name of the folder, and of the tar without its suffix."""
    return f"ckpm-{facts.commit[:12]}-{facts.upstream}-{facts.tier}"


def path_of(step: StageStep, role: str, upstream: str) -> str:
    """The path of a step's output in the bundle; '' for an intermediate one."""
    name = PurePosixPath(step.outputs[role]).name
    match role:
        case "library" | "manifest":
            return f"libraries/{step.arch}/{upstream}/{name}"
        case "results" | "gate":
            return f"results/{_of(step, upstream)}.json"
        case "report":
            return f"report/{name}"
    return ""


def junit_of(step: StageStep, upstream: str) -> str:
    """The path of the JUnit file of a step's results or gate."""
    return f"junit/{_of(step, upstream)}.xml"


def record_of(step: StageStep) -> str:
    return f"records/{step.arch}/{step.stage}.json"


def _of(step: StageStep, upstream: str) -> str:
    return step.stage if step.arch == PROJECT else f"{step.arch}/{upstream}/{step.stage}"


def payload(names: list[str]) -> list[str]:
    """Files of a bundle without SBOM, provenance, checksums and signature."""
    return [name for name in names if name not in _ABOUT]


def subjects(names: list[str]) -> list[str]:
    """Files that provenance lists."""
    return [name for name in names if name == SBOM or name not in _ABOUT]


def files_of(folder: Path) -> list[str]:
    """The names of all files of a bundle's folder, sorted."""
    if folder.is_symlink() or not folder.is_dir():
        raise TrustError(f"{folder}: neither a folder nor a .tar of a bundle.", kind="archive")
    names = []
    for parent, folders, files in os.walk(folder, onerror=_fail):
        if not folders and not files:
            raise TrustError(f"{parent}: an empty folder, which a bundle can't have.", kind="archive")
        for name in (*folders, *files):
            path = Path(parent, name)
            kind = path.lstat().st_mode
            if not (stat.S_ISDIR(kind) or stat.S_ISREG(kind)):
                raise TrustError(f"{path}: neither a file nor a folder but a link or a device.", kind="archive")
        names += [Path(parent, name).relative_to(folder).as_posix() for name in files]
        demand_few(len(names), str(folder))
    demand_plain(sorted(names), str(folder))
    return sorted(names)


def _fail(error: OSError) -> None:
    raise TrustError(f"{error.filename}: can't be read: {error.strerror}.", kind="archive") from error


def demand_few(count: int, where: str) -> None:
    """Raise TrustError if a bundle has more files than any release."""
    if count > MOST_FILES:
        raise TrustError(
            f"{where}: more than {MOST_FILES} files, as no bundle of a release. Don't unpack it.", kind="archive"
        )


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


def checksums_text(sums: Mapping[str, str]) -> str:
    """The file's content, sorted by name. ``sums`` is sha256 by name."""
    return "".join(f"{sums[name]}  {name}\n" for name in sorted(sums))


def demand_listed(folder: Path, files: list[str]) -> Mapping[str, str]:
    """Compare every file with SHA256SUMS. Return the sha256 by name, without SHA256SUMS and its signature.

    ``files`` are the names of all files in the folder.
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
    if checksums_text(listed) != text:
        raise TrustError(
            f"{folder}/{CHECKSUMS}: not as a release writes it: each name once, in order.", kind="bundle-file"
        )
    return listed
