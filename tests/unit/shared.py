"""Shared folders of all workers of pytest-xdist, copies of the rooms, and output as text."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import TypeVar

import pytest
from filelock import FileLock

from ckpm.base.errors import TableError
from ckpm.base.logs import print_logs

ROOT = Path(__file__).parents[2]
T = TypeVar("T")
Run = Callable[..., tuple[int, str, str]]  # what a fixture `run` gives: exit code, standard output, standard error


def copy_rooms(folder: Path) -> None:
    """Copy the rooms and their data. A change of a copied room is then a change of its import."""
    for name in ("ckpm", "emulator", "matrix", "kernels", "docker", "reports"):
        shutil.copytree(ROOT / name, folder / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("SConstruct", "noxfile.py"):  # the noxfile marks a clone
        shutil.copy(ROOT / name, folder)


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """The folder ``name`` of this run, filled by ``make``. Tests must not change it."""
    base = factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / f"shared-{name}"
    with FileLock(f"{folder}.lock"):
        done = folder.with_suffix(".done")
        if not done.exists():
            folder.mkdir(exist_ok=True)  # another worker may have failed in it
            make(folder)
            done.touch()
    return folder


def capture_logs(call: Callable[[], T]) -> tuple[T, str]:
    """The result of a call, and what it logs as a command prints it."""
    with contextlib.redirect_stdout(StringIO()) as output, print_logs():
        result = call()
    return result, output.getvalue()


def replace_text(text: str, old: str, new: str) -> str:
    """The text with its first ``old`` replaced."""
    assert old in text, old
    return text.replace(old, new, 1)


def table_complaint(file: Path, text: str, read: Callable[[Path], object]) -> str:
    """The message of the TableError that ``read`` raises for a table of this text, after the file's name."""
    file.write_text(text)
    with pytest.raises(TableError) as caught:
        read(file)
    assert str(caught.value).startswith(f"{file}:")
    return str(caught.value).removeprefix(f"{file}:")


def git(folder: Path, *arguments: str) -> str:
    """Run git as a person without settings, and return its output."""
    who = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
    done = subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()
