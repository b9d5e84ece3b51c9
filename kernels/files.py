"""Files that are whole or absent: written beside their place, then renamed into it."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kernels.errors import DiskFullError


@contextmanager
def disk_full_is_an_error(place: Path) -> Iterator[None]:
    """Turn ENOSPC and EDQUOT into DiskFullError naming the place."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFullError(f"{place}: no space left on the disk. Free some, or choose another folder.") from error
        raise


def write_atomically(file: Path, data: bytes) -> None:
    """Replace ``file`` by ``data`` in one step; on failure the old file stays and nothing else is left.

    Raises:
        DiskFullError: the disk is full.
    """
    beside = f"{file.parent}/.{file.name}.{os.getpid()}.{threading.get_ident()}"
    with disk_full_is_an_error(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            with open(beside, "wb") as stream:  # noqa: PTH123 - thousands of files: Path.open takes twice as long
                stream.write(data)
            os.replace(beside, file)  # noqa: PTH105
        except BaseException:
            Path(beside).unlink(missing_ok=True)
            raise


def write_if_changed(file: Path, text: str) -> bool:
    """Write text unless the file already holds it; True if written. Raises DiskFullError."""
    data = text.encode("utf-8")
    try:
        if file.read_bytes() == data:
            return False
    except FileNotFoundError:
        pass
    write_atomically(file, data)
    return True
