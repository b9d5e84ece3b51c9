"""clang and lld of the package ziglang, for the device."""

from __future__ import annotations

import functools
import importlib.resources
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ckpm_emulator.cache import cache_folder
from ckpm_emulator.toolchain import tool_environment, zig_folders


def compile_source(source: Path, arch: str, *options: str) -> bytes:
    """The code object of a file in assembly, or in C for the device alone."""
    return link_code([source], arch, *options)


@functools.cache
def zig() -> str:
    """The program of the package ziglang, which contains clang and lld."""
    return str(importlib.resources.files("ziglang") / "zig")


def zig_environment() -> dict[str, str]:
    """The environment in which zig keeps its files in the cache, without the caller's headers and options of clang.

    What is compiled is kept by its sources and options.
    """
    return tool_environment(zig_folders(Path(zig()).with_name("lib"), cache_folder()))


def link_code(sources: Sequence[Path], arch: str, *options: str) -> bytes:
    """The code object of several files."""
    with tempfile.TemporaryDirectory() as folder:
        linked, objects = Path(folder, "linked.hsaco"), [Path(folder, f"{source.stem}.o") for source in sources]
        target = (*options, "--target=amdgcn-amd-amdhsa", f"-mcpu={arch}")
        for source, object_file in zip(sources, objects, strict=True):
            command = [zig(), "clang", *target, "-c", str(source), "-o", str(object_file)]
            subprocess.run(command, env=zig_environment(), check=True)
        link = [zig(), "ld.lld", "-shared", *map(str, objects), "-o", str(linked)]
        subprocess.run(link, env=zig_environment(), check=True)
        return linked.read_bytes()
