"""Files that zig keeps for links are used as they were made, or made again."""

from __future__ import annotations

import importlib.util
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest

from ckpm.base.store import is_adopted
from ckpm.base.warming import ZIG_CACHE
from ckpm.base.zig_cache import checked_link, linked_with, renew
from ckpm.kernels.code.toolchains import embedded
from ckpm.kernels.library.doctor import examine
from ckpm.kernels.library.plan import BuildStep
from ckpm.kernels.library.run_step import FinishedStep, run_step
from ckpm_emulator.toolchain import zig_folders

TAIL = bytes.fromhex("c1367674952f8713e13fc929a9e9581004") + b"libc/glibc/abilists\0\0"  # of a note by zig 0.17.0


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


def test_linked_files_are_adopted_once(cache: Path) -> None:
    """A digest of a digest of a digest ended as a file name that no system takes."""
    names = [str(file.relative_to(cache / "o")) for file in linked_with(cache)]
    assert names == ["aa/libc++.a", "aa/string.o", "bb/libcompiler_rt.a", "cc/libc.so.6"]
    assert all(is_adopted(file) for file in linked_with(cache))
    before = sorted(cache.rglob("*"))
    with checked_link(cache):
        assert (cache / "h" / "aa").exists()
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


def test_notes_have_inodes_of_new_environment(tmp_path: Path) -> None:
    """The note is one that zig 0.17.0 wrote, ``h/dcb501b6211a943225e21359afe49306``."""
    head, tail = bytes.fromhex("bddc03000000000055e0f400000000005ed078ef6679ec18"), TAIL
    note, lib = tmp_path / "cache/h/dcb501b6211a943225e21359afe49306", tmp_path / "lib"
    of_source = bytes(32) + b"\0" + b"/home/me/a.cpp\0"  # flags 0: no path below lib
    files = [lib / "libc/glibc/abilists", lib / "std/std.zig"]
    for file in (note, *files):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    for size, renewed in ((1, False), (0x3DCBD, True)):
        os.truncate(files[0], size)
        os.utime(files[1], ns=(0, size))  # of another installation
        note.write_bytes(of_source + head + tail)
        renew(note.parents[1], lib)
        stat = files[0].stat()
        expected = struct.pack("<QQq", 0x3DCBD, stat.st_ino, stat.st_mtime_ns) if renewed else head
        assert note.read_bytes() == of_source + expected + tail
    os.utime(files[1], ns=(0, 0))  # a build of another environment begins
    note.write_bytes(of_source + head + tail)
    argv = (str(tmp_path / "zig"), "c++")
    step = BuildStep(kind="library", target=str(tmp_path / "l.so"), sources=("s",), argv=argv, signature="", label="")
    seen: list[bytes] = []

    def link(step: BuildStep, environment: Mapping[str, str]) -> FinishedStep:
        seen.append(note.read_bytes())
        return FinishedStep(1, "")

    assert run_step(step, {ZIG_CACHE: str(note.parents[1])}, str(tmp_path), link) == 1
    assert seen == [of_source + expected + tail]
    note.write_bytes(b"of another format" * 3)
    os.utime(files[1], ns=(0, 1))
    renew(note.parents[1], lib)
    assert note.read_bytes() == b"of another format" * 3


def test_environments_that_link_in_turns_build_libcxx_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last link is that of ``ckpm cpp run``, which takes the notes as they are."""
    built = list[str]()
    for name in ("one", "two"):
        source = tmp_path / name / "lib/libc/glibc/abilists"
        (tmp_path / name / "lib/std").mkdir(parents=True)
        source.parent.mkdir(parents=True)
        (tmp_path / name / "lib/std/std.zig").touch()
        source.touch()
        os.truncate(source, 0x3DCBD)
        (tmp_path / name / "zig").write_text("#!/bin/sh\necho clang version 22.1.8\n")
        (tmp_path / name / "zig").chmod(0o755)

    def link(step: BuildStep, environment: Mapping[str, str]) -> FinishedStep:
        """Build libc++ as zig does: unless its note has the inodes of the installed files."""
        name, folder = Path(step.argv[0]).parent.name, Path(environment[ZIG_CACHE])
        stat = (tmp_path / name / "lib/libc/glibc/abilists").stat()
        wanted, note = struct.pack("<QQq", stat.st_size, stat.st_ino, stat.st_mtime_ns) + TAIL, folder / "h/aa"
        if not note.is_file() or note.read_bytes() != wanted:
            for file in (note, folder / "o/bb/libc++.a", folder / "z/cc"):
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(wanted)
            built.append(name)
        return FinishedStep(1, "")

    for name, execute in (("one", run_step), ("two", run_step), ("one", None)):
        spec = SimpleNamespace(submodule_search_locations=[str(tmp_path / name)])
        monkeypatch.setattr(importlib.util, "find_spec", lambda _, spec=spec: spec)
        toolchain = embedded.find(cache=tmp_path / "cache")
        folders = zig_folders(tmp_path / name / "lib", tmp_path / "cache/emulator")
        assert folders.items() <= toolchain.environment.items()
        step = BuildStep(
            kind="library", target=str(tmp_path / "l.so"), sources=("s",), argv=toolchain.linker, signature="", label=""
        )  # fmt: skip
        if execute:
            execute(step, toolchain.environment, str(tmp_path), link)
        else:
            link(step, toolchain.environment)
    assert built == ["one"]
    (tmp_path / "cache/zig").joinpath(Path(toolchain.environment[ZIG_CACHE]).name, "o/bb/libc++.a").write_text("")
    rows = {row.subject: row.detail for row in examine(tmp_path / "cache", None)}
    assert rows["cache: what zig links with"].startswith("1 of 2 are not as they were written")
