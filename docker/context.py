"""What an engine builds an image from: a folder with the Dockerfile, the root file system and CK; and its identity."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path

from ckpm.base.errors import NotACkTreeError
from ckpm.base.files import make_folder, write_atomically, writing
from ckpm.docker import dockerfile, rootfs
from ckpm.docker.dockerfile import UNLABELLED, Labels
from ckpm.docker.images import FOLDER, Image
from ckpm.kernels.upstream.trees import Say, fetch_archive
from ckpm.matrix.dialects import check_upstream

_PACKAGES = "packages"  # what docker/templates/Dockerfile.j2 copies
_CK = "ck"
_CK_PARTS = ("include", "example/ck_tile/01_fmha", "LICENSE")
_CK_PLACES = ("projects/composablekernel/", "")  # in rocm-libraries; in a repository of CK alone


@dataclass(frozen=True, slots=True)
class Sources:
    """Where things come from: the cache folder, the clone that has an image's pinned commit of CK, this repository."""

    cache: Path
    ck_root: Path | None = None
    labels: Labels = UNLABELLED

    @property
    def containers(self) -> Path:
        return self.cache / "containers"


def tag(image: Image) -> str:
    """The name of an image at the engine: it changes with everything that the repository says about the image."""
    ck = check_upstream(image.ck_package).sha256 if image.ck_package else image.ck
    text = f"{dockerfile.render(image)}\n{ck}\n"
    return f"localhost/ckpm/{image.name}:{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def fill(image: Image, folder: Path, sources: Sources, *, again: bool = False, say: Say = print) -> None:
    """Put everything that an image is built from into an empty ``folder``; ``again``: nothing from earlier builds.

    Raises:
        RootFilesystemError, DownloadError, ChecksumError: a part can't be had.
        NotACkTreeError: no clone was given, or it lacks the commit.
        DiskFullError, OutputError.
    """
    with writing(folder):
        shutil.rmtree(folder, ignore_errors=True)
    make_folder(folder)
    write_atomically(folder / "Dockerfile", dockerfile.render(image, sources.labels).encode())
    if image.is_local:
        _root_filesystem(image, folder / "rootfs.tar", sources, again=again)
    if image.ck_package:
        package = check_upstream(image.ck_package)
        kept = sources.containers / _PACKAGES / package.file
        make_folder(kept.parent)
        if not kept.is_file():
            beside = kept.with_name(f".{package.file}.{os.getpid()}")
            fetch_archive(package, beside, say)
            with writing(kept):
                beside.replace(kept)
        make_folder(folder / _PACKAGES)
        _link(kept, folder / _PACKAGES / package.file)
    if image.ck_commit:
        _export(image.ck_commit, sources.ck_root, folder / _CK)


def _root_filesystem(image: Image, target: Path, sources: Sources, *, again: bool) -> None:
    if again:
        rootfs.make(image.base, target)
    else:
        _link(rootfs.kept(image.base, sources.containers / "rootfs"), target)


def _link(source: Path, target: Path) -> None:
    """A hard link, or a copy where the cache is on another disk."""
    with writing(target):
        try:
            os.link(source, target)
        except OSError:
            shutil.copy(source, target)


def _export(commit: str, clone: Path | None, target: Path) -> None:
    """CK's part of a commit that a clone has, whatever is checked out there."""
    if clone is None:
        raise NotACkTreeError(
            f"this image holds CK of commit {commit}: name a clone of rocm-libraries with that commit by --ck-root or "
            "CK_ROOT."
        )
    for place in _CK_PLACES:
        parts = [f"{place}{part}" for part in _CK_PARTS]
        listed = _git(clone, "ls-tree", "--name-only", commit, f"{place}include/")
        if listed is not None and listed.strip():
            break
    else:
        raise NotACkTreeError(
            f"{clone}: has no commit {commit} with a CK tree. `git -C {clone} fetch origin {commit}` gets it."
        )
    known = (_git(clone, "ls-tree", "--name-only", commit, *parts) or "").split()
    make_folder(target)
    command = ["git", "-C", str(clone), "archive", commit, *known]
    with writing(target), subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        with tarfile.open(fileobj=process.stdout, mode="r|") as archive:
            for member in archive:
                member.name = member.name.removeprefix(place)
                archive.extract(member, target, filter="data")


def _git(clone: Path, *words: str) -> str | None:
    """What git says; None if it fails or is not installed."""
    command = ["git", "-C", str(clone), *words]
    try:
        run = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    except OSError:
        return None
    return run.stdout if run.returncode == 0 else None


def labels(repository: Path = FOLDER.parent) -> Labels:
    """Source and revision of this repository, for the labels: its origin without credentials, and its commit.

    Neither for an installed ckpm: a repository around it is somebody else's.
    """
    if not (repository / ".git").exists():
        return UNLABELLED
    origin = (_git(repository, "remote", "get-url", "origin") or "").strip()
    revision = (_git(repository, "rev-parse", "HEAD") or "unknown").strip()
    changed = (_git(repository, "status", "--porcelain", "--untracked-files=no") or "").strip()
    scheme, separator, rest = origin.partition("://")
    if separator:
        origin = f"{scheme}://{rest.rpartition('@')[2]}" if "@" in rest.partition("/")[0] else origin
    is_url = bool(separator) and scheme != "file"
    revision = f"{revision}-changed" if changed else revision
    return Labels(origin, revision) if is_url else Labels(revision=revision)
