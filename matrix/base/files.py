"""Files that are whole or absent: written beside their place, then renamed into it."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from matrix.base.errors import DiskFullError, OutputError

_REASONS = {
    errno.ENOTDIR: "A folder of this path is a file",
    errno.EEXIST: "A folder of this path is a file",
    errno.EISDIR: "There is a folder of this name",
    errno.EACCES: "This user may not write there",
    errno.EPERM: "This user may not write there",
    errno.EROFS: "That file system is read-only",
    errno.ENAMETOOLONG: "The name is too long for the file system",
}


@contextmanager
def writing(place: Path, otherwise: str = "name another place") -> Iterator[None]:
    """Turn every OSError of writing into an error that names the place; ``otherwise`` is what else the user can do.

    Raises:
        DiskFullError: no space, or no quota, is left.
        OutputError: anything else: no permission, a file where a folder is needed, a folder where a file is.
    """
    try:
        yield
    except OSError as error:
        raise write_error(place, error, otherwise) from error


def write_error(place: Path | str, error: OSError, otherwise: str = "name another place") -> OutputError:
    """The error for something that could not be written."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFullError(f"{place}: no space left on the disk. Free some, or {otherwise}.")
    reason = _REASONS.get(error.errno or 0)
    remedy = f"{reason}: {otherwise}" if reason else f"Mend that, or {otherwise}"
    return OutputError(f"{place}: can't be written: {error.strerror or error}. {remedy}.")


def write_atomically(file: Path, data: bytes) -> None:
    """Replace ``file`` by ``data`` in one step; on failure the old file stays and nothing else is left.

    Missing folders are made. A link stays one: its target is replaced. What is no file (a folder, a device such as
    /dev/null, which a rename would destroy) is left alone.

    Raises:
        DiskFullError, OutputError: as :func:`writing`.
    """
    with writing(file):
        target = _replaceable(str(file))
        folder, name = os.path.split(target)
        beside = f"{folder or '.'}/.{name}.{os.getpid()}.{threading.get_ident()}"
        try:
            # thousands of files: Path.open takes twice as long
            try:
                stream = open(beside, "wb")  # noqa: PTH123, SIM115
            except FileNotFoundError:
                os.makedirs(folder, exist_ok=True)  # noqa: PTH103
                stream = open(beside, "wb")  # noqa: PTH123, SIM115
            with stream:
                stream.write(data)
            os.replace(beside, target)  # noqa: PTH105
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(beside)  # noqa: PTH108
            raise


def _replaceable(file: str) -> str:
    """The path to rename to. Raises OutputError if something that is no file is there, OSError as lstat."""
    try:
        kind = os.lstat(file).st_mode
        if stat.S_ISLNK(kind):
            file = os.path.realpath(file)
            kind = os.lstat(file).st_mode
    except FileNotFoundError:
        return file
    if not stat.S_ISREG(kind):
        what = "a folder" if stat.S_ISDIR(kind) else "no file that can be replaced"
        raise OutputError(f"{file}: can't be written: it is {what}. Name a file.")
    return file
