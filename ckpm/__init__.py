"""The public Python API, documented in docs/reference/python.md. A name is imported at its first use.

__init__.pyi lists the names with their modules, for type checkers and for this module.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import re
import warnings
from pathlib import Path
from typing import Any

from ckpm.base.paths import clone_not_read, find_emulator

__version__ = "0.1.0"
find_emulator()

_LIST = Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")
_MODULE_OF = {name: module for module, name in re.findall(r"^from (\S+) import (\w+) as \2\b", _LIST, re.MULTILINE)}
__all__ = [name for name in _MODULE_OF if name != "torch"]  # `from ckpm import *` needs no PyTorch


@functools.cache
def _warn_of_clone() -> None:
    with contextlib.suppress(OSError):  # the current folder may be deleted
        if warning := clone_not_read():
            warnings.warn(warning, stacklevel=3)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        from ckpm.base.errors import did_you_mean  # only here: its import takes time

        raise AttributeError(f"module 'ckpm' has no attribute '{name}'{did_you_mean(name, __all__)}")
    _warn_of_clone()
    if (module := _MODULE_OF[name]) == "ckpm":  # a module of its own: ckpm.torch needs PyTorch
        return importlib.import_module(f"ckpm.{name}")
    return getattr(importlib.import_module(module), name)
