"""Files that other users can write are not run: pickles, launchers, libraries."""

from __future__ import annotations

import os
import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from ckpm.base import settings, trust
from ckpm.base.errors import OutputError, SetupError, TrustError
from ckpm.base.processes import build_lock
from ckpm.base.store import Store, draft_folder
from ckpm.base.trust import demand_private, demand_trusted_library, signing_key
from ckpm.kernels.code import code_object
from ckpm.kernels.code.toolchains import Toolchain, embedded
from ckpm.kernels.library import building
from ckpm.kernels.library.doctor import examine
from ckpm.kernels.library.request import BuildRequest
from ckpm.kernels.library.signature_file import NAME, Signatures, discard_foreign
from ckpm_emulator import toolchain as core
from ckpm_emulator import trust as core_trust
from ckpm_emulator.errors import TrustError as UntrustedCoreError
from test_core_build import use_small_core
from tests.unit.shared import capture_logs

SECONDS = 30  # until a thread is taken for one that never comes
Make = Callable[..., BuildRequest]
Stub = Callable[..., Toolchain]


class Planted:
    """Makes a file when it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.file),)


def build(request: BuildRequest) -> tuple[str, int]:
    tally, text = capture_logs(lambda: building.run(request, jobs=2))
    return text, tally.compiled


@pytest.mark.parametrize("name", [NAME, ".sconsign.dblite"], ids=["ours", "of SCons"])
def test_planted_pickle_is_not_loaded(finished_build: Make, tmp_path: Path, name: str) -> None:
    """Neither in our format without the key, nor in SCons's own file."""
    request = finished_build(cached=False)
    build_folder, witness = request.work / request.folder, tmp_path / "witness"
    compiled = len(list((build_folder / "src").glob("*.hip")))
    evil = pickle.dumps({".": Planted(witness)})
    pickle.loads(evil)
    witness.rmdir()  # the pickle works if it is loaded
    (build_folder / name).write_bytes(evil)
    if name == NAME:
        foreign = Signatures(b"another key").open(str(build_folder / name), "c")
        for folder in (".", *(str(part) for part in Path(request.folder, "obj").parents), f"{request.folder}/obj"):
            foreign[folder] = evil
        foreign.sync()
    output, again = build(request)
    assert not witness.exists()
    assert ("not signed by a build of yours" in output) == (name == NAME)
    assert again == (compiled if name == NAME else 0)


def test_signatures_with_key_alone_are_read(tmp_path: Path) -> None:
    """SCons loads the pickle if it is sealed with our key: the seal is the protection."""
    signatures = Signatures(b"key")
    signatures.open(str(tmp_path / NAME), "c")
    signatures["."] = pickle.dumps(Planted(tmp_path / "witness"))
    signatures.sync()
    pickle.loads(Signatures(b"key").open(str(tmp_path / NAME), "c")["."])
    assert (tmp_path / "witness").exists()
    with pytest.raises(KeyError):
        Signatures(b"another").open(str(tmp_path / NAME), "c")["."]
    assert [discard_foreign(tmp_path, key) for key in (b"key", b"other", b"other")] == [False, True, False]


@pytest.mark.usefixtures("copied_manifest")
def test_files_of_work_folder_are_not_run(stub_toolchain: Stub, request_for: Make, tmp_path: Path) -> None:
    request = request_for(stub_toolchain(), cached=False, where=("key.logits", "key.lse"))
    plant = f"open({str(tmp_path / 'witness')!r}, 'w')"
    for name in ("site_scons/site_init.py", "SCons/__init__.py", "json.py", "ckpm/kernels/__init__.py"):
        file = request.work / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(plant)
    build(request)
    assert not (tmp_path / "witness").exists()


def test_key_is_made_once_for_user(tmp_path: Path) -> None:
    key = signing_key(tmp_path / "cache")
    assert len(key) == 32
    assert signing_key(tmp_path / "cache") == key != signing_key(tmp_path / "another")
    assert (tmp_path / "cache/key").stat().st_mode & 0o777 == 0o600
    assert [file.name for file in (tmp_path / "cache").iterdir()] == ["key"]
    (tmp_path / "cache/key").chmod(0o640)
    with pytest.raises(TrustError, match=r"key: others can read it, or it is damaged\. Delete it"):
        signing_key(tmp_path / "cache")


@pytest.mark.parametrize(("below", "mode"), [("", 0o775), ("objects", 0o757)])
def test_cache_writable_by_others_is_refused(tmp_path: Path, below: str, mode: int) -> None:
    cache = tmp_path / "cache"
    (cache / "objects").mkdir(parents=True)
    for folder in (cache, cache / "objects"):
        folder.chmod(0o755)
    demand_private(cache)
    (cache / below).chmod(mode)
    with pytest.raises(TrustError) as refused:
        demand_private(cache)
    assert str(refused.value) == (
        f"{cache / below}: other users can write to it (mode {mode:o}), and what it holds would be run. "
        f"Delete {cache}: it is made again; or, if you trust all that is in it: chmod -R go-w {cache}"
    )
    assert refused.value.exit_code == 11


