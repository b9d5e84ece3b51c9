"""Load the backends of an unpacked package, before ``ckpm.install`` replaces the functions that they imported."""

from __future__ import annotations

import importlib
import os
from pathlib import Path

from tests.callers.backends import sglang_stands, vllm_stands
from tests.callers.backends.importing import install_finder

_STANDS = {"sglang": sglang_stands, "vllm": vllm_stands}


def load_backends(caller: str, folder: Path) -> None:
    """Import a caller's backends from a package's folder, or from a clone. Their Triton kernels are interpreted."""
    os.environ["TRITON_INTERPRET"] = "1"
    stands = _STANDS[caller]
    inner = folder / "python"  # SGLang's clone
    install_finder(stands.finder(inner if inner.is_dir() else folder))
    for name in stands.BACKENDS:
        importlib.import_module(name)
