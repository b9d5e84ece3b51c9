"""The code objects of the packaged AITER, unpacked once into the cache and never copied into the repository."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path

from ckpm.base.settings import cache_folder
from ckpm.matrix.dialects import check_upstream
from ckpm_emulator import image
from tests.programs.conformance.ck_tree import unpack_once

_FOLDER = "aiter_meta/hsa"


@dataclass(frozen=True, slots=True)
class CodeObject:
    """A code object of one kernel. ``name`` is its path below the folder of its arch."""

    name: str
    content: bytes

    @property
    def name_parts(self) -> tuple[str, ...]:
        """The parts of the file's name."""
        return tuple(Path(self.name).stem.split("_"))

    @property
    def kernel(self) -> image.KernelInfo:
        """Its kernel."""
        (kernel,) = image.read(self.content).kernels
        return kernel


@functools.cache
def folder() -> Path:
    """The folder with a folder for each arch; downloaded and unpacked if the cache lacks it."""
    package = check_upstream("aiter")
    return unpack_once(
        cache_folder() / "objects-of-aiter" / f"{package.version}-{package.sha256[:16]}", f"{_FOLDER}/", ("",)
    )


def code_objects(arch: str, family: str) -> tuple[CodeObject, ...]:
    """All code objects of a family, by name."""
    root = folder() / arch
    files = sorted((root / family).rglob("*.co"))
    return tuple(CodeObject(str(file.relative_to(root)), file.read_bytes()) for file in files)
