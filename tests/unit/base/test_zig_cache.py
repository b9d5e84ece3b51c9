"""Files that zig keeps for links are used as they were made, or made again."""

from __future__ import annotations

from pathlib import Path

import pytest

from ckpm.base.store import is_adopted
from ckpm.base.zig_cache import checked_link, linked_with


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A cache as zig leaves it after a link: libraries by digest, and its notes."""
    names = ("o/aa/libc++.a", "o/aa/string.o", "o/bb/libcompiler_rt.a", "o/cc/libc.so.6", "o/cc/c.s", "h/aa", "h/bb")
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"content of {name}")
    with checked_link(tmp_path):
        pass
    return tmp_path


def test_linked_files_are_adopted(cache: Path) -> None:
    names = [str(file.relative_to(cache / "o")) for file in linked_with(cache)]
    assert names == ["aa/libc++.a", "aa/string.o", "bb/libcompiler_rt.a", "cc/libc.so.6"]
    assert all(is_adopted(file) for file in linked_with(cache))
    (cache / "o/cc/libc.so.6.sha256.sha256").write_text("as earlier links left it")
    with checked_link(cache):
        assert (cache / "h" / "aa").exists()
    kept = sorted(file.name for file in (cache / "o/cc").iterdir())
    assert kept == ["c.s", "libc.so.6", "libc.so.6.sha256", "libc.so.6.sha256.sha256"]  # no more with each link


def test_later_links_add_nothing_to_cache(cache: Path) -> None:
    """A digest of a digest of a digest ended as a file name that no system takes."""
    before = sorted(cache.rglob("*"))
    for _ in range(3):
        with checked_link(cache):
            pass
    assert sorted(cache.rglob("*")) == before


@pytest.mark.parametrize("damage", ["changed", "cut", "missing"])
def test_damaged_files_are_removed_before_link(cache: Path, damage: str) -> None:
    library = cache / "o/aa/libc++.a"
    if damage == "missing":
        library.unlink()
    else:
        library.write_text("another" if damage == "changed" else "")
    with checked_link(cache):
        assert not library.parent.exists()
        assert not (cache / "h").exists()  # else zig would take it for made
        assert is_adopted(cache / "o/bb/libcompiler_rt.a")
        library.parent.mkdir()
        library.write_text("made again")
    assert is_adopted(library)


def test_first_link_adopts_its_cache(tmp_path: Path) -> None:
    with checked_link(tmp_path / "zig"):
        (tmp_path / "zig/o/aa").mkdir(parents=True)
        (tmp_path / "zig/o/aa/libc++.a").write_text("made")
    assert is_adopted(tmp_path / "zig/o/aa/libc++.a")
