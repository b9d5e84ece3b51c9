"""Paths of files that outlive a build. Each has a default and an environment variable."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from .errors import UsageError
from .trust import refuse_shared


def cache_folder() -> Path:
    """Return the folder of upstream trees and of all caches. A folder that others can write to is refused."""
    folder = cache_path()
    refuse_shared(folder)
    return folder


def cache_path() -> Path:
    """Return CKPM_CACHE, else the user's cache folder, without looking at it.

    A user of a container may have neither: no home, and HOME unset.
    """
    return nameable(_chosen_cache(), "Set CKPM_CACHE to another folder")


def nameable(path: Path, otherwise: str) -> Path:
    """Return a path whose name is UTF-8, and refuse others: records and compilers' files can't contain them."""
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"{path}: this name is not UTF-8, which plans and records are. {otherwise}.") from error
    return path


def libraries() -> list[Path]:
    """Return the folder of CKPM_LIBRARIES, which calls search for built libraries; [] if the variable is unset."""
    return [_absolute(folder)] if (folder := os.environ.get("CKPM_LIBRARIES")) else []


def _chosen_cache() -> Path:
    if chosen := os.environ.get("CKPM_CACHE"):
        return _absolute(chosen)
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if base.is_absolute():  # relative paths are ignored (XDG Base Directory Specification)
        return base / "ck-prefill-matrix"
    try:
        return Path.home() / ".cache" / "ck-prefill-matrix"
    except RuntimeError as error:
        raise UsageError("this user has no home folder for the cache: set CKPM_CACHE to a folder.") from error


def ck_root(checkout: Path | None = None, upstreams: Sequence[str] = ()) -> Path | None:
    """Return the checkout of ``--ck-root``, else of CK_ROOT. ``--ck-root`` is refused with packages alone."""
    if checkout is not None and upstreams and "checkout" not in upstreams:
        raise UsageError(
            f"--ck-root {checkout} is the place of --upstream checkout, not of {', '.join(upstreams)}: leave one of "
            "the two options out."
        )
    root = os.environ.get("CK_ROOT")
    return checkout or (_absolute(root) if root else None)


def _absolute(text: str) -> Path:
    """The path that a variable names; ``~`` is the home folder, also where a quoted one got past the shell."""
    try:
        return Path(text).expanduser().absolute()
    except RuntimeError as error:
        raise UsageError(f"{text}: this user has no such home folder: write the folder's whole path.") from error
