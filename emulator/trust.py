"""Whether what is going to be run was put there by somebody who may decide that: this user, root, or whoever owns the
text of this program. Whoever else can write to a file, or to a folder above it, could put a program of theirs there.
"""

from __future__ import annotations

import os
import pwd
import stat
from pathlib import Path

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def trusted_owners() -> frozenset[int]:
    """User ids whose files may be run."""
    return frozenset({os.geteuid(), 0, Path(__file__).stat().st_uid})


def why_untrusted(path: Path, top: Path, owners: frozenset[int] | None = None, instead: str = "") -> str:
    """Why ``path`` must not be run, and what to do; '' if it may. Folders above it are looked at up to ``top``.

    ``instead`` is what the user can do (default: delete ``top``, a cache). Raises OSError: it is not there, or can't be
    looked at.
    """
    instead = instead or f"Delete {top}: it is made again"
    allowed = trusted_owners() if owners is None else owners
    for part in (path, *path.parents):
        link, there = part.lstat(), part.stat()
        for one in (link, there):
            if one.st_uid not in allowed:
                return (
                    f"{part}: it belongs to user {_name(one.st_uid)}, and what it holds would be run as "
                    f"{_name(os.geteuid())}. {instead}; or, if you trust all that is in it: "
                    f"chown -R {os.geteuid()} {top}"
                )
        if there.st_mode & _OTHERS_WRITE:
            return (
                f"{part}: other users can write to it (mode {stat.S_IMODE(there.st_mode):o}), and what it holds would "
                f"be run. {instead}; or, if you trust all that is in it: chmod -R go-w {top}"
            )
        if part == top:
            break
    return ""


def keep_others_out() -> None:
    """From now on, other users can't write to what this process and its children make."""
    os.umask(os.umask(0o077) | _OTHERS_WRITE)


def _name(user: int) -> str:
    try:
        return f"{pwd.getpwuid(user).pw_name} ({user})"
    except KeyError:
        return str(user)
