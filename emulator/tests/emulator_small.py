"""data/small.hip as a kernel library for gfx942 and gfx950, made by the embedded toolchain once."""

from __future__ import annotations

import ctypes
import functools
import subprocess
from pathlib import Path

import pytest

from ckpm_emulator import toolchain
from ckpm_emulator.cache import draft_for
from ckpm_emulator.device import EmulatedGpu
from programs.program_builder import cache_of, compile_object, identity

SOURCE = Path(__file__).parent / "data" / "small.hip"
ARCHS = ["gfx942", "gfx950"]


@pytest.fixture(scope="module")
def small() -> Path:
    return small_library()


@functools.cache
def small_library() -> Path:
    """The library's path."""
    folder = cache_of("small", *identity(), *ARCHS, SOURCE.read_text())
    library = folder / "libsmall.so"
    if not library.is_file():
        object_file = compile_object(SOURCE, folder / "small.o", archs=ARCHS)
        # The machine's linker: zig's would first build its libc++ for minutes.
        compiler = next(iter(toolchain.compilers()))
        with draft_for(library, folder) as draft:
            subprocess.run([*compiler.command, "-shared", "-o", str(draft), str(object_file)], check=True)
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
