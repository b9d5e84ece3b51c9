"""A library is opened by its folder and the C ABI of its families; the command shows each with its times."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ckpm.attention.jit import command, compiling
from ckpm.attention.jit.compiling import CompiledKernels
from ckpm.attention.jit.loading import load
from ckpm.attention.launch import device as devices
from ckpm.base.errors import LibraryError, RecordError
from ckpm.commands import main
from ckpm.kernels.abi import AppendKvArguments, FwdArguments, LaunchArguments
from ckpm.matrix.dialects import dialect
from ckpm.matrix.selection import Selection, select
from tests.unit import manifests
from tests.unit.attention.fakes import FakeDevice


class Recorder(FakeDevice):
    """A device that only writes down what it is to load."""

    def __init__(self, arch: str = "gfx950") -> None:
        super().__init__()
        self.arch = arch
        self.loads: list[tuple[Path, Any]] = []

    def load(self, path: Path, arguments: Any = None, sha256: str = "") -> Any:
        self.loads.append((path, arguments))


def name_of(family: str) -> str:
    return select(dialect("ck-2025-11"), Selection(archs=("gfx950",), families=(family,)))[0].name


def library(folder: Path, family: str = "batch_prefill") -> Path:
    return manifests.write_library(folder, manifests.document({name_of(family): {}}))


@pytest.mark.parametrize(
    ("family", "arguments"),
    [
        ("batch_prefill", LaunchArguments),
        ("fwd", FwdArguments),
        ("fwd_splitkv", FwdArguments),
        ("fwd_splitkv_combine", FwdArguments),
        ("fwd_appendkv", AppendKvArguments),
    ],
)
def test_c_abi_is_that_of_kernels(tmp_path: Path, family: str, arguments: Any) -> None:
    device = Recorder()
    file = library(tmp_path, family)
    load(tmp_path, device)
    assert device.loads == [(file, arguments)]


def test_library_of_other_device_or_changed_is_refused(tmp_path: Path) -> None:
    device = Recorder()
    with pytest.raises(RecordError):
        load(tmp_path, device)
    file = library(tmp_path)
    with pytest.raises(LibraryError, match="it is for gfx950, and the device is a gfx942"):
        load(tmp_path, Recorder("gfx942"))
    file.write_bytes(b"another")
    with pytest.raises(LibraryError):
        load(tmp_path, device)
    file.unlink()
    with pytest.raises(LibraryError, match="no such library"):
        load(tmp_path, device)
    manifests.write_library(tmp_path, manifests.document({}))
    with pytest.raises(LibraryError, match="lists no kernel"):
        load(tmp_path, device)
    assert device.loads == []


def test_command_shows_where_time_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    library(tmp_path)
    first = CompiledKernels(
        request="one", name="one", folder=tmp_path, compiled=True, render=0.25, wait=1.5, build=20.125, compilers=30.5
    )
    second = CompiledKernels(request="two", name="two", folder=tmp_path, compiled=False, render=0.0625)

    def each(*_: Any, **__: Any) -> Iterator[CompiledKernels]:
        compiling.log.info("compiling one")
        yield from (first, second)

    monkeypatch.setattr(command, "compile_each", each)
    monkeypatch.setattr(devices, "choose", lambda choice, arch: Recorder(arch))
    assert main(["jit", "one", "two"]) == 0
    shown, log = capsys.readouterr()
    head, *rows = [line.split() for line in shown.splitlines()[:3]]
    assert head == ["kernel", "render", "wait", "build", "compilers", "load"]
    assert [(row[:5], row[6:]) for row in rows] == [
        (["one", "0.25", "1.50", "20.12", "30.50"], ["compiled"]),
        (["two", "0.06", "0.00", "0.00", "0.00"], ["was", "there"]),
    ]
    assert shown.count(str(tmp_path)) == 2
    assert log == "compiling one\n"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "name kernels, or with --declared a C++ file"),
        (["one", "--declared", "program.cpp"], "one of the two"),
        (["one", "--jobs", "0"], "--jobs 0: at least one compiler"),
        (["one", "--ck-root", "ck"], "--ck-root ck is the place of --upstream checkout"),
        (["one", "--arch", "gfx1"], "unknown arch 'gfx1'"),
    ],
)
def test_contradicting_options_of_jit_are_refused(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["jit", *arguments]) in (2, 3)
    assert complaint in capsys.readouterr().err
