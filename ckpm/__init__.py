"""The public Python API, documented in docs/reference/python.md. A name is imported when it is first used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from ckpm import torch
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
    from ckpm.attention.launch.device import choose
    from ckpm.joined import build, list_kernels, why

_MODULES = {
    "ckpm.attention": (
        *("Dispatcher", "OnDevice", "Pages", "Problem", "ProblemBuilder", "Registry", "Timing"),
        *("append", "fmha", "fmha_backward"),
    ),
    "ckpm.attention.launch.device": ("choose",),
    "ckpm.joined": ("build", "list_kernels", "why"),
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
    "append",
    "build",
    "choose",
    "fmha",
    "fmha_backward",
    "list_kernels",
    "torch",
    "why",
]


def __getattr__(name: str) -> Any:
    if name == "torch":  # not a name of _MODULES: a module, which needs PyTorch
        return importlib.import_module("ckpm.torch")
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'ckpm' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULE_OF[name]), name)
