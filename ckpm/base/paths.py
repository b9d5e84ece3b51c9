"""Folders of this project: its data and its Python, in a clone or in an installed wheel."""

from __future__ import annotations

import functools
import hashlib
import os
import sys
from pathlib import Path

IMPORTS = Path(__file__).absolute().parents[2]  # a clone, or site-packages
INSTALLED = not (IMPORTS / "noxfile.py").exists()  # True in a wheel, without a clone
# The folder of matrix/, kernels/, docker/, reports/ and SConstruct.
PROJECT = IMPORTS / "ckpm" / "data" if INSTALLED else IMPORTS
# Folders of packages. In a clone the emulator, a distribution of its own, is used without an install.
_SEARCHED = [str(IMPORTS), *(() if INSTALLED else (str(PROJECT / "emulator"),))]
PYTHONPATH = os.pathsep.join(_SEARCHED)  # of child processes, which may run in any folder
PARTS = ("ckpm", "ckpm_emulator", "matrix", "kernels", "emulator")  # of a clone; in a wheel ckpm/ has the data, too
_TEXTS = frozenset((".py", ".yaml", ".j2", ".h", ".hpp", ".cpp", ".map"))

_CLONE = ("noxfile.py", "SConstruct", "ckpm/__main__.py")


def data(*names: str) -> Path:
    """The path of a data file or data folder: the clone's, else the wheel's."""
    return PROJECT.joinpath(*names)


def clone_around(folder: Path) -> Path | None:
    """The clone of this project that contains ``folder``, or None."""
    parents = (folder, *folder.parents)
    return next((parent for parent in parents if all((parent / name).is_file() for name in _CLONE)), None)


def clone_not_read() -> str:
    """A sentence if the current folder is in a clone and the imported ckpm is another; else ''."""
    clone = clone_around(Path.cwd())
    if clone is None or clone.samefile(IMPORTS):
        return ""
    return (
        f"this is the ckpm of {IMPORTS}, and the current folder is in the clone {clone}, whose tables and code it "
        f"would not read. Set PYTHONPATH={clone}, or in {clone}: python -m ckpm ..., or pip install -e . -e ./emulator"
    )


@functools.cache
def program_digest(root: Path = IMPORTS) -> str:
    """A digest of this program's text at the first call in this process, with uncommitted changes."""
    total = hashlib.sha256()
    for file in sorted(file for part in PARTS for file in (root / part).rglob("*") if file.suffix in _TEXTS):
        total.update(file.relative_to(root).as_posix().encode() + b"\0")
        total.update(hashlib.sha256(file.read_bytes()).digest())
    return total.hexdigest()[:16]


def find_emulator() -> None:
    """Let this process import a clone's ``ckpm_emulator`` from the clone, before an installed one."""
    if not INSTALLED and _SEARCHED[-1] not in sys.path:
        sys.path.insert(0, _SEARCHED[-1])
