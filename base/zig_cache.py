"""What zig builds for a link and keeps (libc++, compiler_rt, the C library's start files and stubs), checked.

zig takes what lies in its cache for what it once put there. Here the sha256 of each such file is kept beside it, in the
way of base/store.py, from the first link that zig made with it; before the next link they are compared.
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
    """Inside, zig links with what is whole in its cache folder; what was damaged it makes again. Raises OSError."""
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
        shutil.rmtree(cache / "h", ignore_errors=True)  # which note is whose only zig knows


def linked_with(cache: Path) -> list[Path]:
    """Files whose sha256 is kept. One that is missing is damaged, too."""
    kept = (file.with_name(file.name.removesuffix(BESIDE)) for file in (cache / "o").glob(f"*/*{BESIDE}"))
    return sorted(file for file in kept if file.suffix != BESIDE)


def _files(cache: Path) -> Iterator[Path]:
    """What is linked with. The digest beside libc.so.6 fits a pattern, too; each link would give it one of its own."""
    for pattern in _LINKED:
        yield from (file for file in (cache / "o").glob(f"*/{pattern}") if not file.name.endswith(BESIDE))
