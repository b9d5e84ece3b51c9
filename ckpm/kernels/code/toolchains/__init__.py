"""Toolchains: the compilers of kernels, and their command lines.

Two exist: ``embedded`` (the ziglang wheel, needs nothing but Python) and ``rocm`` (an installed hipcc or amdclang++).
"""

from __future__ import annotations

from pathlib import Path

from ckpm.base.rocm_choice import unknown
from ckpm.kernels.code.toolchains import embedded, rocm
from ckpm.kernels.code.toolchains.base import Toolchain, compile_command, link_command, response_text

__all__ = ["Toolchain", "compile_command", "describe", "detect", "link_command", "response_text"]


def detect(choice: str, *, cache: Path) -> Toolchain:
    """Return the toolchain named ``choice``. ``cache`` is the folder of a toolchain's own cache.

    Raises UsageError: there is no such toolchain. SetupError: it is not installed, or broken.
    """
    match choice:
        case "embedded":
            return embedded.find(cache=cache)
        case "rocm":
            return rocm.find()
        case _:
            raise unknown("toolchain", choice)


def describe(tc: Toolchain) -> dict[str, str]:
    """Return the record for a manifest: name, versions and the flags that affect the output. No machine paths."""
    return {
        "toolchain": tc.name,
        "identity": tc.identity,
        "flags": " ".join(tc.flags),
        "link_flags": " ".join(tc.link_flags),
    }
