"""Entries of the cache: whole or absent, of this version, and one process at a time makes one."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ckpm.attention.cpp.index import INDEX
from ckpm.attention.jit.entries import RECORD, VERSION, Entries, EntryRecord
from ckpm.base.errors import OutputError, TrustError
from ckpm.base.files import StoppedError
from ckpm.kernels.library.manifest import MANIFEST
from ckpm.kernels.library.request import LIBRARY

CONTENT = "0123456789abcdef"
GOING_ON = threading.Event()  # never set
ROOT = Path(__file__).parents[3]
HOLDER = """
import pathlib, signal, sys, threading
from ckpm.attention.jit.entries import Entries
with Entries(pathlib.Path(sys.argv[1])).lock(sys.argv[2], threading.Event()):
    print("locked", flush=True)
    signal.pause()
"""


def record(version: int = VERSION) -> EntryRecord:
    return EntryRecord(version=version, content=CONTENT, kernel="a_kernel", arch="gfx950", seconds=1.5, compilers=2.0)


@pytest.fixture
def entries(tmp_path: Path) -> Entries:
    (tmp_path / "cache").mkdir(mode=0o755)
    return Entries(tmp_path / "cache")


def put(entries: Entries, version: int = VERSION, library: bytes = b"library") -> Path:
    drafts = entries.top / "drafts"
    built = drafts / "build"
    (built / "src").mkdir(parents=True)
    (built / LIBRARY).write_bytes(library)
    (built / MANIFEST).write_text("{}")
    (built / INDEX).write_text("index")
    (built / "src/unit.hip").write_text("text")
    return entries.put(CONTENT, built, record(version), drafts)


def test_stored_entry_is_returned(entries: Entries) -> None:
    assert entries.get(CONTENT) is None
    folder = put(entries)
    assert entries.get(CONTENT) == folder
    assert (folder / LIBRARY).read_bytes() == b"library"
    assert (folder / "src/unit.hip").read_text() == "text"
    assert EntryRecord.read(folder / RECORD) == record()
    assert entries.get(CONTENT + "0") is None


@pytest.mark.parametrize("name", [LIBRARY, MANIFEST, RECORD, f"{LIBRARY}.sha256"])
@pytest.mark.parametrize("damage", ["a byte", "empty", "gone", "a folder"])
def test_damaged_entry_is_none_and_is_replaced(entries: Entries, name: str, damage: str) -> None:
    file = put(entries) / name
    if damage == "a byte":
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
    elif damage == "empty":
        file.write_bytes(b"")
    else:
        file.unlink()
    if damage == "a folder":
        file.mkdir()
    assert entries.get(CONTENT) is None
    assert put(entries, library=b"made again") == entries.get(CONTENT)
    assert (entries.folder(CONTENT) / LIBRARY).read_bytes() == b"made again"


def test_entry_copied_under_another_key_is_none(entries: Entries) -> None:
    """The copy has its own right sha256 beside each file."""
    other = CONTENT.replace("0", "f")
    shutil.copytree(put(entries), entries.folder(other))
    assert entries.get(other) is None
    assert entries.get(CONTENT) is not None


def test_entry_that_others_can_write_to_is_refused(entries: Entries) -> None:
    (put(entries) / LIBRARY).chmod(0o777)
    with pytest.raises(TrustError, match="other users can write to it"):
        entries.get(CONTENT)


def test_file_in_place_of_folder_is_refused(entries: Entries) -> None:
    entries.top.write_text("")
    with pytest.raises(OutputError, match="CKPM_CACHE"), entries.lock(CONTENT, GOING_ON):
        pass


def test_lock_of_entry_has_one_holder(entries: Entries) -> None:
    stopping = threading.Event()
    stopping.set()

    def is_free(content: str) -> bool:
        with contextlib.suppress(StoppedError), entries.lock(content, stopping):
            return True
        return False

    with entries.lock(CONTENT, GOING_ON), ThreadPoolExecutor(1) as another:
        assert list(another.map(is_free, (CONTENT, CONTENT + "0"))) == [False, True]  # each key has its own lock
    with entries.lock(CONTENT, stopping):
        pass


def test_killed_process_holds_nothing_up(entries: Entries) -> None:
    stopping = threading.Event()
    stopping.set()
    command = [sys.executable, "-c", HOLDER, str(entries.top.parent), CONTENT]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as holder:
        assert holder.stdout
        assert holder.stdout.readline()  # nothing if it ended
        with pytest.raises(StoppedError), entries.lock(CONTENT, stopping):
            pass
        holder.kill()
    with entries.lock(CONTENT, stopping):
        pass
