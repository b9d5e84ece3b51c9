"""Files, folders and locks of builds, with errors that name them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from matrix.base.errors import OutputError
from matrix.base.files import abandoned_drafts, write_atomically, writing

__all__ = ["abandoned_drafts", "locked", "make_folder", "write_atomically", "write_if_changed", "writing"]


def write_if_changed(file: Path, text: str) -> bool:
    """Write text unless the file already contains it; return True if written. Raises DiskFullError, OutputError."""
    data = text.encode("utf-8")
    try:
        if file.is_file() and file.read_bytes() == data:  # a pipe or device is not read
            return False
    except OSError:  # absent, or the write will raise the error
        pass
    write_atomically(file, data)
    return True


def make_folder(folder: Path, otherwise: str = "name another place") -> None:
    """Make a folder and its parents. Raises DiskFullError, OutputError."""
    with writing(folder, otherwise):
        folder.mkdir(parents=True, exist_ok=True)


@contextmanager
def locked(file: Path, otherwise: str = "name another place") -> Iterator[None]:
    """Hold the lock of a file, made if missing; another process that wants it waits.

    Raises:
        DiskFullError, OutputError: the file can't be made, or its file system has no locks.
    """
    from filelock import FileLock  # imported here, because few processes of a build lock a file

    make_folder(file.parent, otherwise)
    lock = FileLock(file)
    with writing(file, otherwise):
        try:
            lock.acquire()
        except NotImplementedError as error:  # what filelock makes of ENOSYS
            raise OutputError(f"{file}: its file system has no locks: {otherwise}.") from error
    try:
        yield
    finally:
        lock.release()
