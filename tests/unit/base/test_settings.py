"""The cache folder, the checkout, and options in environment variables."""

from __future__ import annotations

from pathlib import Path

import pytest

from ckpm.base.errors import UsageError
from ckpm.base.settings import cache_folder, ck_root
from ckpm.matrix.options import split_words
from ckpm_emulator.cache import cache_folder as emulator_cache


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CKPM_CACHE", "XDG_CACHE_HOME", "CK_ROOT"):
        monkeypatch.delenv(name, raising=False)


def test_cache_folder_is_variable_or_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert cache_folder() == Path("/home/me/.cache/ck-prefill-matrix")
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert cache_folder() == Path("/caches/ck-prefill-matrix")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_folder() == Path("/home/me/.cache/ck-prefill-matrix")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CKPM_CACHE", "mine")
    assert cache_folder() == tmp_path / "mine"


def test_quoted_home_in_variable_is_the_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    for name in ("CKPM_CACHE", "CK_ROOT"):
        monkeypatch.setenv(name, "~/x")
    assert cache_folder() == ck_root() == Path("/home/me/x")
    assert emulator_cache() == Path("/home/me/x/emulator")
    monkeypatch.setenv("CKPM_CACHE", "~absent-user/x")
    with pytest.raises(UsageError, match="~absent-user/x: this user has no such home folder"):
        cache_folder()


def test_cache_folder_without_home_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", nowhere)
    with pytest.raises(UsageError, match="no home folder for the cache: set CKPM_CACHE to a folder"):
        cache_folder()


def test_option_has_precedence_over_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ck_root() is None
    monkeypatch.setenv("CK_ROOT", "/variable")
    assert ck_root() == ck_root(None, ["aiter"]) == Path("/variable")
    assert ck_root(Path("/option")) == ck_root(Path("/option"), ["aiter", "checkout"]) == Path("/option")


def test_unused_checkout_is_refused() -> None:
    with pytest.raises(
        UsageError, match=r"^--ck-root /x is the place of --upstream checkout, not of aiter: leave one "
    ):
        ck_root(Path("/x"), ["aiter"])


def test_words_are_split_once() -> None:
    assert split_words("--arch", None, ["a", "b"]) == ("a", "b")
    assert split_words("--arch", ["c, d", "c,"], ["a"]) == ("c", "d")
    with pytest.raises(UsageError, match=r"^--arch is empty; leave it out for a, b$"):
        split_words("--arch", [" ,"], ["a", "b"])


def test_cache_folder_is_utf8(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/\udcff")
    with pytest.raises(UsageError, match=r"\.cache/ck-prefill-matrix: this name is not UTF-8, .* Set CKPM_CACHE"):
        cache_folder()
