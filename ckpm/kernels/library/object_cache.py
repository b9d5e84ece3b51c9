"""The cache of objects that checkouts share: SCons's cache, with the sha256 of every entry beside it.

An entry with another sha256, or without a recorded one (the machine stopped between the two), is deleted and the object
is compiled again.
"""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import Any

from SCons.CacheDir import CacheDir  # type: ignore[import-untyped]

from ckpm.base.files import sha256_of
from ckpm.base.store import BESIDE, adopt, draft_folder
from ckpm.base.trust import why_untrusted
from ckpm.kernels.library import finished as built
from ckpm.kernels.library.run_step import announce_damage


class ObjectCache(CacheDir):  # type: ignore[misc]
    """A class for ``CacheDir(path, ObjectCache)`` of an environment that has ``STEPS`` (by target) and ``FOLDER``."""

    def _readconfig(self, path: str) -> None:
        """Fix the number that SCons keeps in a file with a lock, because both can be left damaged."""
        Path(path).mkdir(parents=True, exist_ok=True)
        self.config = {"prefix_len": 2}

    def retrieve(self, node: Any) -> bool:
        """Copy an entry to its target if it is whole. Called from several threads at once."""
        step = node.get_build_env()["STEPS"][str(node)]
        entry = Path(self.cachepath(node)[1])
        with contextlib.suppress(FileNotFoundError):  # not in the cache, or another build was faster
            foreign = why_untrusted(entry, Path(self.path))
            if foreign or (digest := _digest(entry)) != sha256_of(entry):
                if foreign or digest:
                    announce_damage(step, f"{entry}, its copy in the object cache,")
                entry.unlink()
        retrieved: bool = super().retrieve(node)
        if retrieved:
            built.note(Path(node.get_build_env()["FOLDER"]), step)
        return retrieved

    def push(self, node: Any) -> None:
        """Add a finished target. A cache that can't be written costs time later and nothing now."""
        entry = Path(self.cachepath(node)[1])
        with contextlib.suppress(OSError):
            if not entry.exists():
                entry.parent.mkdir(parents=True, exist_ok=True)
                with draft_folder(Path(self.path)) as drafts:  # SCons's own would stay if this process is killed
                    draft = drafts / entry.name
                    shutil.copy2(str(node), draft)
                    adopt(draft, entry)


def _digest(entry: Path) -> str:
    """Return the recorded sha256, empty without a record."""
    try:
        return entry.with_name(entry.name + BESIDE).read_text(errors="replace")
    except FileNotFoundError:
        return ""
