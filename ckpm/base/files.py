"""Write files atomically: to a draft in the same folder, then renamed. Devices and pipes are written directly."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import os
import re
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from .errors import DiskFullError, OutputError

_REASONS = {
    errno.ENOTDIR: "A folder of this path is a file",
    errno.EEXIST: "A folder of this path is a file, or a link that leads nowhere",
    errno.EISDIR: "There is a folder of this name",
    errno.EACCES: "This user may not write there",
    errno.EPERM: "This user may not write there",
    errno.EROFS: "That file system is read-only",
    errno.ELOOP: "It is a link, or its links lead in a circle",
    errno.ENXIO: "It is a pipe that no program reads, or a device that is not there",
    errno.ENAMETOOLONG: "The name is too long for the file system",
}
_REFUSED = {stat.S_IFDIR: "a folder", stat.S_IFBLK: "a disk", stat.S_IFSOCK: "a socket, which can't be opened"}
_DRAFT = re.compile(r"\..+\.(\d+)\.\d+")  # name, process, thread
_LINKS = 40  # what Linux follows


@contextmanager
def name_write_errors(path: Path, otherwise: str = "name another place") -> Iterator[None]:
    """Turn every OSError of writing into a DiskFullError or OutputError that names the path.

    ``otherwise`` is what else the user can do.
    """
    try:
        yield
    except OSError as error:
        raise write_error(path, error, otherwise) from error


def write_error(path: Path | str, error: OSError, otherwise: str = "name another place") -> OutputError:
    """The error for a path that could not be written."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFullError(f"{path}: no space left on the disk. Free some, or {otherwise}.")
    reason = _REASONS.get(error.errno or 0)
    remedy = f"{reason}: {otherwise}" if reason else f"Fix that, or {otherwise}"
    return OutputError(f"{path}: can't be written: {error.strerror or error}. {remedy}.")


def write_atomically(file: Path, data: bytes) -> None:
    """Replace ``file`` by ``data`` in one step; on failure only the old file stays.

    Missing folders are made. A link of this user or root stays one: its target is replaced. A link that another user
    made is replaced itself, because its target could be any file of this user. Character devices, pipes and
    the descriptors of /dev/stdout and its like are written to: a rename would destroy them.
    """
    with name_write_errors(file):
        if (number := _descriptor(str(file))) is not None:
            _write_to(number, data)
            return
        target, kind = _target(str(file))
        if kind in (stat.S_IFCHR, stat.S_IFIFO):
            with open(target, "wb", buffering=0) as special:  # noqa: PTH123
                _write_to(special.fileno(), data)
            return
        if kind not in (0, stat.S_IFREG):
            raise OutputError(f"{target}: can't be written: it is {_REFUSED.get(kind, 'no file')}. Name a file.")
        _replace(target, data)


def append(file: Path, text: str) -> None:
    """Add text to a file that other programs write, too. Raises OSError, also for a pipe that no program reads."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC
    with os.fdopen(os.open(file, flags, 0o666), "w", encoding="utf-8") as stream:
        os.set_blocking(stream.fileno(), True)
        stream.write(text)


def is_special(file: Path) -> bool:
    """Return True if a path leads to a device, a pipe or a socket: neither a regular file nor a folder."""
    return _descriptor(str(file)) is not None or _look(file)[1] not in (0, stat.S_IFREG, stat.S_IFDIR)


def regular_file(file: Path) -> Path | None:
    """The regular file that a path leads to, its links followed; None without one."""
    if _descriptor(str(file)) is not None:
        return None
    target, kind = _look(file)
    return Path(target) if kind == stat.S_IFREG else None


def _look(file: Path) -> tuple[str, int]:
    """Return :func:`_target`, kind 0 if this user can't look there: writing reports the problem."""
    try:
        return _target(str(file))
    except OSError:
        return str(file), 0


def _replace(target: str, data: bytes) -> None:
    folder, name = os.path.split(target)
    beside = f"{folder or '.'}/.{name}.{os.getpid()}.{threading.get_ident()}"
    try:
        # thousands of files: Path.open takes twice as long
        try:
            stream = open(beside, "wb", opener=_open_no_link)  # noqa: SIM115
        except FileNotFoundError:
            os.makedirs(folder, exist_ok=True)  # noqa: PTH103
            stream = open(beside, "wb", opener=_open_no_link)  # noqa: SIM115
        with stream:
            stream.write(data)
        os.replace(beside, target)  # noqa: PTH105
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(beside)  # noqa: PTH108
        raise


