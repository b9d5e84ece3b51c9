"""The store: whatever happens to an entry, what is read is what was written, or nothing."""

from __future__ import annotations

import fcntl
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpm.base.store import DRAFTS, Store, adopt, draft_folder, is_adopted, is_whole_entry

SEEDS = range(200)


def damage(content: bytes, seed: int) -> bytes:
    """Other bytes, as a full disk, a cut copy or a bad block leaves them."""
    draw = random.Random(seed)
    at = draw.randrange(len(content))
    kinds: tuple[Callable[[], bytes], ...] = (
        lambda: content[:at],
        lambda: content[:at] + bytes([content[at] ^ (1 << draw.randrange(8))]) + content[at + 1 :],
        lambda: content[:at] + bytes(len(content) - at),
        lambda: content + b"\0",
        lambda: draw.randbytes(len(content)),
        lambda: content[at:] + content[:at],
    )
    other = kinds[seed % len(kinds)]()
    return other if other != content else b""


@given(key=st.text("0123456789abcdef", min_size=1, max_size=64), content=st.binary(max_size=300))
def test_stored_content_is_returned(tmp_path_factory: pytest.TempPathFactory, key: str, content: bytes) -> None:
    store = Store(tmp_path_factory.mktemp("store") / "new")
    assert store.get(key) is None
    store.put(key, content)
    assert store.get(key) == content


@pytest.mark.parametrize("seed", SEEDS)
def test_damaged_entry_counts_as_absent_and_is_replaced(tmp_path: Path, seed: int) -> None:
    store = Store(tmp_path)
    content = random.Random(seed).randbytes(1 + seed)
    store.put("key", content)
    (file,) = store.entries()
    assert is_whole_entry(file)
    file.write_bytes(damage(file.read_bytes(), seed))
    assert not is_whole_entry(file)
    assert store.get("key") is None
    store.put("key", content)
    assert store.get("key") == content


def test_entry_under_name_of_another_is_none(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.put("one", b"1")
    (file,) = store.entries()
    file.rename(file.with_name(file.name.replace("one", "other")))
    assert store.get("other") is None


def test_entry_that_others_can_write_is_not_read(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.put("key", b"1")
    store.entries()[0].chmod(0o666)
    assert store.get("key") is None


def test_store_that_cannot_be_written_is_not_failure(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = Store(tmp_path / "file" / "store")
    store.put("key", b"1")
    assert store.get("key") is None


def test_adopted_file_is_known_by_its_bytes(tmp_path: Path) -> None:
    library = tmp_path / "lib.so"
    assert not is_adopted(library)
    with draft_folder(tmp_path) as drafts:
        (drafts / "lib.so").write_bytes(b"\x7fELF")
        adopt(drafts / "lib.so", library)
    assert is_adopted(library)
    library.write_bytes(b"\x7fELf")
    assert not is_adopted(library)


# ---- drafts


def left(top: Path) -> list[str]:
    return [file.name for file in (top / DRAFTS).iterdir()]


def test_no_draft_is_left_by_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="mine"), draft_folder(tmp_path):
        raise FileNotFoundError("mine")
    assert left(tmp_path) == []


KILLED = """
import os, signal, sys
from pathlib import Path
from ckpm.base.store import draft_folder
with draft_folder(Path(sys.argv[1])) as folder:
    (folder / "half").write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_next_draft_removes_only_those_of_killed_processes(tmp_path: Path) -> None:
    with draft_folder(tmp_path) as living:
        run = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False)
        assert run.returncode == -signal.SIGKILL
        assert len(left(tmp_path)) == 2
        Store(tmp_path).put("key", b"1")
        assert left(tmp_path) == [living.name]
    assert left(tmp_path) == []


def test_draft_removed_before_its_lock_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process may come between the making of a folder and its lock."""
    flock = fcntl.flock
    folders: list[Path] = []

    def beaten_once(lock: int, how: int) -> None:
        if not folders:
            folders.extend((tmp_path / DRAFTS).iterdir())
            (folders[0] / ".lock").unlink()
            os.rmdir(folders[0])  # noqa: PTH106
        flock(lock, how)

    monkeypatch.setattr(fcntl, "flock", beaten_once)
    with draft_folder(tmp_path) as folder:
        assert folder.is_dir()
        assert folder != folders[0]
