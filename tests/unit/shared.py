"""Folders that all workers of pytest-xdist share, made by the first worker that needs them; and output as text."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import TypeVar

import pytest
from filelock import FileLock

from ckpm.base.logs import print_logs

T = TypeVar("T")


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
