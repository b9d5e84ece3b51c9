"""Compile on demand with the real compiler: two processes, kills, broken headers, damaged entries.

Each test has a cache of its own, but for the user's CK tree, zig's libc++ and emulator core. Tests that don't interrupt
a compile share their objects.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from ckpm.attention.jit.compiling import CompiledKernels, compile_each, where
from ckpm.attention.jit.loading import load
from ckpm.attention.launch.device import Device, choose
from ckpm.base.errors import CompileError, LibraryError
from ckpm.base.paths import PROJECT
from ckpm.base.settings import cache_folder
from ckpm.kernels.library.manifest import MANIFEST, Manifest
from ckpm.kernels.library.request import LIBRARY
from ckpm.kernels.upstream.tree import Tree
from ckpm.kernels.upstream.trees import locate
from ckpm.matrix.dialects import dialect
from ckpm.matrix.selection import Selection, select
from tests.build.real_kernel import NAME
from tests.faults import killing

# of append-KV: the family whose kernels are compiled fastest
SMALL = "key.hdim_q == 64 and key.dtype == 'fp16' and key.rope == 'no' and not key.paged_kv"
SHARED = ("upstream", "zig", "launchers", "emulator")


@pytest.fixture(scope="module")
def small() -> str:
    """A kernel that is compiled in seconds."""
    selection = Selection(archs=("gfx950",), families=("fwd_appendkv",), where=(SMALL,))
    return select(dialect("ck-2025-11"), selection)[0].name


@pytest.fixture
def cache(tmp_path: Path, trees: Mapping[str, Tree], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder without compiled kernels."""
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o755)
    for name in SHARED:
        if (cache_folder() / name).is_dir():
            (folder / name).symlink_to(cache_folder() / name)
    monkeypatch.setenv("CKPM_CACHE", str(folder))
    return folder


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of objects that tests share."""
    folder = tmp_path_factory.mktemp("objects")
    folder.chmod(0o755)
    return folder


@pytest.fixture(scope="module")
def emulator() -> Device:
    return choose("emulator", "gfx950")


def start_jit(name: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "ckpm", "jit", name, "--toolchain", "embedded", "--device", "emulator"]
    return subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def compile_kernel(name: str) -> CompiledKernels:
    (compiled,) = compile_each([name], "gfx950", where(toolchain="embedded"))
    return compiled


def test_compile_in_two_processes_happens_once(cache: Path, objects: Path, small: str) -> None:
    (cache / "objects").symlink_to(objects)
    both = [start_jit(small), start_jit(small)]
    outputs = [process.communicate()[0] for process in both]
    assert [process.returncode for process in both] == [0, 0], outputs
    assert sorted(" compiled\n" in text for text in outputs) == [False, True]
    assert sum("was there" in text for text in outputs) == 1
    (entry,) = (cache / "jit/entries").iterdir()
    assert all(str(entry) in text for text in outputs)


def test_entry_damaged_or_of_another_version_is_made_again(
    cache: Path, objects: Path, small: str, emulator: Device
) -> None:
    (cache / "objects").symlink_to(objects)
    first = compile_kernel(small)
    assert first.compiled
    assert load(first.folder, emulator).kernels == (small,)
    assert not compile_kernel(small).compiled
    library = first.folder / LIBRARY
    sound = library.read_bytes()
    library.unlink()  # and not written over: this process has it open
    library.write_bytes(sound[:-1])
    with pytest.raises(LibraryError):
        load(first.folder, emulator)
    assert compile_kernel(small).compiled
    assert library.read_bytes() == sound
    record = first.folder / "entry.json"
    record.write_text(json.dumps({**json.loads(record.read_text()), "version": 0}))
    (first.folder / "entry.json.sha256").unlink()
    assert compile_kernel(small).compiled
    shutil.rmtree(first.folder / "src")
    assert Manifest.read(first.folder / MANIFEST).kernels.keys() == {small}


def test_compile_killed_then_repeated_leaves_no_draft(cache: Path, small: str, tmp_path: Path) -> None:
    """Kill at several moments: no process and no partial entry is left, and the next compile succeeds."""
    for seconds in (1.5, 3, 4.5):
        assert killing.run(lambda: compile_kernel(small), seconds).killed
        assert not (cache / "jit/entries").exists()
    again = compile_kernel(small)
    assert again.compiled
    assert list((cache / "jit/drafts").iterdir()) == []


def test_header_with_error_is_named(cache: Path, tmp_path: Path, trees: Mapping[str, Tree]) -> None:
    """One error names the kernel and the message; each edit of a header is another key with a log of its own."""
    own = tmp_path / "own"
    shutil.copytree(PROJECT / "kernels/include_prefill", own)
    tree = trees["ckpm"]
    name = select(dialect(tree.dialect), Selection(archs=("gfx950",), receipt=200))[0].name
    header = own / "fmha_fwd.hpp"
    for word in ("planted_here", "planted_there"):
        header.write_text(f'#error "{word}"\n')  # alone: without CK's headers the compiler ends at once
        with pytest.raises(CompileError) as failure:
            list(compile_each([name], "gfx950", where("ckpm", toolchain="embedded", headers=own)))
        assert name in str(failure.value)
        assert word in str(failure.value)
    assert len(list((cache / "jit/logs").iterdir())) == 2  # a log for each content key
    assert not (cache / "jit/entries").exists()


def test_header_of_checkout_edited_is_noticed(cache: Path, tmp_path: Path, trees: Mapping[str, Tree]) -> None:
    """Name, arch and compiler are the same, a header is not."""
    root = tmp_path / "ck"
    shutil.copytree(trees["aiter"].root, root)
    before = locate("checkout", cache=cache, ck_root=root).identity
    header = root / "include/ck_tile/ops/fmha/block/block_masking.hpp"
    header.write_text(header.read_text() + "\n")
    assert locate("checkout", cache=cache, ck_root=root).identity != before
    header.write_text('#error "planted"\n')
    origin = where("checkout", toolchain="embedded", ck_root=root)
    with pytest.raises(CompileError, match="planted"):
        list(compile_each([NAME], "gfx950", origin))


def test_process_without_write_access_is_refused(small: str, tmp_path: Path) -> None:
    file = tmp_path / "a file"
    file.write_text("")
    command = [sys.executable, "-m", "ckpm", "jit", small]
    done = subprocess.run(
        command,
        cwd=PROJECT,
        env={**os.environ, "CKPM_CACHE": str(file / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, "CKPM_CACHE" in done.stderr) == (10, True), done.stderr
    assert "Traceback" not in done.stderr
