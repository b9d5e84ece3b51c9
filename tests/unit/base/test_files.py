"""Files are whole or absent, and an error of a write is a message with an exit code."""

from __future__ import annotations

import errno
import fcntl
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from ckpm.base.errors import DiskFullError, OutputError
from ckpm.base.files import append, hold_lock, make_folder, name_write_errors, write_atomically, write_if_changed


def test_write_replaces_file(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "er" / "file"
    write_atomically(file, b"one")
    write_atomically(file, b"two")
    assert file.read_bytes() == b"two"
    assert [entry.name for entry in file.parent.iterdir()] == ["file"]


def test_write_keeps_link(tmp_path: Path) -> None:
    file, link = tmp_path / "file", tmp_path / "link"
    file.write_text("old")
    link.symlink_to(file)
    write_atomically(link, b"new")
    assert (file.read_text(), link.is_symlink()) == ("new", True)
    file.unlink()
    write_atomically(link, b"newer")
    assert (file.read_text(), link.is_symlink()) == ("newer", True)
    assert sorted(tmp_path.iterdir()) == [file, link]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a link to another user")
def test_write_replaces_link_of_stranger(tmp_path: Path) -> None:
    victim, link = tmp_path / "victim", tmp_path / "link"
    victim.write_text("precious")
    link.symlink_to(victim)
    os.chown(link, 54321, 54321, follow_symlinks=False)
    write_atomically(link, b"new")
    assert (victim.read_text(), link.read_text(), link.is_symlink()) == ("precious", "new", False)


def test_write_by_planted_draft_changes_nothing(tmp_path: Path) -> None:
    victim, file = tmp_path / "victim", tmp_path / "file"
    victim.write_text("precious")
    (tmp_path / f".file.{os.getpid()}.{threading.get_ident()}").symlink_to(victim)
    with pytest.raises(OutputError, match="It is a link"):
        write_atomically(file, b"new")
    assert victim.read_text() == "precious"


def test_unchanged_file_is_not_written(tmp_path: Path) -> None:
    file = tmp_path / "file"
    assert write_if_changed(file, "text")
    before = file.stat()
    assert not write_if_changed(file, "text")
    assert file.stat().st_mtime_ns == before.st_mtime_ns
    assert file.stat().st_ino == before.st_ino


@pytest.mark.parametrize(
    ("number", "error", "message"),
    [
        (errno.ENOSPC, DiskFullError, "no space left on the disk. Free some, or"),
        (errno.EDQUOT, DiskFullError, "no space left on the disk. Free some, or"),
        (errno.EACCES, OutputError, "can't be written: Permission denied. This user may not write there:"),
        (errno.EIO, OutputError, "can't be written: Input/output error. Fix that, or"),
    ],
)
def test_failed_write_keeps_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, error: type[OutputError], message: str
) -> None:
    file = tmp_path / "file"
    write_atomically(file, b"old")

    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OutputError) as caught:
        write_atomically(file, b"new")
    assert (type(caught.value), caught.value.exit_code) == (error, 10)
    assert str(caught.value) == f"{file}: {message} name another place."
    assert file.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("folder", "it is a folder. Name a file"),
        ("file/below", "Not a directory. A folder of this path is a file"),
        ("n" * 300, "File name too long. The name is too long for the file system"),
    ],
)
def test_write_to_wrong_path_is_refused(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "file").write_text("kept")
    (tmp_path / "folder").mkdir()
    with pytest.raises(OutputError) as caught:
        write_if_changed(tmp_path / name, "x")
    assert str(caught.value).startswith(f"{tmp_path / name}: can't be written: ")
    assert message in str(caught.value)
    assert sorted(file.name for file in tmp_path.rglob("*")) == ["file", "folder"]


@pytest.mark.parametrize("make", [make_folder, lambda path, word: hold_lock(path / "lock", word).__enter__()])
@pytest.mark.parametrize("name", ["file", "file/below"])
def test_folder_that_cannot_be_made_is_refused(tmp_path: Path, make: Callable[[Path, str], object], name: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(
        OutputError,
        match=r"A folder of this path is a file(, or a link that leads nowhere)?: set CKPM_CACHE to another folder\.$",
    ):
        make(tmp_path / name, "set CKPM_CACHE to another folder")


def test_lock_on_file_system_without_locks_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(*_: object) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(OutputError, match="Function not implemented"), hold_lock(tmp_path / "lock"):
        pass


def test_appending_to_pipe_without_reader_fails_at_once(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    refusal = pytest.raises(OutputError, match=r"fifo: can't be written: .*It is a pipe that no program reads")
    with refusal, name_write_errors(fifo):
        append(fifo, "text")
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    append(fifo, "text\n")
    assert os.read(reader, 100) == b"text\n"
    os.close(reader)
