"""Check that a file to be run belongs to this user, to root, or to the owner of this program.

Another user who can write to the file, or to a folder above it, could put a program of their own there.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import secrets
import stat
import tempfile
import threading
from pathlib import Path

from .errors import SetupError, TrustError
from .files import make_folder, name_write_errors

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_UMASK = threading.Lock()  # a thread in between would take 0o077 for the mask, and leave it


def trusted_owners() -> frozenset[int]:
    """The user ids whose files may be run."""
    return frozenset({os.geteuid(), 0, Path(__file__).stat().st_uid})


def why_untrusted(path: Path, top: Path, owners: frozenset[int] | None = None, instead: str = "") -> str:
    """Return the reason why ``path`` must not be run, with a remedy; '' if it may. Folders are checked up to ``top``.

    ``instead`` is the remedy (default: delete ``top``, a cache). Raises OSError if ``path`` is missing or unreadable.
    """
    instead = instead or f"Delete {top}: it is made again"
    allowed = trusted_owners() if owners is None else owners
    for part in (path, *path.parents):
        link, there = part.lstat(), part.stat()
        for status in (link, there):
            if status.st_uid not in allowed:
                return (
                    f"{part}: it belongs to user {_name(status.st_uid)}, and what it holds would be run as "
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
    """Make the files of this process and its children unwritable for other users."""
    with _UMASK:
        os.umask(os.umask(0o077) | _OTHERS_WRITE)


def _name(user: int) -> str:
    try:
        return f"{pwd.getpwuid(user).pw_name} ({user})"
    except KeyError:
        return str(user)


_OTHERWISE = "set CKPM_CACHE to another folder"
_KEY_BYTES = 32


def demand_trusted(path: Path, top: Path, instead: str = "") -> None:
    """Refuse a path that other users could have made or changed; folders are checked up to ``top``.

    ``instead`` is the remedy (default: delete ``top``, a cache). Raises TrustError, and OSError for a missing path.
    """
    if why := why_untrusted(path, top, instead=instead):
        raise TrustError(why, kind="untrusted")


def demand_trusted_library(library: Path) -> None:
    """Refuse a library if others own it or can write to it or its folder; a missing one passes."""
    file = library.absolute()
    if file.exists():
        demand_trusted(file, file.parent, "Build it again")


def demand_private(cache: Path) -> None:
    """Make the cache folder if it is missing, and :func:`refuse_shared`. Refuse one in which nothing can be run."""
    keep_others_out()
    make_folder(cache, _OTHERWISE)
    refuse_shared(cache)
    if why := why_no_program(cache):
        raise SetupError(f"{cache}: {why}: {_OTHERWISE}.", kind="noexec")


def why_no_program(path: Path) -> str:
    """The reason why neither a program nor a library is run from the file system of a path; '' if it is."""
    return (
        "its file system is mounted with noexec"
        if os.statvfs(path if path.exists() else path.parent).f_flag & os.ST_NOEXEC
        else ""
    )


def refuse_shared(cache: Path) -> None:
    """Refuse a cache folder if others own, or can write to, it or a direct entry; a missing one passes.

    New files of this process are private from now on.
    """
    keep_others_out()
    if not cache.is_dir():
        return
    with name_write_errors(cache, _OTHERWISE):
        for path in (cache, *cache.iterdir()):
            with contextlib.suppress(FileNotFoundError):  # a lock or draft of another process was deleted meanwhile
                demand_trusted(path, cache)


def signing_key(cache: Path) -> bytes:
    """Return this user's secret in the cache folder, made at first use. A key that others can read is refused."""
    demand_private(cache)
    file = cache / "key"
    with name_write_errors(file, _OTHERWISE):
        if not file.exists():
            with tempfile.NamedTemporaryFile(dir=cache, prefix=".key.") as draft:  # readable by this user alone
                draft.write(secrets.token_bytes(_KEY_BYTES))
                draft.flush()
                with contextlib.suppress(FileExistsError):  # another process was first: its key counts
                    os.link(draft.name, file)
        demand_trusted(file, cache)
        key = file.read_bytes()
        if file.stat().st_mode & 0o077 or len(key) != _KEY_BYTES:
            raise TrustError(
                f"{file}: others can read it, or it is damaged. Delete it: it is made again.", kind="untrusted"
            )
    return key
