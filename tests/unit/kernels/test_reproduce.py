"""reproduce must notice any byte that differs, and any file that one build lacks."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

from ckpm.base.errors import LibraryError, RecordError, UsageError
from ckpm.commands import main
from ckpm.kernels.code.toolchains import Toolchain
from ckpm.kernels.library import building, reproduce
from ckpm.kernels.library.manifest import Manifest
from ckpm.kernels.library.request import BuildRequest
from tests.unit import manifests


def test_differences_name_artifact() -> None:
    first = {"a.o": "1" * 64, "b.o": "2" * 64, "only": "3" * 64}
    second = {"a.o": "1" * 64, "b.o": "4" * 64, "new": "5" * 64}
    assert reproduce.differences(first, second) == [
        "b.o: 2222222222222222 in the first build, 4444444444444444 in the second",
        "new: only in the second build",
        "only: only in the first build",
    ]
    assert reproduce.differences(first, dict(first)) == []


@pytest.mark.parametrize("leak", ["", "path", "base", "count"])
def test_leaking_path_or_counter_is_found(
    monkeypatch: pytest.MonkeyPatch,
    request_for: Callable[..., BuildRequest],
    stub_toolchain: Callable[..., Toolchain],
    leak: str,
) -> None:
    builds: list[Path] = []

    def fake(request: BuildRequest, *, jobs: int) -> None:
        builds.append(request.work)
        assert request.object_cache is None
        objects = request.work / request.folder / "obj"
        objects.mkdir(parents=True)
        text = {
            "": "same",
            "path": f"at {request.work}/src",
            "base": f"{caches[0].parent}",  # the same in both
            "count": str(len(builds)),
        }[leak]
        (objects / "unit.o").write_text(text)
        (objects.parent / "compile_commands.json").write_text(str(request.work))  # names the machine: not compared

    def toolchain(cache: Path) -> Toolchain:
        caches.append(cache)
        return stub_toolchain()

    caches: list[Path] = []
    monkeypatch.setattr(building, "run", fake)
    count, lines = reproduce.build_twice(request_for(stub_toolchain()), toolchain, 1)
    assert count == 1
    assert len(set(caches)) == 2  # not even the compiler's own cache is shared
    base = caches[0].parent
    same = [f"obj/unit.o: holds {base}"] if leak in ("path", "base") else []
    differ = leak in ("path", "count")
    assert lines[differ:] == same
    assert [line[:12] for line in lines[:differ]] == ["obj/unit.o: "] * differ
    assert len({len(work.parts) for work in builds}) == 2  # of different depth


def test_folders_name_is_leak_and_longer_name_is_none(tmp_path: Path) -> None:
    file = tmp_path / "unit.o"
    file.write_bytes(b"\x00/home/me/x.cpp\x00/home/metoo\x00/opt/cache\x00")
    leaks = reproduce.leaks({"obj/unit.o": file}, [Path("/home/me"), Path("/opt/cache"), Path("/home/met"), Path("/")])
    assert leaks == ["obj/unit.o: holds /home/me", "obj/unit.o: holds /opt/cache"]


@pytest.mark.parametrize("option", [["--work", "x"], ["--no-cache"]])
def test_options_without_effect_are_refused(option: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["build", "--reproduce", "--arch", "gfx950", *option]) == UsageError.exit_code
    assert option[0] in capsys.readouterr().err


def test_build_s_own_memory_is_not_artifact(tmp_path: Path) -> None:
    kept = (".headers.json", ".sconsign.signed", ".built", ".lock", "src/.ckpm-outputs", "plan.json", "tmp/warm.so")
    for name in (*kept, "libckpm.so", "obj/a.o", "src/a.hip"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert set(reproduce.artifacts(tmp_path)) == {"libckpm.so", "obj/a.o", "src/a.hip"}


@pytest.mark.parametrize("damage", ["", "library", "manifest", "object"])
def test_built_library_is_built_once_more_and_compared(
    monkeypatch: pytest.MonkeyPatch,
    request_for: Callable[..., BuildRequest],
    stub_toolchain: Callable[..., Toolchain],
    damage: str,
) -> None:
    def fake(request: BuildRequest, *, jobs: int) -> None:
        assert request.object_cache is None
        folder = request.work / request.folder
        (folder / "obj").mkdir(parents=True)
        for name in ("libckpm.so", "obj/unit.o"):
            (folder / name).write_text(name)
        sums = {name: sha256(name.encode()).hexdigest() for name in ("libckpm.so", "obj/unit.o")}
        manifests.record(artifacts=sums).write(folder / "manifest.json")

    monkeypatch.setattr(building, "run", fake)
    request = request_for(stub_toolchain())
    fake(dataclasses.replace(request, object_cache=None), jobs=1)
    built = request.work / request.folder
    (built / "large-kv.json").touch()  # results of a suite
    (built / "obj/unit.o").unlink()  # a release hands out no objects
    kept = Manifest.read(built / "manifest.json")
    if damage == "library":
        (built / "libckpm.so").write_text("another")
    if damage == "manifest":
        dataclasses.replace(kept, selection="another").write(built / "manifest.json")
    if damage == "object":
        sums = {**kept.artifacts, "obj/unit.o": "0" * 64}
        dataclasses.replace(kept, artifacts=sums).write(built / "manifest.json")
    count, lines = reproduce.build_again(request, built, lambda cache: stub_toolchain(), 1)
    expected = {
        "": [],
        "library": ["libckpm.so"],
        "manifest": ["manifest.json"],
        "object": ["manifest.json", "obj/unit.o"],
    }
    assert (count, [line.partition(":")[0] for line in lines]) == (3, expected[damage])


def test_without_built_library_there_is_nothing_to_compare(
    request_for: Callable[..., BuildRequest], stub_toolchain: Callable[..., Toolchain], tmp_path: Path
) -> None:
    request = request_for(stub_toolchain())
    with pytest.raises(RecordError, match=r"manifest\.json"):
        reproduce.build_again(request, tmp_path, lambda cache: stub_toolchain(), 1)
    manifests.record().write(tmp_path / "manifest.json")
    with pytest.raises(LibraryError, match=r"libckpm\.so is missing"):
        reproduce.build_again(request, tmp_path, lambda cache: stub_toolchain(), 1)


def test_builds_that_are_compared_have_flags_of_request(
    stub_toolchain: Callable[..., Toolchain],
    request_for: Callable[..., BuildRequest],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chosen = dataclasses.replace(stub_toolchain(), flags=("-DCK_TILE_FLOAT_TO_BFLOAT16_DEFAULT=3",))
    built: list[Toolchain] = []

    def build_twice(request: BuildRequest, toolchain: Callable[[Path], Toolchain], jobs: int) -> tuple[int, list[str]]:
        built.append(toolchain(tmp_path))
        return 1, []

    monkeypatch.setattr(reproduce, "detect", lambda name, cache: stub_toolchain())
    monkeypatch.setattr(reproduce, "build_twice", build_twice)
    reproduce.run(request_for(chosen), 1, None)
    assert built[0].flags == chosen.flags
