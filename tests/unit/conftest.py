"""Fixtures of the unit tests: a toolchain whose compiler is a shell script, and calls of ckpm."""

from __future__ import annotations

import dataclasses
import gc
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ckpm.kernels.code.toolchains import Toolchain
from ckpm.kernels.library import building
from ckpm.kernels.library.request import BuildRequest
from ckpm.kernels.upstream.tree import FMHA, Tree
from ckpm.matrix.selection import Selection

# Lists of ten thousands of keys live as long as the process. Collecting garbage among them took a fifth of the time.
gc.set_threshold(100_000, 20, 50)
os.environ.pop("CKPM_ROCM", None)  # of the person who runs the tests

# Copies the source to the object and logs its name. A source that contains $CKPM_STUB_BREAKS fails.
STUB = """#!/bin/sh
for word; do case $previous in -c) in=$word;; -o) out=$word;; esac; previous=$word; done
echo "${in:-link}" >> "$CKPM_STUB_LOG"
if [ -n "$in" ] && [ -n "$CKPM_STUB_BREAKS" ] && grep -q "$CKPM_STUB_BREAKS" "$in"; then
  line=$(grep -n "$CKPM_STUB_BREAKS" "$in" | head -1 | cut -d: -f1)
  echo "$in:$line:1: error: no such thing"; echo half > "$out"; exit 1
fi
if [ -n "$in" ]; then cp "$in" "$out"; else echo library > "$out"; fi
"""


@pytest.fixture
def stub_toolchain(tmp_path: Path) -> Callable[..., Toolchain]:
    """``stub_toolchain(breaks="x")``: compiles whatever does not contain x. ``text`` is of another compiler."""

    def make(breaks: str = "", text: str = STUB) -> Toolchain:
        script = tmp_path / "stub-compiler"
        script.write_text(text)
        script.chmod(0o755)
        return Toolchain(
            name="stub",
            identity="stub 1",
            compiler=(str(script),),
            search=(),
            flags=("-O3",),
            linker=(str(script),),
            link_flags=("-shared",),
            environment={"CKPM_STUB_LOG": str(tmp_path / "stub.log"), "CKPM_STUB_BREAKS": breaks},
        )

    return make


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """A tree of November 2025 without files: enough for rendering and planning."""
    root = tmp_path / "ck"
    (root / FMHA).mkdir(parents=True)
    return Tree(name="aiter", root=root, dialect="ck-2025-11", identity="test tree", selector_takes_base=False)


@pytest.fixture
def request_for(tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., BuildRequest]:
    """``request_for(toolchain, work="a", where=("..",))``: a build request in a folder of its own."""
    monkeypatch.setenv("CKPM_CACHE", str(tmp_path / "cache"))

    def make(toolchain: Toolchain, work: str = "work", cached: bool = True, **selection: object) -> BuildRequest:
        work_folder = tmp_path / work
        work_folder.mkdir(exist_ok=True)
        return BuildRequest(
            selection=Selection(archs=("gfx950",), receipt=200, **selection),  # type: ignore[arg-type]
            tree=tree,
            toolchain=toolchain,
            work=work_folder,
            object_cache=tmp_path / "objects" if cached else None,
        )

    return make


@pytest.fixture
def copied_manifest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copy the plan as manifest, because the stub compiler makes no code objects to list."""

    def copy(folder: str) -> tuple[str, ...]:
        return ("cp", f"{folder}/plan.json", f"{folder}/manifest.json")

    monkeypatch.setattr("ckpm.kernels.library.request.manifest_command", copy)


@pytest.fixture(scope="session")
def _finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[BuildRequest]]:
    """A folder for a copy of the process's first finished build, and the request of that build."""
    return tmp_path_factory.mktemp("finished"), []


@pytest.fixture
def finished_build(
    stub_toolchain: Callable[..., Toolchain],
    request_for: Callable[..., BuildRequest],
    copied_manifest: None,
    tmp_path: Path,
    _finished: tuple[Path, list[BuildRequest]],
) -> Callable[..., BuildRequest]:
    """``finished_build(cached=False)``: the request of a small selection that the stub compiler has built.

    SCons takes seconds, so one build is made in a process, and every test gets a copy of its folders.
    """

    def make(cached: bool = True) -> BuildRequest:
        kept, first = _finished
        if first:
            shutil.copytree(kept, tmp_path, dirs_exist_ok=True)
        else:
            first.append(request_for(stub_toolchain(), where=("key.logits", "key.lse")))
            building.run(first[0], jobs=2)
            for name in ("work", "objects", "cache"):
                shutil.copytree(tmp_path / name, kept / name)
        return dataclasses.replace(
            first[0], work=tmp_path / "work", object_cache=tmp_path / "objects" if cached else None
        )

    return make