def test_cache_of_other_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trust, "trusted_owners", lambda: frozenset({os.geteuid() + 4711}))
    with pytest.raises(TrustError) as refused:
        demand_private(tmp_path / "cache")
    name = trust._name(os.geteuid())
    assert f"it belongs to user {name}, and what it holds would be run as {name}. Delete" in str(refused.value)
    assert f"chown -R {os.geteuid()} {tmp_path / 'cache'}" in str(refused.value)


def test_cache_with_loose_umask_is_private(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        demand_private(tmp_path / "cache")
        (tmp_path / "cache/objects").mkdir()
        demand_private(tmp_path / "cache")
    finally:
        os.umask(before)


def test_changed_launcher_is_written_again(tmp_path: Path) -> None:
    folder = embedded._write_helpers("/zig", tmp_path)
    text = (folder / "lld").read_text()
    (folder / "lld").write_text("#!/bin/sh\ntouch planted\n")
    assert embedded._write_helpers("/zig", tmp_path) == folder
    assert (folder / "lld").read_text() == text
    (folder / "lld").chmod(0o777)
    with pytest.raises(TrustError, match="lld: other users can write to it"):
        embedded._write_helpers("/zig", tmp_path)


def test_library_writable_by_others_is_refused(tmp_path: Path) -> None:
    library = tmp_path / "libckpm.so"
    library.write_bytes(b"")
    library.chmod(0o755)
    demand_trusted_library(library)
    library.chmod(0o777)
    with pytest.raises(TrustError, match=r"libckpm\.so: other users can write to it .*Build it again"):
        demand_trusted_library(library)


def test_core_of_emulator_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_small_core(tmp_path / "project", monkeypatch)
    cache = tmp_path / "cache"
    library = core.library(cache=cache)
    good = library.read_bytes()
    library.write_bytes(b"planted")
    assert core.library(cache=cache).read_bytes() == good
    library.chmod(0o777)
    with pytest.raises(UntrustedCoreError, match=f"{library}: other users can write to it"):
        core.library(cache=cache)
    library.unlink()  # so that the build folder's objects are linked
    (built,) = (cache / "build").glob("*/")
    built.chmod(0o777)
    with pytest.raises(UntrustedCoreError, match=f"{built}: other users can write to it"):
        core.library(cache=cache)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_inspection_refuses_cache_of_stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CKPM_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()
    os.chown(tmp_path / "cache", 54321, 54321)
    (tmp_path / "empty.co").write_bytes(b"\x7fELF")
    with pytest.raises(TrustError, match=r"it belongs to user 54321, and .* run as root"):
        code_object.inspect(tmp_path / "empty.co", "gfx942")


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_lock_through_link_changes_nothing(tmp_path: Path, link: Callable[[Path, Path], None]) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "drafts/evil").mkdir(parents=True)
    (tmp_path / "build").mkdir()
    for lock in (tmp_path / "drafts/evil/.lock", tmp_path / "build/.lock"):
        link(victim, lock)
    Store(tmp_path).put("key", b"content")
    with pytest.raises(OutputError, match=r"\.lock: can't be written: .* It is a link"), build_lock(lock):
        pass
    assert victim.read_text() == "precious"
    assert Store(tmp_path).get("key") == b"content"


def test_drafts_that_others_can_write_are_not_used(tmp_path: Path) -> None:
    (tmp_path / "drafts").mkdir()
    (tmp_path / "drafts").chmod(0o777)
    with pytest.raises(PermissionError, match="drafts: other users can write to it"), draft_folder(tmp_path):
        pass


def test_cache_folder_is_asked_for_trust(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CKPM_CACHE", str(tmp_path / "cache"))
    assert settings.cache_folder() == tmp_path / "cache"
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(0o777)
    with pytest.raises(TrustError, match="cache: other users can write to it"):
        settings.cache_folder()
    (broken,) = [finding for finding in examine(settings.cache_path(), None) if finding.subject == "cache"]
    assert broken.state == "broken"
    assert "other users can write to it" in broken.advice


def test_cache_in_which_nothing_can_be_run_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    status = os.statvfs(tmp_path)
    flags = [*status[:8], status.f_flag | os.ST_NOEXEC, *status[9:], status.f_fsid]
    monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result(flags))
    with pytest.raises(SetupError, match="its file system is mounted with noexec: set CKPM_CACHE to another folder"):
        demand_private(tmp_path)


class WatchedLock:
    """A lock that reports a thread that has to wait for it."""

    def __init__(self, waiting: threading.Event) -> None:
        self._lock, self._waiting = threading.Lock(), waiting

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self._waiting.set()
            self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


@pytest.mark.parametrize("module", [trust, core_trust])
def test_mask_is_right_after_two_threads_at_once(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second thread begins while the first has set the mask that only reads the one before."""
    second = threading.Thread(target=module.keep_others_out)
    second_came, first_ended = threading.Event(), threading.Event()
    mask = 0o002

    def umask(new: int) -> int:
        nonlocal mask
        before, mask = mask, new
        if threading.current_thread() is second:
            second_came.set()
            assert first_ended.wait(SECONDS)
        elif not second.ident:
            second.start()
            assert second_came.wait(SECONDS)
        return before

    monkeypatch.setattr(module, "_UMASK", WatchedLock(second_came))
    monkeypatch.setattr(os, "umask", umask)
    module.keep_others_out()
    first_ended.set()
    second.join()
    assert mask == 0o022
