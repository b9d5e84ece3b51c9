"""Folders that all workers of pytest-xdist share. The first worker that needs a folder makes it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """The folder ``name`` of this run, filled by ``make``. Tests must not change it."""
    base = factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / f"shared-{name}"
    with FileLock(f"{folder}.lock"):
        done = folder.with_suffix(".done")
        if not done.exists():
            folder.mkdir()
            make(folder)
            done.touch()
    return folder
