"""Paths in a bundle, and the files of its folder."""

from __future__ import annotations

import os
import stat
from pathlib import Path, PurePosixPath

from ckpm.base.errors import TrustError
from ckpm.reports.release.bundle.names import CHECKSUMS, PROVENANCE, SBOM, SIGNATURE, demand_plain
from ckpm.reports.release.qualification.record import Facts
from ckpm.reports.release.qualification.stages import PROJECT, Step

_ABOUT = (SBOM, PROVENANCE, CHECKSUMS, SIGNATURE)  # each lists everything before it


def bundle_name(facts: Facts) -> str:
    """Name of the folder, and of the tar without its suffix."""
    return f"ckpm-{facts.commit[:12]}-{facts.upstream}-{facts.tier}"


def place_of(step: Step, role: str, upstream: str) -> str:
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


def junit_of(step: Step, upstream: str) -> str:
    """The path of the JUnit file of a step's results or gate."""
    return f"junit/{_of(step, upstream)}.xml"


def record_of(step: Step) -> str:
    return f"records/{step.arch}/{step.stage}.json"


def _of(step: Step, upstream: str) -> str:
    return step.stage if step.arch == PROJECT else f"{step.arch}/{upstream}/{step.stage}"


def payload(names: list[str]) -> list[str]:
    """Files that SBOM, provenance and checksums list, without these three."""
    return [name for name in names if name not in _ABOUT]


def subjects(names: list[str]) -> list[str]:
    """Files that provenance lists."""
    return [name for name in names if name == SBOM or name not in _ABOUT]


def files_of(folder: Path) -> list[str]:
    """The names of all files of a bundle's folder, sorted.

    Raises:
        TrustError: not a folder, a link or device, an empty folder, or a name that a bundle can't have.
    """
    if folder.is_symlink() or not folder.is_dir():
        raise TrustError(f"{folder}: neither a folder nor a .tar of a bundle.", kind="archive")
    names = []
    for place, folders, files in os.walk(folder, onerror=_fail):
        if not folders and not files:
            raise TrustError(f"{place}: an empty folder, which a bundle can't have.", kind="archive")
        for name in (*folders, *files):
            path = Path(place, name)
            kind = path.lstat().st_mode
            if not (stat.S_ISDIR(kind) or stat.S_ISREG(kind)):
                raise TrustError(f"{path}: neither a file nor a folder but a link or a device.", kind="archive")
        names += [Path(place, name).relative_to(folder).as_posix() for name in files]
    demand_plain(sorted(names), str(folder))
    return sorted(names)


def _fail(error: OSError) -> None:
    raise TrustError(f"{error.filename}: can't be read: {error.strerror}.", kind="archive") from error
