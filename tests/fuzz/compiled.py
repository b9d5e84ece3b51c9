"""Compiled inputs of tests: code for GPUs."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

from ckpm.base import settings
from ckpm.kernels.code import toolchains
from ckpm.kernels.families.family import INCLUDE

LIBRARY = "build/gfx950/aiter"
_DEVICE = """
#include <hip/hip_runtime_api.h>
extern "C" __global__ void one(float* out) { out[0] = 1; }
extern "C" __global__ void two(float* out, int n) { for (int i = 0; i < n; ++i) out[i] += 2; }
"""


class Compiler:
    """The embedded toolchain. Its sources and outputs are in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.toolchain = toolchains.detect("embedded", cache=settings.cache_folder())

    def run(self, command: list[str]) -> None:
        subprocess.run(command, env={**os.environ, **self.toolchain.environment}, check=True)

    def host_object(self, text: str, output: str) -> Path:
        """Compile an object for the host, with device code for two archs if there is a kernel."""
        return self._compile(text, output, "gfx942", "gfx950")

    def code_object(self, text: str, output: str) -> Path:
        """Compile a bare code object for gfx950."""
        return self._compile(text, output, "gfx950", device_only=True)

    def _compile(self, text: str, output: str, *archs: str, device_only: bool = False) -> Path:
        source, compiled = self.folder / "source.hip", self.folder / output
        source.write_text(text)
        cuid = hashlib.sha256(text.encode()).hexdigest()[:16]  # two units of a library need two
        self.run(
            toolchains.compile_command(
                self.toolchain,
                archs=archs,
                source=str(source),
                output=str(compiled),
                includes=[str(INCLUDE)],
                cuid=cuid,
                prefix_map={},
                device_only=device_only,
            )
        )
        source.unlink()
        return compiled


def prepare_code(folder: Path) -> None:
    """Compile ``library.o``, a host object with code for two archs, and ``code.co``, a bare code object."""
    folder.mkdir(parents=True)
    compiler = Compiler(folder)
    compiler.host_object(_DEVICE, "library.o")
    compiler.code_object(_DEVICE, "code.co")
