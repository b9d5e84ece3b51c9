"""Build the wheel with scikit-build-core; compile with ziglang where the machine has no C++20 compiler.

A wheel has the machine's instruction set alone. `CMAKE_ARGS="-DEMU_LEVELS=portable;avx2;avx512"` gives it all three.
"""

from __future__ import annotations

import os
from typing import Any

import scikit_build_core.build as standard
from scikit_build_core.build import *  # noqa: F403 - the other functions of a build backend

from ckpm_emulator import toolchain
from ckpm_emulator.base.errors import SetupError


def get_requires_for_build_wheel(config_settings: dict[str, Any] | None = None) -> list[str]:
    """Packages that the build needs."""
    needed = standard.get_requires_for_build_wheel(config_settings)
    try:
        toolchain.fit_compiler()
    except SetupError:
        needed.append("ziglang==0.17.0")
    return needed


def build_wheel(folder: str, config_settings: dict[str, Any] | None = None, metadata: str | None = None) -> str:
    """Build a wheel in ``folder``; return its file name."""
    compiler = toolchain.fit_compiler()
    os.environ.update(compiler.environment)
    options = f"-DCMAKE_CXX_COMPILER='{';'.join(compiler.command)}' -DEMU_LEVELS={toolchain.isa_level()}"
    os.environ["CMAKE_ARGS"] = f"{options} {os.environ.get('CMAKE_ARGS', '')}"
    return standard.build_wheel(folder, config_settings, metadata)
