"""libc++ is compiled once beside a build. Only the link waits for it, and it ends with the build."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from ckpm.base import warming
from ckpm.base.paths import PROJECT


class Linker:
    """A script in the linker's place, which reports its start and never ends. Its child processes hold ``pipe``."""

    def __init__(self, folder: Path) -> None:
        self.pipe, self.write_end = os.pipe()
        os.set_inheritable(self.write_end, True)
        self.cache = folder / "zig"
        script = f"echo $0 > {folder}/called; printf x > /proc/{os.getpid()}/fd/{self.write_end}; exec sleep 1000"
        self.command = ["/bin/sh", "-c", script]
        self.environment = {**os.environ, "ZIG_GLOBAL_CACHE_DIR": str(self.cache), "PYTHONPATH": str(PROJECT)}
        self.folder = folder

    def has_started(self) -> bool:
        return os.read(self.pipe, 1) == b"x"

    def is_held(self) -> bool:
        with (self.cache / "libc++.lock").open() as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False


@pytest.fixture
def linker(tmp_path: Path) -> Iterator[Linker]:
    linker = Linker(tmp_path)
    yield linker
    for end in (linker.pipe, linker.write_end):
        with contextlib.suppress(OSError):
            os.close(end)


def test_link_waits_and_end_does_not(linker: Linker) -> None:
    with warming.libcxx(linker.command, linker.folder, linker.environment):
        assert linker.has_started()
        assert linker.is_held()
        with warming.libcxx(["/bin/sh", "-c", "echo twice > $0.twice"], linker.folder, linker.environment):
            pass  # another build does not start it again
    assert not linker.is_held()
    warming.wait(linker.environment)
    assert not list(linker.folder.glob("*.twice"))


def test_warming_with_cached_library_does_nothing(linker: Linker) -> None:
    (linker.cache / "o/1").mkdir(parents=True)
    (linker.cache / "o/1/libc++.a").write_text("")
    with warming.libcxx(linker.command, linker.folder, linker.environment):
        assert not (linker.cache / "libc++.lock").exists()
    assert not (linker.folder / "called").exists()


def test_warming_without_zig_does_nothing(tmp_path: Path) -> None:
    assert not warming.lacks_libcxx({})
    with warming.libcxx(["false"], tmp_path, {}):
        warming.wait({})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("patience", "count"), [(0.01, 1), (60.0, 0)])
def test_long_wait_for_core_of_emulator_is_announced(
    patience: float, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "ckpm")
    monkeypatch.setattr(warming, "_CORE", ["sleep", "0.5"])
    monkeypatch.setattr(warming, "_SILENT_SECONDS", patience)
    with warming.emulator_core(tmp_path, {**os.environ, "PYTHONPATH": str(PROJECT)}):
        assert not caplog.messages
    assert len(caplog.messages) == count
    assert all("emulator's core is still being compiled" in message for message in caplog.messages)


def test_warming_ends_with_killed_build(linker: Linker) -> None:
    child = os.fork()
    if child == 0:
        with warming.libcxx(linker.command, linker.folder, linker.environment):
            os.kill(os.getpid(), signal.SIGSTOP)
    os.waitpid(child, os.WUNTRACED)
    assert linker.has_started()
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(linker.write_end)
    linker.write_end = -1
    assert select.select([linker.pipe], [], [], 60)[0]
    assert os.read(linker.pipe, 1) == b""
    assert not linker.is_held()
