"""Compiled inputs of tests: code for GPUs, and a library with the C ABI."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from pathlib import Path

from ckpm.base import settings
from ckpm.base.files import sha256_of
from ckpm.kernels.code import code_object, toolchains
from ckpm.kernels.families.family import INCLUDE
from ckpm.kernels.library.request import VERSION_SCRIPT
from ckpm.matrix.dialects import dialect
from ckpm.matrix.selection import Selection, select
from tests.unit import manifests

LIBRARY = "build/gfx950/aiter"
_DEVICE = """
#include <hip/hip_runtime_api.h>
extern "C" __global__ void one(float* out) { out[0] = 1; }
extern "C" __global__ void two(float* out, int n) { for (int i = 0; i < n; ++i) out[i] += 2; }
"""
# the functions of ckpm.h in a library that refuses every problem
_HOST = """
#include "ckpm.h"
int ckpm_abi_version(void) { return CKPM_ABI_VERSION; }
size_t ckpm_problem_bytes(void) { return sizeof(ckpm_problem); }
const char* ckpm_dialect(void) { return "ck-2025-11"; }
int ckpm_kernel_count(void) { return 2; }
const char* ckpm_kernel_name(int index) { return index == 0 ? "%s" : index == 1 ? "%s" : nullptr; }
int ckpm_launch(const ckpm_problem*, const char*, float*, char* message, size_t bytes)
{
    if(message && bytes) message[0] = 0;
    return CKPM_UNSUPPORTED;
}
const char* ckpm_selected_kernel(void) { return nullptr; }
extern "C" int atexit(void (*)(void)) { return 0; } // the C library's is in the start files, which are not linked
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


def names() -> list[str]:
    """The names of the two kernels in the libraries."""
    return [key.name for key in select(dialect("ck-2025-11"), Selection(archs=("gfx950",), tier="smoke"))][:2]


def prepare_code(folder: Path) -> None:
    """Compile ``library.o``, a host object with code for two archs, and ``code.co``, a bare code object."""
    folder.mkdir(parents=True)
    compiler = Compiler(folder)
    compiler.host_object(_DEVICE, "library.o")
    compiler.code_object(_DEVICE, "code.co")


def prepare_loadable(folder: Path, code: Path, more: str = "") -> None:
    """Link a library with the functions of the C ABI, which can be loaded. ``more`` is C++ of its host."""
    build = folder / LIBRARY
    build.mkdir(parents=True)
    compiler = Compiler(build)
    host = compiler.host_object(_HOST % tuple(names()) + more, "host.o")
    link = toolchains.link_command(
        compiler.toolchain,
        objects=[str(host), str(code)],
        output=str(build / "libckpm.so"),
        version_script=str(VERSION_SCRIPT),
        soname="libckpm.so",
    )
    compiler.run([*link, "-nostdlib"])  # with the standard library, zig compiles libc++ first, for a minute
    host.unlink()
    _write_manifest(build, code)


def _write_manifest(build: Path, code: Path) -> None:
    """Write the manifest of a library that contains ``code``."""
    image = code_object.bundles(code)["gfx950"][0]
    rows = {}
    for name, kernel in zip(names(), code_object.kernels(image), strict=True):
        figures = {field: getattr(kernel, field) for field in manifests.FIGURES}
        rows[name] = {"archs": {"gfx950": figures}}
    digest = {"libckpm.so": sha256_of(build / "libckpm.so")}
    (build / "manifest.json").write_text(json.dumps(manifests.document(rows, artifacts=digest)))
