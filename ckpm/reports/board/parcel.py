"""The file that a first run on a GPU makes: its texts without paths and names of the machine, with a sha256 of each.

It is the tar of ckpm.reports.release.archive, compressed by xz: Python's library has Zstandard from 3.14 on alone.
"""

from __future__ import annotations

import lzma
import re
import socket
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from ckpm.base import settings
from ckpm.base.errors import TrustError
from ckpm.base.files import make_folder, name_write_errors, open_plain, sha256_of, write_atomically
from ckpm.base.paths import IMPORTS
from ckpm.reports.release import contents
from ckpm.reports.release.archive import unpack, write_tar

SUFFIX = ".tar.xz"
_LARGEST, _MEMORY, _CHUNK = 1 << 30, 128 << 20, 1 << 20  # bytes
_SYSTEM = "opt|usr|dev|sys|proc|lib|lib64|bin"  # folders that every Linux has
_PATH = re.compile(rf"(?<![\w.:/)-])/(?!(?:{_SYSTEM})/)[\w.+@~%-]+(?:/[\w.+@~%-]*)+")
_ADDRESS = re.compile(r"\b[a-z][a-z+]*://(?!github\.com/)[^\s\"'<>)]+")
_PLAIN_WORD = re.compile(r"[a-zA-Z]{1,7}")  # may be a word of a record


def pack(sources: Mapping[str, Path], texts: Mapping[str, str], folder: Path, epoch: int) -> Path:
    """Write the parcel ``folder`` + SUFFIX of files and texts by name, scrubbed; the folder keeps its contents."""
    hidden = dict(_hidden())
    for name, source in sources.items():
        text = source.read_text(encoding="utf-8", errors="replace")
        write_atomically(folder / name, scrub(text, hidden).encode())
    for name, text in texts.items():
        write_atomically(folder / name, scrub(text, hidden).encode())
    names = [name for name in contents.files_of(folder) if name != contents.CHECKSUMS]
    sums = {name: sha256_of(folder / name) for name in names}
    write_atomically(folder / contents.CHECKSUMS, contents.checksums_text(sums).encode())
    tar = folder.with_name(f"{folder.name}.tar")
    write_tar(folder, contents.files_of(folder), epoch, tar)
    packed = folder.with_name(f"{folder.name}{SUFFIX}")
    write_atomically(packed, lzma.compress(tar.read_bytes()))
    tar.unlink()
    return packed


def scrub(text: str, hidden: Mapping[str, str]) -> str:
    """The text with a word in place of each ``hidden`` text, path of this machine, and address but GitHub's."""
    for secret in sorted(hidden, key=len, reverse=True):
        text = re.sub(rf"(?<![\w-]){re.escape(secret)}(?![\w-])", hidden[secret], text)
    text = _ADDRESS.sub("ADDRESS", text)
    return _PATH.sub(lambda match: f"PATH/{match[0].rstrip('/').rpartition('/')[2]}", text)


def _hidden() -> Iterator[tuple[str, str]]:
    """Names of this machine, and paths of this program, with the word that replaces each."""
    host = socket.gethostname()
    for name in {host, host.partition(".")[0]}:
        if name and not _PLAIN_WORD.fullmatch(name):
            yield name, "HOST"
    for path, word in ((settings.cache_path(), "CACHE"), (IMPORTS, "CLONE"), (Path(sys.prefix), "PYTHON")):
        yield str(path), word


def open_parcel(file: Path, target: Path) -> Path:
    """Unpack a parcel below ``target``, and return its folder. Every doubt is a TrustError."""
    make_folder(target)
    tar = target / "parcel.tar"
    expander = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MEMORY)
    try:
        with open_plain(file) as packed, name_write_errors(tar), tar.open("wb") as stream:
            written = 0
            while not expander.eof:
                data = packed.read(_CHUNK) if expander.needs_input else b""
                if expander.needs_input and not data:
                    raise TrustError(f"{file}: it ends in the middle. Copy it again.", kind="archive")
                expanded = expander.decompress(data, _CHUNK)
                written += stream.write(expanded)
                if written > _LARGEST:
                    raise TrustError(f"{file}: more than {_LARGEST >> 30} GiB. Don't unpack it.", kind="archive")
            if expander.unused_data or packed.read(1):
                raise TrustError(f"{file}: it has bytes after its end. Don't unpack it.", kind="archive")
    except (lzma.LZMAError, OSError) as error:
        raise TrustError(f"{file}: can't be read as a file of first-gpu-run: {error}.", kind="archive") from error
    folder, _ = unpack(tar, target / "files")
    contents.demand_listed(folder, contents.files_of(folder))
    return folder
