"""Files of the cache are used as they were written, or made again; those that others can write are refused."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from ckpm_emulator.cache import Store, adopt, cache_folder, checked_link, draft_for, is_adopted
from ckpm_emulator.errors import TrustError, UsageError


def test_entry_is_kept_until_it_is_damaged(tmp_path: Path) -> None:
    store = Store(tmp_path / "entries")
    assert store.get("key") is None
    store.put("key", b"two\nlines")
    assert store.get("key") == b"two\nlines"
    (file,) = (tmp_path / "entries").iterdir()  # and no draft
    file.rename(file.with_stem("other"))
    assert store.get("other") is None  # the name takes part
    for damaged in (b"", file.with_stem("other").read_bytes()[:-1]):
        file.write_bytes(damaged)
        assert store.get("key") is None
    store.put("key", b"again")
    assert store.get("key") == b"again"


def test_entries_that_others_can_write_are_neither_read_nor_made(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.put("key", b"content")
    (file,) = tmp_path.iterdir()
    for path in (file, tmp_path):
        path.chmod(0o777)
        assert store.get("key") is None
    store.put("another", b"content")
    assert [*tmp_path.iterdir()] == [file]


def test_adopted_file_has_its_sha256(tmp_path: Path) -> None:
    (source := tmp_path / "source").write_bytes(b"a library")
    path = tmp_path / "cache/core/library.so"
    adopt(source, path, tmp_path / "cache")
    assert (is_adopted(path), path.read_bytes()) == (True, b"a library")
    path.write_bytes(b"damaged")
    assert not is_adopted(path)
    path.unlink()
    assert not is_adopted(path)


def test_drafts_of_killed_processes_go_after_a_day(tmp_path: Path) -> None:
    for name in (".draft-old", ".draft-new"):
        (tmp_path / name).mkdir()
    os.utime(tmp_path / ".draft-old", (time.time() - 90_000,) * 2)
    with pytest.raises(UnicodeEncodeError), draft_for(tmp_path / "file", tmp_path) as draft:
        draft.write_text("unfinished \udcff")
    assert [path.name for path in tmp_path.iterdir()] == [".draft-new"]


@pytest.fixture
def zig(tmp_path: Path) -> Path:
    """A cache as zig leaves it after a link: libraries by digest, and its notes."""
    for name in ("o/aa/libc++.a", "o/aa/string.o", "o/cc/libc.so.6", "o/cc/c.s", "h/aa"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"content of {name}")
    with checked_link(tmp_path):
        pass
    return tmp_path


def test_links_add_nothing_to_known_cache(zig: Path) -> None:
    before = sorted(zig.rglob("*"))
    assert zig / "o/cc/libc.so.6.sha256" in before
    with checked_link(zig):
        assert (zig / "h/aa").exists()
    assert sorted(zig.rglob("*")) == before


@pytest.mark.parametrize("damage", ["another", "", None])
def test_damaged_files_are_removed_before_link(zig: Path, damage: str | None) -> None:
    library = zig / "o/aa/libc++.a"
    library.unlink() if damage is None else library.write_text(damage)
    with checked_link(zig):
        assert not library.parent.exists()
        assert not (zig / "h").exists()  # else zig would take it for made
        assert is_adopted(zig / "o/cc/libc.so.6")
        library.parent.mkdir()
        library.write_text("made again")
    assert is_adopted(library)


def test_cache_is_variable_or_users_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CKPM_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path / "emulator"
    monkeypatch.delenv("CKPM_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    usual = str(tmp_path / "home/.cache")
    for chosen, folder in (("/nowhere", "/nowhere"), ("relative", usual), ("", usual)):
        monkeypatch.setenv("XDG_CACHE_HOME", chosen)
        assert cache_folder() == Path(folder, "ck-prefill-matrix/emulator")


def test_cache_of_no_user_or_of_others_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CKPM_CACHE", str(tmp_path))
    (tmp_path / "zig").mkdir()
    (tmp_path / "zig").chmod(0o777)
    with pytest.raises(TrustError, match=r"zig: other users can write to it \(mode 777\), .* chmod -R go-w"):
        cache_folder()
    monkeypatch.setenv("CKPM_CACHE", "/caches/\udcff")
    with pytest.raises(UsageError, match="not UTF-8"):
        cache_folder()
