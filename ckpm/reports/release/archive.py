"""The bundle as one tar: plain files in order, of one time and one owner, so that the same files make the same tar.

A tar is accepted only if :func:`write_tar` makes the same bytes of the files in it. So it can't hide bytes after its
end, extended headers, links or two entries of one name.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import shutil
import tarfile
import threading
from pathlib import Path
from typing import IO, Any, cast

from ckpm.base.errors import TrustError
from ckpm.base.files import make_folder, name_write_errors, open_plain, sha256_of
from ckpm.reports.release.contents import MOST_FILES, demand_few, demand_plain

_CHUNK = 1 << 20  # bytes


def write_tar(folder: Path, names: list[str], epoch: int, target: Path) -> None:
    """Replace ``target`` by a tar of these files below one folder of the folder's name."""
    beside = target.with_name(f".{target.name}.{os.getpid()}.{threading.get_ident()}")  # of abandoned_drafts' form
    with name_write_errors(target):
        try:
            with beside.open("wb") as stream:
                _write(stream, folder, folder.name, names, epoch)
            beside.replace(target)
        finally:
            beside.unlink(missing_ok=True)


def _write(stream: IO[bytes], folder: Path, root: str, names: list[str], epoch: int) -> None:
    with tarfile.TarFile(fileobj=stream, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name in sorted(names):
            entry = tarfile.TarInfo(f"{root}/{name}")
            entry.size, entry.mtime, entry.mode = (folder / name).stat().st_size, epoch, 0o644
            with (folder / name).open("rb") as content:
                tar.addfile(entry, content)


def unpack(file: Path, target: Path) -> tuple[Path, int]:
    """Unpack a bundle below ``target``. Return its folder, and the time of its files in seconds since 1970.

    Nothing is written before every name is checked.
    """
    try:
        with open_plain(file) as stream, tarfile.TarFile.open(fileobj=stream, mode="r:") as tar:
            entries = list(itertools.islice(tar, MOST_FILES + 1))
            demand_few(len(entries), str(file))
            root = _root(file, entries)
            names = [entry.name.removeprefix(f"{root}/") for entry in entries]
            demand_plain(names, str(file))
            for entry, name in zip(entries, names, strict=True):
                _extract(tar, entry, target / root / name)
    except (tarfile.TarError, EOFError, ValueError, OverflowError, RecursionError) as error:  # headers of headers
        raise TrustError(f"{file}: can't be read as a tar: {error}. Copy it again.", kind="archive") from error
    except OSError as error:
        if error.filename is None or Path(error.filename) == file:
            raise TrustError(f"{file}: can't be read: {error.strerror or error}.", kind="archive") from error
        raise
    epoch = int(entries[0].mtime)
    digest = _Digest()
    _write(cast(IO[bytes], digest), target / root, root, names, epoch)
    if sha256_of(file) != digest.sha256.hexdigest():
        raise TrustError(
            f"{file}: not the archive that a release writes of its files: order, times, owners, modes, or "
            "bytes between or after its entries differ.",
            kind="archive",
        )
    return target / root, epoch


def _root(file: Path, entries: list[tarfile.TarInfo]) -> str:
    """The one folder of all entries."""
    for entry in entries:
        if entry.type != tarfile.REGTYPE or entry.pax_headers or entry.issparse():
            raise TrustError(
                f"{file}: {entry.name!r}: not a plain file but a link, folder or device. Don't unpack it.",
                kind="archive",
            )
    roots = {entry.name.partition("/")[0] for entry in entries if "/" in entry.name}
    if len(roots) != 1 or any("/" not in entry.name for entry in entries):
        shown = sorted(entry.name for entry in entries if entry.name.partition("/")[0] != min(roots, default=""))
        raise TrustError(
            f"{file}: its files are not all in one folder: {shown[:3] or 'there are none'}.", kind="archive"
        )
    (root,) = roots
    demand_plain([root], str(file))
    return root


def _extract(tar: tarfile.TarFile, entry: tarfile.TarInfo, target: Path) -> None:
    """Write a regular file; TarError if the archive ends in the middle of it."""
    make_folder(target.parent)
    with name_write_errors(target), target.open("xb") as stream:
        shutil.copyfileobj(cast(IO[bytes], tar.extractfile(entry)), stream, _CHUNK)


class _Digest:
    """A file that keeps only the sha256 of the bytes written."""

    def __init__(self) -> None:
        self.sha256 = hashlib.sha256()
        self._length = 0

    def write(self, data: Any) -> int:
        self.sha256.update(data)
        self._length += len(data)
        return len(data)

    def tell(self) -> int:
        return self._length
