"""Files kept between runs: each has its sha256, is checked at each read, and is written beside its path and renamed.

An entry of a :class:`Store` is one file: a line with the sha256 of its name and content, then the content. A file that
other programs open by name (a shared library) can't contain such a line: its sha256 lies beside it. A damaged entry
counts as absent, so that it is made again. The folder and the format of its files are those of ckpm.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from ckpm_emulator.errors import OutputError, TrustError, UsageError
from ckpm_emulator.trust import demand_trusted, keep_others_out

_SUFFIX, _BESIDE, _DRAFT = ".entry", ".sha256", ".draft-"
_DAY = 86_400  # seconds: no draft takes so long
_LINKED = ("*.a", "*.o", "*.so", "*.so.*")  # files of zig's cache


def cache_folder() -> Path:
    """Return the emulator's folder in CKPM_CACHE, else in the user's cache folder; its files are private.

    Raises UsageError: there is neither, or its name is not UTF-8. TrustError: others could have made it, or can write
    to it. OutputError: it can't be read.
    """
    folder = _chosen_folder()
    try:
        str(folder).encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"{folder}: this name is not UTF-8. Set CKPM_CACHE to another folder.") from error
    keep_others_out()
    try:
        for path in (folder, *folder.iterdir()) if folder.is_dir() else ():
            with contextlib.suppress(FileNotFoundError):  # another process removed its draft meanwhile
                demand_trusted(path, folder)
    except OSError as error:
        raise OutputError(f"{folder}: {error.strerror}. Set CKPM_CACHE to another folder.") from error
    return folder / "emulator"


def _chosen_folder() -> Path:
    try:
        if chosen := os.environ.get("CKPM_CACHE"):
            return Path(chosen).expanduser().absolute()
        import platformdirs  # only here: a start with CKPM_CACHE, as of a decoder, does without

        return platformdirs.user_cache_path("ck-prefill-matrix")
    except RuntimeError as error:
        raise UsageError("this user has no home folder for the cache: set CKPM_CACHE to a folder.") from error


class Store:
    """Entries in one folder, by keys. A key must identify all inputs of its entry."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def get(self, key: str) -> bytes | None:
        """Return the content; None if it is absent or damaged, or if other users could have put it there."""
        file = self._file(key)
        with contextlib.suppress(OSError, TrustError):
            demand_trusted(file, self._folder)
            digest, _, content = file.read_bytes().partition(b"\n")
            return content if digest == _digest(file.name, content) else None
        return None

    def put(self, key: str, content: bytes) -> None:
        """Replace the entry in one step. Errors are ignored: the entry is then made again next time."""
        file = self._file(key)
        with contextlib.suppress(OSError, TrustError), draft_for(file, self._folder) as draft:
            draft.write_bytes(_digest(file.name, content) + b"\n" + content)

    def _file(self, key: str) -> Path:
        return self._folder / f"{key}{_SUFFIX}"


def _digest(name: str, content: bytes) -> bytes:
    """The sha256 of an entry. The name takes part: an entry under another's name is damage, too."""
    digest = hashlib.sha256(os.fsencode(name) + b"\0")
    digest.update(content)
    return digest.hexdigest().encode()


@contextlib.contextmanager
def draft_for(path: Path, top: Path) -> Iterator[Path]:
    """Yield a path for the draft of a file or link, which replaces ``path`` at the end. Missing folders are made.

    Raises OSError; TrustError: others can write to a folder up to ``top``.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    demand_trusted(path.parent, top)
    for left in path.parent.glob(f"{_DRAFT}*"):  # by a killed process
        with contextlib.suppress(FileNotFoundError):
            if time.time() - left.stat().st_mtime > _DAY:
                shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=_DRAFT) as folder:
        draft = Path(folder, path.name)
        yield draft
        draft.replace(path)


def adopt(source: Path, path: Path, top: Path) -> None:
    """Copy a file to its place in the cache, its sha256 beside it. Raises what :func:`draft_for` raises."""
    with draft_for(path, top) as draft:
        shutil.copy(source, draft)
        remember(path, top, _sha256_of(draft))


def remember(path: Path, top: Path, sha256: str) -> None:
    """Write a file's sha256 beside it. Raises what :func:`draft_for` raises."""
    with draft_for(_beside(path), top) as draft:
        draft.write_text(sha256)


def is_adopted(path: Path) -> bool:
    """Return True if a file is as it was when its sha256 was written. Raises OSError: it can't be read."""
    try:
        return _beside(path).read_text(errors="replace") == _sha256_of(path)
    except (FileNotFoundError, NotADirectoryError):
        return False


@contextlib.contextmanager
def checked_link(zig: Path) -> Iterator[None]:
    """Remove damaged files of zig's cache folder before a link, as zig links with them unchecked; remember new ones.

    zig builds libc++, compiler_rt and the C library's start files for a link, and keeps them. ckpm checks them, too.
    """
    kept = [Path(str(file).removesuffix(_BESIDE)) for file in zig.glob(f"o/*/*{_BESIDE}")]
    damaged = {file.parent for file in kept if file.suffix != _BESIDE and not is_adopted(file)}
    for folder in damaged:
        shutil.rmtree(folder, ignore_errors=True)
    if damaged:
        shutil.rmtree(zig / "h", ignore_errors=True)  # zig's notes that they were made don't name them
    yield
    for file in (file for pattern in _LINKED for file in zig.glob(f"o/*/{pattern}")):
        if file.suffix != _BESIDE and not _beside(file).exists():  # libc.so.6.sha256 fits a pattern, too
            remember(file, zig, _sha256_of(file))


def _sha256_of(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _beside(path: Path) -> Path:
    return path.with_name(path.name + _BESIDE)
