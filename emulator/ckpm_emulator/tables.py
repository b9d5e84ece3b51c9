"""tinygrad's tables of CDNA machine code without the rest of tinygrad.

Importing them imports tinygrad's tensors and its tables of other GPUs, too, which takes as long as decoding a kernel. A
process that decodes and ends leaves that out.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

_AMD = "tinygrad.runtime.autogen.amd"
_PACKAGES = ("tinygrad", "tinygrad.renderer", "tinygrad.runtime", "tinygrad.runtime.autogen")
_OTHERS = tuple(f"{_AMD}.{arch}.{table}" for arch in ("rdna3", "rdna4") for table in ("operands", "ins"))


class _Absent(ModuleType):
    """An empty module in place of tables whose classes are listed among the formats, but never used."""

    OPERANDS: Mapping[Any, Any] = {}

    def __getattr__(self, name: str) -> None:
        return None


def import_nothing_else() -> None:
    """Restrict this process's imports of tinygrad to these tables, unless it already has more."""
    if "tinygrad" in sys.modules:
        return
    for name in _PACKAGES:
        spec = importlib.util.find_spec(name)
        if spec is None:  # the import itself reports what is missing
            return
        sys.modules[name] = importlib.util.module_from_spec(spec)  # its submodules are found, its own code is not run
    for name in _OTHERS:
        sys.modules[name] = _Absent(name)
