"""Files are whole or absent."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from kernels.errors import DiskFullError
from kernels.files import write_atomically, write_if_changed


def test_writes_and_replaces(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "er" / "file"
    write_atomically(file, b"one")
    write_atomically(file, b"two")
    assert file.read_bytes() == b"two"
    assert [place.name for place in file.parent.iterdir()] == ["file"]


def test_an_unchanged_file_is_not_touched(tmp_path: Path) -> None:
    file = tmp_path / "file"
    assert write_if_changed(file, "text")
    before = file.stat()
    assert not write_if_changed(file, "text")
    assert file.stat().st_mtime_ns == before.st_mtime_ns
    assert file.stat().st_ino == before.st_ino


def test_a_full_disk_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    write_atomically(file, b"old")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(DiskFullError, match=r"file: no space left on the disk\. Free some"):
        write_atomically(file, b"new")
    assert file.read_bytes() == b"old"
    assert [place.name for place in tmp_path.iterdir()] == ["file"]


def test_other_errors_of_the_disk_are_not_swallowed(tmp_path: Path) -> None:
    (tmp_path / "file").mkdir()
    with pytest.raises(IsADirectoryError):
        write_atomically(tmp_path / "file", b"x")
    assert [place.name for place in tmp_path.iterdir()] == ["file"]
