"""What made the results of a machine: the project's revision, toolchains, upstreams, the driver's GPUs, packages."""

from __future__ import annotations

import importlib.metadata
import platform
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ckpm.base import settings
from ckpm.base.rocm_places import gpu_archs
from ckpm.kernels.library.doctor import examine
from ckpm.kernels.library.request import PROJECT

_OF_THE_MOMENT = ("cache", "jobs")  # doctor's findings that say what is free now


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    """``revision`` is git's (-dirty: files are changed), '' outside of a clone; ``gpus`` are the driver's archs."""

    revision: str
    kernel: str
    gpus: tuple[str, ...]
    doctor: Mapping[str, str]  # what was found, by subject
    packages: Mapping[str, str]


def versions() -> Versions:
    """Of this machine and clone. Nothing of the moment is among them: asked twice, they are the same."""
    findings = examine(settings.cache_folder(), settings.ck_root())
    return Versions(
        revision=_revision(PROJECT),
        kernel=f"{platform.system()} {platform.release()}",
        gpus=gpu_archs(),
        doctor={one.subject: f"{one.state}: {one.detail}" for one in findings if one.subject not in _OF_THE_MOMENT},
        packages=dict(sorted((one.name.lower(), one.version) for one in importlib.metadata.distributions())),
    )


def _revision(root: Path) -> str:
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--match=v*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
