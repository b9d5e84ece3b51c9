"""Check the files that zig builds for a link and keeps (libc++, compiler_rt, the C library's start files and stubs).

zig doesn't check the files of its cache. The first link records the sha256 of each file beside it, as
ckpm/base/store.py does. The next link compares them first.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from .store import BESIDE, is_adopted, remember

_LINKED = ("*.a", "*.o", "*.so", "*.so.*")


@contextlib.contextmanager
def checked_link(cache: Path) -> Iterator[None]:
    """Remove damaged files of zig's cache folder before a link, and remember new files at its end."""
    discard_damaged(cache)
    yield
    for file in _files(cache):
        remember(file, cache)


def discard_damaged(cache: Path) -> None:
    """Remove damaged files with their folders, and zig's notes that they were made."""
    damaged = [file for file in linked_with(cache) if not is_adopted(file)]
    for folder in {file.parent for file in damaged}:
        shutil.rmtree(folder, ignore_errors=True)
    if damaged:
        shutil.rmtree(cache / "h", ignore_errors=True)  # zig's notes don't name their files


def linked_with(cache: Path) -> list[Path]:
    """The files whose sha256 is recorded, missing ones included: they count as damaged."""
    kept = (file.with_name(file.name.removesuffix(BESIDE)) for file in (cache / "o").glob(f"*/*{BESIDE}"))
    return sorted(file for file in kept if file.suffix != BESIDE)


def _files(cache: Path) -> Iterator[Path]:
    """The files of a link, without digests: libc.so.6's fits a pattern, and would get a digest at each link."""
    for pattern in _LINKED:
        yield from (file for file in (cache / "o").glob(f"*/{pattern}") if not file.name.endswith(BESIDE))
