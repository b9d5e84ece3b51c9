"""The next build removes files of killed processes, and keeps files of living processes."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from ckpm.base.files import abandoned_drafts, write_atomically
from ckpm.kernels.code.toolchains import Toolchain
from ckpm.kernels.library import command as build_command
from ckpm.kernels.library.request import Request

Make = Callable[..., Request]
Stub = Callable[..., Toolchain]
pytestmark = pytest.mark.usefixtures("copied_manifest")


def dead_process() -> int:
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def test_next_build_clears_them(finished_build: Make) -> None:
    request = finished_build()
    place = request.work / request.folder
    left = [place / "tmp/unit-1234.hipfb", place / "obj/dispatch-77.o.tmp", place / f"src/.a.hip.{dead_process()}.1"]
    living = place / f".results.json.{os.getpid()}.1"
    for file in (*left, living):
        file.write_text("half")
    build_command.run(request, jobs=2)
    assert [file for file in (*left, living) if file.exists()] == [living]


def test_compilers_put_temporary_files_into_output_folder(stub_toolchain: Stub, request_for: Make) -> None:
    request = request_for(stub_toolchain(), where=("key.logits", "key.lse"))
    script = Path(request.toolchain.compiler[0])
    script.write_text(script.read_text() + 'mktemp "$TMPDIR/crash.XXXXXX"\n')
    build_command.run(request, jobs=2)
    assert list((request.work / request.folder / "tmp").glob("crash.*"))
    build_command.run(request, jobs=2)
    assert not list((request.work / request.folder / "tmp").iterdir())


def test_draft_is_known_by_its_dead_process_alone(tmp_path: Path) -> None:
    write_atomically(tmp_path / "a.json", b"1")
    dead = dead_process()
    for name in (f".a.json.{dead}.5", f".a.json.{os.getpid()}.5", f"a.json.{dead}.5", f".a.{dead}"):
        (tmp_path / name).write_text("")
    assert [file.name for file in abandoned_drafts(tmp_path)] == [f".a.json.{dead}.5"]
    assert abandoned_drafts(tmp_path / "absent") == []
