"""Files that killed processes left in an output folder. Called under its lock, so that no other build runs there."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

from ckpm.base.files import abandoned_drafts

TEMPORARY = "tmp"  # in an output folder: the TMPDIR of compilers, whose files of a crash or an interrupt lie there


def clear(folder: Path) -> Path:
    """Remove compilers' temporary files, half-written objects and drafts; return the folder for new temporary files.

    Raises OSError: the folder can't be made.
    """
    temporary = folder / TEMPORARY
    shutil.rmtree(temporary, ignore_errors=True)
    drafts = (draft for below in (folder, folder / "src", folder / "obj") for draft in abandoned_drafts(below))
    for left in (*(folder / "obj").glob("*.tmp"), *drafts):
        with contextlib.suppress(OSError):
            left.unlink()
    temporary.mkdir(parents=True)
    return temporary
