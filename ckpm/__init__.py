"""The public Python API, documented in docs/reference/python.md. A name is imported at its first use."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ckpm.base.paths import find_emulator

__version__ = "0.1.0"
find_emulator()

if TYPE_CHECKING:
    from ckpm import aiter, torch  # noqa: A004  # as the packages are named
    from ckpm.attention import (
        Dispatcher,
        OnDevice,
        Pages,
        Problem,
        ProblemBuilder,
        Registry,
        Timing,
        append,
        fmha,
        fmha_backward,
    )
    from ckpm.attention.callers.installing import install
    from ckpm.attention.chunks import chunk_lengths, chunk_pages
    from ckpm.attention.launch.device import choose
    from ckpm.commands import build, list_kernels, why

_MODULES = {
    "ckpm.attention": (
        *("Dispatcher", "OnDevice", "Pages", "Problem", "ProblemBuilder", "Registry", "Timing"),
        *("append", "fmha", "fmha_backward"),
    ),
    "ckpm.attention.chunks": ("chunk_lengths", "chunk_pages"),
    "ckpm.attention.callers.installing": ("install",),
    "ckpm.attention.launch.device": ("choose",),
    "ckpm.commands": ("build", "list_kernels", "why"),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}
__all__ = [
    "Dispatcher",
    "OnDevice",
    "Pages",
    "Problem",
    "ProblemBuilder",
    "Registry",
    "Timing",
    "aiter",
    "append",
    "build",
    "choose",
    "chunk_lengths",
    "chunk_pages",
    "fmha",
    "fmha_backward",
    "install",
    "list_kernels",
    "torch",
    "why",
]


def __getattr__(name: str) -> Any:
    if name in ("aiter", "torch"):  # modules; ckpm.torch needs PyTorch
        return importlib.import_module(f"ckpm.{name}")
    if name not in _MODULE_OF:
        from ckpm.base.errors import did_you_mean  # only here: its import takes time

        raise AttributeError(f"module 'ckpm' has no attribute '{name}'{did_you_mean(name, __all__)}")
    return getattr(importlib.import_module(_MODULE_OF[name]), name)
