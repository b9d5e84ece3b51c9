"""data/small.hip as a kernel library for gfx942 and gfx950, made by the embedded toolchain once."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import subprocess
import tempfile
from pathlib import Path

import pytest

from ckpm.kernels.code import toolchains
from ckpm_emulator import toolchain as emulator_toolchain
from ckpm_emulator.cache import cache_folder
from ckpm_emulator.device import EmulatedGpu
from tests.programs.program_builder import compile_object

SOURCE = Path(__file__).parent / "data" / "small.hip"
ARCHS = ["gfx942", "gfx950"]


@pytest.fixture(scope="module")
def small() -> Path:
    return small_library()


@functools.cache
def small_library() -> Path:
    """The library's path."""
    tc = toolchains.detect("embedded", cache=cache_folder().parent)
    inputs = [*toolchains.describe(tc).values(), *ARCHS, SOURCE.read_text()]
    key = hashlib.sha256("\0".join(inputs).encode()).hexdigest()[:16]
    library = cache_folder() / "tests" / key / "libsmall.so"
    if library.is_file():
        return library
    library.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=library.parent) as folder:
        linked = Path(folder, "libsmall.so")
        object_file = compile_object(tc, SOURCE, Path(folder, "small.o"), archs=ARCHS, includes=[])
        # The machine's linker: zig's would first build its libc++ for minutes.
        compiler = next(iter(emulator_toolchain.compilers()))
        subprocess.run([*compiler.command, "-shared", "-o", str(linked), str(object_file)], check=True)
        linked.replace(library)
    return library


def open_small(device: EmulatedGpu, path: Path) -> ctypes.CDLL:
    """The library on a device; ``small_touch`` takes an address, a value, groups, threads and bytes of LDS."""
    library = device.load_library(path)
    library.small_touch.argtypes = (ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint, ctypes.c_uint, ctypes.c_size_t)
    return library


def fat_binary(library: Path) -> bytes:
    """The offload bundle inside a library, and what follows it."""
    data = library.read_bytes()
    return data[data.index(b"__CLANG_OFFLOAD_BUNDLE__") :]


def code_object(bundle: bytes, arch: str) -> bytes:
    """The ELF of an arch in a bundle (clang's documentation, "Clang Offload Bundler")."""
    at = 32
    for _ in range(int.from_bytes(bundle[24:32], "little")):
        offset, size, length = (int.from_bytes(bundle[at + 8 * i :][:8], "little") for i in range(3))
        name = bundle[at + 24 : at + 24 + length].decode()
        at += 24 + length
        if name.endswith(arch):
            return bundle[offset : offset + size]
    raise KeyError(arch)