def _open_no_link(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


def abandoned_drafts(folder: Path) -> list[Path]:
    """Files that :func:`write_atomically` left there in killed processes of this machine."""
    if not folder.is_dir():
        return []
    drafts = ((file, _DRAFT.fullmatch(file.name)) for file in folder.iterdir())
    return [file for file, draft in drafts if draft and not Path(f"/proc/{draft[1]}").exists()]


def _write_to(descriptor: int, data: bytes) -> None:
    """Write all data, preceded by the text that Python still buffers for the descriptor."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]


def _target(file: str) -> tuple[str, int]:
    """The path without the links at its end, and the kind of its file (stat.S_IFMT), 0 without a file.

    A link that another user made is not followed: its kind is 0. Raises OSError as lstat, but not for a missing file.
    """
    try:
        link = os.lstat(file)
        kind = link.st_mode
        if stat.S_ISLNK(kind):
            if link.st_uid not in (os.geteuid(), 0):
                return file, 0
            file = os.path.realpath(file)
            kind = os.lstat(file).st_mode
    except FileNotFoundError:
        return file, 0
    return file, stat.S_IFMT(kind)


def _descriptor(file: str) -> int | None:
    """The descriptor of this process that a path such as /dev/stdout or /dev/fd/3 leads to; None for other paths."""
    for _ in range(_LINKS):
        folder, name = os.path.split(file)
        if name.isdecimal() and os.path.realpath(folder) == os.path.realpath("/proc/self/fd"):
            return int(name)
        try:
            file = os.path.join(folder, os.readlink(file))  # noqa: PTH115, PTH118
        except OSError:  # not a link: opening it reports the problem
            return None
    return None


def open_plain(file: Path) -> io.BufferedReader:
    """Open a plain file to read its bytes. Raises OSError, also for pipes and devices, which may never end."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except ValueError as error:  # a name with a null character, which stands in another file
        raise OSError(errno.EINVAL, f"no file can have this name: {error}", str(file)) from error
    kind = os.fstat(descriptor).st_mode
    if stat.S_ISREG(kind):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    if stat.S_ISDIR(kind):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(file))
    raise OSError(errno.EINVAL, "it is a pipe or a device; give a plain file", str(file))


def sha256_of(file: Path) -> str:
    """The sha256 of a plain file as hexadecimal digits. Raises OSError as :func:`open_plain`."""
    with open_plain(file) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def write_if_changed(file: Path, text: str) -> bool:
    """Write text unless the file already contains it; return True if written."""
    data = text.encode("utf-8")
    try:
        if file.is_file() and file.read_bytes() == data:  # a pipe or device is not read
            return False
    except OSError:  # absent, or the write will raise the error
        pass
    write_atomically(file, data)
    return True


def make_folder(folder: Path, otherwise: str = "name another place") -> None:
    """Make a folder and its parents."""
    with name_write_errors(folder, otherwise):
        folder.mkdir(parents=True, exist_ok=True)


def open_lock(file: Path) -> int:
    """Return the descriptor of a lock file, made if missing. Its content stays.

    Raises OSError for a link or a second name of another file, by which another user could choose the file to change.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(file, flags, 0o666)
    there = os.fstat(descriptor)
    if stat.S_ISREG(there.st_mode) and there.st_nlink <= 1:  # 0: another process removed it meanwhile
        return descriptor
    os.close(descriptor)
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(file))


class StoppedError(Exception):
    """The caller ended a wait for a lock, or stopped a pool."""


@contextmanager
def hold_lock(
    file: Path, otherwise: str = "name another place", stopped: Callable[[], bool] | None = None
) -> Iterator[None]:
    """Hold the lock of a file, made if missing; another process that wants it waits. The lock ends with its process.

    Raises StoppedError if ``stopped`` returned True while another process had the lock.
    """
    from filelock import FileLock, Timeout  # imported here, because few processes of a build lock a file

    make_folder(file.parent, otherwise)
    lock = FileLock(file, fallback_to_soft=False)
    with name_write_errors(file, otherwise):
        try:
            lock.acquire(cancel_check=stopped)
        except Timeout as error:
            raise StoppedError from error
    try:
        yield
    finally:
        lock.release()
