"""Build the wheel with scikit-build-core; compile with ziglang where the machine has no C++20 compiler.

A wheel that the machine's compiler made is for this machine. Its core is taken from the cache if a command has compiled
these sources. One that ziglang made is for every x86-64 Linux: it has all instruction sets, and needs only the glibc of
its tag.
"""

from __future__ import annotations

import os
import platform
from typing import Any

import scikit_build_core.build as standard
from scikit_build_core.build import *  # noqa: F403 - the other functions of a build backend

from ckpm_emulator import toolchain
from ckpm_emulator.errors import SetupError


def get_requires_for_build_wheel(config_settings: dict[str, Any] | None = None) -> list[str]:
    """Packages that the build needs."""
    needed = standard.get_requires_for_build_wheel(config_settings)
    try:
        toolchain.fit_compiler()
    except SetupError:
        needed.append("ziglang==0.17.0")
    return needed


def build_wheel(folder: str, config_settings: dict[str, Any] | None = None, metadata: str | None = None) -> str:
    """Build a wheel in ``folder``; return its file name. ``metadata`` has the tag of another compiler."""
    compiler = toolchain.fit_compiler()
    os.environ.update(compiler.environment)
    levels = toolchain.isa_level()
    if "ziglang" in compiler.command and platform.machine() == "x86_64":
        levels = ";".join(toolchain.ISA_LEVELS)
        os.environ["_PYTHON_HOST_PLATFORM"] = "manylinux_2_28_x86_64"  # zig's target in CMakeLists.txt
        core = ""
    else:
        core = str(toolchain.finished_core(compiler, levels) or "")
    options = f"-DCMAKE_CXX_COMPILER='{';'.join(compiler.command)}' -DEMU_LEVELS='{levels}' -DEMU_BUILT='{core}'"
    os.environ["CMAKE_ARGS"] = f"{options} {os.environ.get('CMAKE_ARGS', '')}"
    return standard.build_wheel(folder, config_settings)
