"""Check the files that zig builds for a link and keeps (libc++, compiler_rt, the C library's start files and stubs).

zig doesn't check the files of its cache. The first link records the sha256 of each file beside it, as
ckpm/base/store.py does. The next link compares them first.

zig's notes (``h/``) list a file's size, inode, time and digest. If inode or time differ, zig 0.17 compares the digest
with an unset one (checkInputPath in std/Build/Cache.zig). So in a new environment, or with a restored cache, zig would
build libc++ again for minutes. :func:`renew` corrects the notes. Each installed zig has a folder, because environments
that link in turns would undo each other's notes.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path

from .files import write_atomically
from .store import BESIDE, draft_folder, is_adopted, remember

_ENTRY = struct.Struct("<QQq16sB")  # of a file in a note: size, inode, time, digest, flags; then its path and a 0
_BELOW_LIB = 1 << 2  # flags of a path below zig's folder lib
_LINKED = ("*.a", "*.o", "*.so", "*.so.*")


def own_folder(top: Path, lib: Path) -> Path:
    """The cache folder of the zig that has ``lib``. A new one begins with a copy of the one with the newest libc++."""
    folder = top / hashlib.sha256(os.fsencode(lib)).hexdigest()[:16]
    if not folder.exists():
        with contextlib.suppress(OSError):  # without a copy, zig builds libc++ again
            libraries = sorted(top.glob("*/o/*/libc++.a"), key=lambda file: file.stat().st_mtime)
            if libraries:
                _copy(libraries[-1].parents[2], folder, lib)
    return folder


def _copy(source: Path, folder: Path, lib: Path) -> None:
    """Copy what links need, with notes of ``lib``: whole, or not at all if another process was first."""
    with draft_folder(folder.parent) as drafts:
        draft = drafts / folder.name
        for part in ("h", "o", "z"):  # notes first: what they name is in the copy, too
            shutil.copytree(source / part, draft / part)
        renew(draft, lib)
        draft.rename(folder)


@contextlib.contextmanager
def checked_link(cache: Path) -> Iterator[None]:
    """Remove damaged files of zig's cache folder before a link, and remember new files at its end."""
    discard_damaged(cache)
    yield
    for file in _files(cache):
        remember(file, cache)


def renew(cache: Path, lib: Path) -> None:
    """Write the inodes and times of ``lib``, zig's folder of sources, into the notes of files with the same size.

    Notes of another version of zig have other names, and an installed package is not edited.
    """
    stamp = cache / "lib.stat"
    state = repr(_stat(lib / "std/std.zig")).encode()
    notes = [file for file in (cache / "h").glob("*") if file.is_file()]
    if not notes or (stamp.is_file() and stamp.read_bytes() == state):
        return
    stats: dict[bytes, tuple[int, ...]] = {}
    for file in notes:
        note, offset = bytearray(file.read_bytes()), 0
        before = bytes(note)
        while (end := note.find(0, offset + _ENTRY.size)) > 0:
            size, _, _, digest, flags = _ENTRY.unpack_from(note, offset)
            path = bytes(note[offset + _ENTRY.size : end])
            if flags == _BELOW_LIB:
                if path not in stats:
                    stats[path] = _stat(lib / os.fsdecode(path))
                if stats[path][:1] == (size,):
                    _ENTRY.pack_into(note, offset, *stats[path], digest, flags)
            offset = end + 1
        if note != before:
            write_atomically(file, bytes(note))
    write_atomically(stamp, state)


def _stat(file: Path) -> tuple[int, ...]:
    """Size, inode and time of a file; () if it is missing."""
    with contextlib.suppress(OSError):
        stat = file.stat()
        return stat.st_size, stat.st_ino, stat.st_mtime_ns
    return ()


def discard_damaged(cache: Path) -> None:
    """Remove damaged files with their folders, and zig's notes that they were made."""
    damaged = [file for file in linked_with(cache) if not is_adopted(file)]
    for folder in {file.parent for file in damaged}:
        shutil.rmtree(folder, ignore_errors=True)
    if damaged:
        shutil.rmtree(cache / "h", ignore_errors=True)  # zig's notes don't name their files


def linked_with(cache: Path) -> list[Path]:
    """The files whose sha256 is recorded, missing ones included: they count as damaged."""
    kept = (file.with_name(file.name.removesuffix(BESIDE)) for file in (cache / "o").glob(f"*/*{BESIDE}"))
    return sorted(file for file in kept if file.suffix != BESIDE)


def _files(cache: Path) -> Iterator[Path]:
    """The files of a link, without digests: libc.so.6's fits a pattern, and would get a digest at each link."""
    for pattern in _LINKED:
        yield from (file for file in (cache / "o").glob(f"*/{pattern}") if not file.name.endswith(BESIDE))
