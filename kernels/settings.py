"""Where things are kept that outlive a build. Nothing needs to be set; each has an environment variable."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """Upstream trees, the compiler's own cache, the shared SCons cache: CKPM_CACHE, else the user's cache folder."""
    if chosen := os.environ.get("CKPM_CACHE"):
        return Path(chosen).absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "ck-prefill-matrix"


def ck_root() -> Path | None:
    """The checkout named by CK_ROOT."""
    root = os.environ.get("CK_ROOT")
    return Path(root) if root else None
