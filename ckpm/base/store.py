"""Keep files between runs. Each entry has its sha256, is checked at each read, and is written as a draft and renamed.

An entry of a :class:`Store` is one file: a line with the sha256 of its name and content, then the content. A file that
other programs open by name (a shared library, an object) can't contain such a line: its sha256 is in a second file. A
damaged entry counts as absent, so that it is rebuilt.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from .files import open_lock, sha256_of
from .trust import why_untrusted

SUFFIX = ".entry"
BESIDE = ".sha256"
DRAFTS = "drafts"
_LOCK = ".lock"


class Store:
    """Entries in one folder, by keys. A key must identify all inputs of its entry."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def get(self, key: str) -> bytes | None:
        """Return the content; None if it is absent or damaged, or if other users could have put it there."""
        file = self._entry(key)
        with contextlib.suppress(OSError):
            if not why_untrusted(file, self._folder):
                return _content(file)
        return None

    def put(self, key: str, content: bytes) -> None:
        """Replace the entry in one step. Errors are ignored: the entry is then made again next time."""
        file = self._entry(key)
        with contextlib.suppress(OSError), draft_folder(self._folder) as drafts:
            draft = drafts / file.name
            draft.write_bytes(_digest(file.name, content) + b"\n" + content)
            draft.replace(file)

    def entries(self) -> list[Path]:
        """The files of all entries."""
        return sorted(self._folder.glob(f"*{SUFFIX}"))

    def _entry(self, key: str) -> Path:
        return self._folder / f"{key}{SUFFIX}"


def is_whole_entry(file: Path) -> bool:
    """Return True if a store's file has the content that was written. Raises OSError."""
    return _content(file) is not None


def adopt(draft: Path, path: Path) -> None:
    """Write the sha256 of a finished draft, and move both to ``path``. Raises OSError."""
    digest = _beside(draft)
    digest.write_text(sha256_of(draft))
    digest.replace(_beside(path))
    draft.replace(path)


def remember(file: Path, top: Path) -> None:
    """Record the sha256 of an existing file, unless it is recorded. Raises OSError.

    Drafts are in ``top``, on the same file system.
    """
    if _beside(file).exists():
        return
    with draft_folder(top) as drafts:
        draft = drafts / _beside(file).name
        draft.write_text(sha256_of(file))
        draft.replace(_beside(file))


def is_adopted(file: Path) -> bool:
    """Return True if a file has the sha256 that :func:`adopt` or :func:`remember` recorded. Raises OSError."""
    try:
        return _beside(file).read_text(errors="replace") == sha256_of(file)
    except (FileNotFoundError, NotADirectoryError):
        return False


@contextlib.contextmanager
def draft_folder(top: Path) -> Iterator[Path]:
    """Make a folder of this process inside ``top`` for unfinished files; it is removed at the end.

    The folder of a killed process has a free lock, and the next process removes it. Raises OSError, PermissionError if
    others can write there.
    """
    drafts = top / DRAFTS
    drafts.mkdir(parents=True, exist_ok=True)
    if why := why_untrusted(drafts, top):
        raise PermissionError(errno.EPERM, why, str(drafts))
    for left in drafts.iterdir():
        _remove_if_abandoned(left)
    folder, lock = _locked_folder(drafts)
    with lock:
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _locked_folder(drafts: Path) -> tuple[Path, IO[str]]:
    """A new folder and its lock, which this process holds until it closes the file."""
    while True:
        folder = Path(tempfile.mkdtemp(dir=drafts))
        with contextlib.suppress(FileNotFoundError):  # until it is locked, others may take it for abandoned
            lock = os.fdopen(open_lock(folder / _LOCK), "r+")
            fcntl.flock(lock, fcntl.LOCK_EX)
            if (folder / _LOCK).exists():
                return folder, lock
            lock.close()


def _remove_if_abandoned(folder: Path) -> None:
    with contextlib.suppress(OSError), os.fdopen(open_lock(folder / _LOCK), "r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)


def _content(file: Path) -> bytes | None:
    line, _, content = file.read_bytes().partition(b"\n")
    return content if line == _digest(file.name, content) else None


def _digest(name: str, content: bytes) -> bytes:
    """The sha256 of name and content, so that an entry under another entry's name counts as damaged."""
    digest = hashlib.sha256(os.fsencode(name) + b"\0")
    digest.update(content)
    return digest.hexdigest().encode()


def _beside(file: Path) -> Path:
    return file.with_name(file.name + BESIDE)
