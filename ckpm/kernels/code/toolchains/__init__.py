"""Toolchains: the compilers of kernels, and their command lines.

Two exist: ``embedded`` (the ziglang wheel, needs nothing but Python) and ``rocm`` (an installed hipcc or amdclang++).
"""

from __future__ import annotations

from pathlib import Path

from ckpm.base.errors import UsageError
from ckpm.kernels.code.toolchains import embedded, rocm
from ckpm.kernels.code.toolchains.base import Toolchain, compile_command, link_command, response_text

__all__ = ["CHOICES", "Toolchain", "compile_command", "describe", "detect", "link_command", "response_text"]

CHOICES = ("auto", "embedded", "rocm")


def detect(choice: str = "auto", *, cache: Path) -> Toolchain:
    """Return the toolchain named ``choice``; ``auto`` takes ROCm's if it is installed, else the embedded one.

    ``cache`` is the folder of a toolchain's own cache.
    """
    match choice:
        case "embedded":
            return embedded.find(cache=cache)
        case "rocm":
            return rocm.find()
        case "auto":
            return rocm.find() if rocm.locate() else embedded.find(cache=cache)
        case _:
            raise UsageError(f"unknown toolchain '{choice}'. Known: {', '.join(CHOICES)}.")


def describe(tc: Toolchain) -> dict[str, str]:
    """Return the record for a manifest: name, versions and the flags that affect the output. No machine paths."""
    return {
        "toolchain": tc.name,
        "identity": tc.identity,
        "flags": " ".join(tc.flags),
        "link_flags": " ".join(tc.link_flags),
    }
