"""The file that a first run on a GPU makes: its texts without paths and names of the machine, with a sha256 of each.

It is the tar of ckpm.reports.release.archive, compressed by xz: Python's library has Zstandard from 3.14 on alone.
"""

from __future__ import annotations

import functools
import lzma
import os
import re
import socket
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from ckpm.base import settings
from ckpm.base.errors import TrustError
from ckpm.base.files import make_folder, name_write_errors, open_plain, sha256_of, write_atomically
from ckpm.base.paths import IMPORTS, data
from ckpm.reports.release import contents
from ckpm.reports.release.archive import unpack, write_tar

SUFFIX = ".tar.xz"
_LARGEST, _MEMORY, _CHUNK = 1 << 30, 128 << 20, 1 << 20  # bytes
# folders that every Linux has
_SYSTEM = r"(?:opt/rocm[\w.-]*|usr/(?!local/)[\w.-]+|dev/(?:kfd|dri|shm|null)|sys|proc|lib|lib64|bin)(?![\w.-])"
_BEFORE = r"(?:(?<![\w./)-])|(?<=\\[nrt])|(?<=-[A-Z]))"  # also after \n of JSON, and after -I
_PATH = re.compile(
    rf"(?<=[\"'])/(?!{_SYSTEM})[^\"'\\\n]+(?=[\"'\\])|{_BEFORE}/(?!{_SYSTEM})[\w.+@~%-]+(?:/[\w.+@~%-]*)*"
)
_ADDRESS = re.compile(
    r"\b[a-z][a-z+]*://(?!github\.com/)[^\s\"'<>)]+|\b[\w.+-]+@[a-z][\w-]*(?:\.[\w-]+)+|\b\d{1,3}(?:\.\d{1,3}){3}\b",
    re.I,
)
_HOST = re.compile(r"://(?:[^\s/@\"']*@)?([\w.-]+)")
_WORD = re.compile(r"[\w.-]+")


def pack(sources: Mapping[str, Path], texts: Mapping[str, str], folder: Path, epoch: int) -> Path:
    """Write the parcel ``folder`` + SUFFIX of files and texts by name, scrubbed; the folder keeps its contents."""
    texts = {**{name: file.read_text(encoding="utf-8", errors="replace") for name, file in sources.items()}, **texts}
    hidden = dict(_hidden((*texts.values(), *os.environ.values())))
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
        text = re.sub(rf"(?<![\w-]){re.escape(secret)}(?![\w-])", hidden[secret], text, flags=re.IGNORECASE)
    return _PATH.sub(_hide_path, _ADDRESS.sub("ADDRESS", text))


def _hide_path(match: re.Match[str]) -> str:
    """PATH, with the name of a file that has a suffix. One name alone is a path if it is there."""
    path = match[0].rstrip("/")
    if path.count("/") == 1 and not Path(path).exists():
        return match[0]
    name = path.rpartition("/")[2]
    return f"PATH/{name}" if "." in name else "PATH"


def _hidden(texts: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Names of this machine, its user, and hosts of addresses, and paths of this program, with the word for each.

    Names that are words of this program stay: its records contain them.
    """
    host, home = socket.gethostname(), Path(os.environ.get("HOME", "/"))
    users = {os.environ.get("USER", ""), os.environ.get("SUDO_USER", ""), home.name}
    names = dict.fromkeys((name for text in texts for name in _HOST.findall(text)), "ADDRESS")
    names |= {**dict.fromkeys(users, "USER"), host: "HOST", host.partition(".")[0]: "HOST"}
    yield from ((name, word) for name, word in names.items() if name and name.lower() not in _vocabulary())
    paths = {settings.cache_path(): "CACHE", IMPORTS: "CLONE", Path(sys.prefix): "PYTHON", home: "/HOME"}
    yield from ((str(path), word) for path, word in paths.items() if len(path.parts) > 1)


@functools.cache  # a run is packed twice
def _vocabulary() -> frozenset[str]:
    """The words of this program's code and tables, in lower case."""
    folders = IMPORTS / "ckpm", data("matrix"), data("reports")
    files = (file for folder in folders for file in folder.rglob("*") if file.suffix in (".py", ".yaml"))
    return frozenset(word for file in files for word in _WORD.findall(file.read_text(encoding="utf-8").lower()))


def open_parcel(file: Path, target: Path) -> Path:
    """Unpack a parcel below ``target``, and return its folder. Every doubt is a TrustError."""
    make_folder(target)
    tar = target / f"{file.stem}.tar"  # of a name that messages can have
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
        raise TrustError(
            f"{file}: can't be read as a file of first-gpu-run: {error}. Copy it again.", kind="archive"
        ) from error
    folder, _ = unpack(tar, target / "files")
    contents.demand_listed(folder, contents.files_of(folder))
    return folder
