"""Checks that only our own files are run: the cache folder, libraries, and the key of our signature files."""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
from pathlib import Path

from emulator.store import BESIDE as BESIDE
from emulator.store import Store as Store
from emulator.store import adopt as adopt
from emulator.store import draft_folder as draft_folder
from emulator.store import is_adopted as is_adopted
from emulator.store import is_whole_entry as is_whole_entry
from emulator.trust import keep_others_out
from emulator.trust import why_untrusted as why_untrusted
from emulator.zig_cache import checked_link as checked_link
from emulator.zig_cache import linked_with as linked_with
from kernels.base.files import make_folder, writing
from kernels.errors import UntrustedFileError

_OTHERWISE = "set CKPM_CACHE to another folder"
_KEY_BYTES = 32


def demand_trusted(path: Path, top: Path, instead: str = "") -> None:
    """Refuse a path that other users could have made or changed; folders are checked up to ``top``.

    ``instead`` is the remedy (default: delete ``top``, a cache). Raises UntrustedFileError; OSError if ``path`` is
    missing.
    """
    if why := why_untrusted(path, top, instead=instead):
        raise UntrustedFileError(why)


def demand_trusted_library(library: Path) -> None:
    """Refuse a kernel library that another user made or can change. Raises UntrustedFileError."""
    file = library.absolute()
    if file.exists():
        demand_trusted(file, file.parent, "Build it again")


def demand_private(cache: Path) -> None:
    """Make the cache folder if it is missing. Refuse it if it, or anything in it, is writable by other users.

    Raises:
        UntrustedFileError: another user owns it or can write to it.
        DiskFullError, OutputError: it can't be made.
    """
    keep_others_out()
    make_folder(cache, _OTHERWISE)
    with writing(cache, _OTHERWISE):
        for place in (cache, *cache.iterdir()):
            with contextlib.suppress(FileNotFoundError):  # a lock or draft of another process was deleted meanwhile
                demand_trusted(place, cache)


def signing_key(cache: Path) -> bytes:
    """Return this user's secret in the cache folder, made when it is first needed.

    Raises:
        UntrustedFileError: another user can write to the cache or read the key, or the file is not a key.
        DiskFullError, OutputError: it can't be made or read.
    """
    demand_private(cache)
    file = cache / "key"
    with writing(file, _OTHERWISE):
        if not file.exists():
            with tempfile.NamedTemporaryFile(dir=cache, prefix=".key.") as draft:  # readable by this user alone
                draft.write(secrets.token_bytes(_KEY_BYTES))
                draft.flush()
                with contextlib.suppress(FileExistsError):  # another process was first: its key counts
                    os.link(draft.name, file)
        demand_trusted(file, cache)
        key = file.read_bytes()
        if file.stat().st_mode & 0o077 or len(key) != _KEY_BYTES:
            raise UntrustedFileError(f"{file}: others can read it, or it is damaged. Delete it: it is made again.")
    return key
