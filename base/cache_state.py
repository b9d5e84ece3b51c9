"""Damaged entries of the cache folder, for doctor, which reads all entries. Builds and suites replace a damaged entry
when they use it.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from .store import BESIDE, Store, is_adopted, is_whole_entry
from .zig_cache import linked_with


@dataclass(frozen=True, slots=True)
class Kept:
    """One kind of entries: their number, and the files of the damaged entries."""

    what: str
    entries: int
    damaged: tuple[Path, ...]


def kept(cache: Path) -> Iterator[Kept]:
    """Return each kind of entries in a cache folder. Files that vanish meanwhile count as whole."""
    for what, folder in (
        ("decoded programs", cache / "emulator/programs"),
        ("inspections", cache / "emulator/inspections"),
        ("parity", cache / "parity"),
    ):
        yield _count_kept(what, Store(folder).entries(), is_whole_entry)
    yield _count_kept("the emulator's core", _with_digests(cache / "emulator", "core-*"), is_adopted)
    yield _count_kept("compiled units", _with_digests(cache / "objects", "??"), is_adopted)
    yield _count_kept("libraries compiled on demand", _with_digests(cache / "jit/entries", "*"), is_adopted)
    yield _count_kept("what zig links with", linked_with(cache / "zig"), is_adopted)
    yield _count_kept("launchers", sorted((cache / "launchers").glob("*/")), _is_whole_launcher)


def _count_kept(what: str, files: Iterable[Path], is_whole: Callable[[Path], bool]) -> Kept:
    listed = list(files)
    return Kept(what, len(listed), tuple(file for file in listed if not _or_gone(is_whole, file)))


def _or_gone(is_whole: Callable[[Path], bool], file: Path) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return is_whole(file) or not file.exists()
    return True


def _with_digests(top: Path, *folders: str) -> list[Path]:
    """Return the files that have their sha256 beside them; files without are never used."""
    digests = (file for folder in folders for file in top.glob(f"{folder}/*{BESIDE}"))
    return sorted(file.with_suffix("") for file in digests)


def _is_whole_launcher(folder: Path) -> bool:
    """True if the folder's name is the digest of its texts (kernels/code/toolchains/embedded.py)."""
    texts = (folder / name for name in ("lld", "clang-offload-bundler"))
    return hashlib.sha256(b"\0".join(text.read_bytes() for text in texts)).hexdigest()[:16] == folder.name
