"""Check that a file to be run belongs to this user, to root, or to the owner of this program.

Another user who can write to the file, or to a folder above it, could put a program of their own there.
"""

from __future__ import annotations

import os
import pwd
import stat
import threading
from pathlib import Path

from ckpm_emulator.errors import TrustError

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_UMASK = threading.Lock()  # a thread in between would take 0o077 for the mask, and leave it


def demand_trusted(path: Path, top: Path) -> None:
    """Refuse a path of the cache folder ``top`` that other users could have made or changed, with a remedy.

    The folders above it are checked up to ``top``. Raises TrustError; OSError if ``path`` is missing.
    """
    user = os.geteuid()
    owners = {user, 0, Path(__file__).stat().st_uid}
    remedy = f"Delete {top}: it is made again; or, if you trust all that is in it:"
    for part in (path, *path.parents):
        link, target = part.lstat(), part.stat()
        if strangers := {link.st_uid, target.st_uid} - owners:
            raise TrustError(
                f"{part}: it belongs to user {_name(min(strangers))}, and what it holds would be run as {_name(user)}. "
                f"{remedy} chown -R {user} {top}",
                kind="untrusted",
            )
        if target.st_mode & _OTHERS_WRITE:
            raise TrustError(
                f"{part}: other users can write to it (mode {stat.S_IMODE(target.st_mode):o}), and what it holds would "
                f"be run. {remedy} chmod -R go-w {top}",
                kind="untrusted",
            )
        if part == top:
            break


def keep_others_out() -> None:
    """Make the files of this process and its children unwritable for other users."""
    with _UMASK:
        os.umask(os.umask(0o077) | _OTHERS_WRITE)


def _name(user: int) -> str:
    try:
        return f"{pwd.getpwuid(user).pw_name} ({user})"
    except KeyError:
        return str(user)
