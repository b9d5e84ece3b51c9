"""Which entries of the cache folder are not as they were written. Builds and suites make those again when they meet
them; here all are read, for doctor.
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
    """One kind of entries: how many there are, and the files of the damaged ones."""

    what: str
    entries: int
    damaged: tuple[Path, ...]


def kept(cache: Path) -> Iterator[Kept]:
    """Each kind of entries that is in a cache folder. Files that vanish meanwhile count as whole."""
    for what, folder in (
        ("decoded programs", cache / "emulator/programs"),
        ("inspections", cache / "emulator/inspections"),
        ("parity", cache / "parity"),
    ):
        yield _judged(what, Store(folder).entries(), is_whole_entry)
    yield _judged("the emulator's core", _with_digests(cache / "emulator", "core-*"), is_adopted)
    yield _judged("compiled units", _with_digests(cache / "objects", "??"), is_adopted)
    yield _judged("libraries compiled on demand", _with_digests(cache / "jit/entries", "*"), is_adopted)
    yield _judged("what zig links with", linked_with(cache / "zig"), is_adopted)
    yield _judged("launchers", sorted((cache / "launchers").glob("*/")), _is_whole_launcher)


def _judged(what: str, files: Iterable[Path], is_whole: Callable[[Path], bool]) -> Kept:
    listed = list(files)
    return Kept(what, len(listed), tuple(file for file in listed if not _or_gone(is_whole, file)))


def _or_gone(is_whole: Callable[[Path], bool], file: Path) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return is_whole(file) or not file.exists()
    return True


def _with_digests(top: Path, *folders: str) -> list[Path]:
    """Files beside which their sha256 lies. One without is none that is ever used."""
    digests = (file for folder in folders for file in top.glob(f"{folder}/*{BESIDE}"))
    return sorted(file.with_suffix("") for file in digests)


def _is_whole_launcher(folder: Path) -> bool:
    """The folder's name is a digest of its texts (kernels/code/toolchains/embedded.py)."""
    texts = (folder / name for name in ("lld", "clang-offload-bundler"))
    return hashlib.sha256(b"\0".join(text.read_bytes() for text in texts)).hexdigest()[:16] == folder.name
