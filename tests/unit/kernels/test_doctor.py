"""doctor reports which tools are present or missing, and what to do."""

from __future__ import annotations

import dataclasses
import functools
import platform
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from ckpm.base import jobs
from ckpm.base.store import Store, adopt, draft_folder
from ckpm.kernels.code.toolchains import detect, rocm
from ckpm.kernels.library import doctor
from ckpm.kernels.library.doctor import examine
from ckpm.kernels.upstream.tree import FMHA
from ckpm.kernels.upstream.trees import package_folder
from ckpm.matrix.dialects import upstreams
from tests.unit.kernels.test_upstream import CODEGEN, make_tree


def states(findings: list[doctor.Examination]) -> dict[str, str]:
    return {finding.subject: finding.state for finding in findings}


def test_bare_machine_is_fit_to_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rocm, "locate", lambda: None)
    findings = examine(tmp_path, None)
    assert states(findings)["toolchain embedded"] == "ok"
    assert states(findings)["toolchain rocm"] == "missing"
    assert states(findings)["upstream aiter"] == "missing"
    assert "broken" not in states(findings).values()
    assert all(finding.advice for finding in findings if finding.state != "ok")


def test_ck_root_that_is_not_tree_is_broken(tmp_path: Path) -> None:
    finding = next(f for f in examine(tmp_path, tmp_path / "nowhere") if f.subject == "upstream checkout")
    assert finding.state == "broken"
    assert "Point CK_ROOT" in finding.advice


@pytest.mark.parametrize(
    ("dialect", "state", "advice"),
    [
        ("rocm-libraries-2026", "ok", "its names are not compared: "),
        ("rocm-libraries-2026-04", "ok", "its names are not compared: "),
        ("prefill-v3", "broken", "whose C++ needs our own headers: build --upstream ckpm-v3"),
    ],
)
def test_checkout_that_build_would_refuse_is_broken(tmp_path: Path, dialect: str, state: str, advice: str) -> None:
    root = make_tree(tmp_path / "ck", CODEGEN[dialect])
    finding = next(f for f in examine(tmp_path / "cache", root) if f.subject == "upstream checkout")
    assert (finding.state, finding.detail) == (state, f"{root}, dialect {dialect}")
    assert advice in finding.advice


def test_too_little_memory_for_merged_unit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "available_bytes", lambda: 900_000_000)
    finding = next(f for f in examine(tmp_path, None) if f.subject == "jobs")
    assert (finding.state, finding.advice) == ("broken", "a merged unit takes 1.4 GB: build with --unit-size 1")


def test_full_disk_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: type("Usage", (), {"free": 1_000_000})())
    finding = next(f for f in examine(tmp_path, None) if f.subject == "cache")
    assert finding.state == "broken"
    assert "set CKPM_CACHE to another disk" in finding.advice


@pytest.mark.parametrize("below", ["", "deeper", "deeper/still"])
def test_cache_that_is_file_is_broken_and_leaves_no_file(tmp_path: Path, below: str) -> None:
    (tmp_path / "cache").write_text("")
    findings = states(examine(tmp_path / "cache" / below, None))
    assert (findings["cache"], findings["toolchain embedded"]) == ("broken", "broken")
    assert [file.name for file in tmp_path.rglob("*")] == ["cache"]


def test_cache_that_does_not_exist_yet_is_fit_and_stays_absent(tmp_path: Path) -> None:
    assert doctor._cache(tmp_path / "deep" / "er").state == "ok"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("damaged", "state", "advice"),
    [([], "ok", ""), (["ck/a.hpp: changed", "ck/b.hpp: changed"], "broken", "delete {path}: it is unpacked again")],
)
def test_damaged_tree_is_reported_with_its_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damaged: list[str], state: str, advice: str
) -> None:
    package = upstreams()["aiter"]
    monkeypatch.setattr(doctor, "is_unpacked", lambda package, cache: True)
    monkeypatch.setattr(doctor, "damage", lambda package, cache: damaged)
    finding = doctor._package("aiter", package, tmp_path)
    assert (finding.state, finding.advice) == (state, advice.format(path=package_folder(package, tmp_path)))
    assert finding.detail.endswith(": ck/a.hpp: changed and 1 more") == bool(damaged)


def test_doctor_package_without_its_tree_is_damaged(tmp_path: Path) -> None:
    package = upstreams()["aiter"]
    package_folder(package, tmp_path).mkdir(parents=True)
    finding = doctor._package("aiter", package, tmp_path)
    assert (finding.state, finding.detail.endswith(f" has no tree {package.tree}")) == ("damaged", True)
    assert finding.advice.endswith("correct its tree in matrix/upstreams.yaml")


@pytest.mark.parametrize("kept", [0, 16, 63])
def test_doctor_other_sha256_in_cache_is_broken(tmp_path: Path, kept: int) -> None:
    package = upstreams()["aiter"]
    other = package.sha256[:kept] + "0123456789abcdef" * 4
    cached = package_folder(msgspec.structs.replace(package, sha256=other[:64]), tmp_path)
    assert doctor._package("aiter", package, tmp_path).state == "missing"
    (cached / package.tree / FMHA).mkdir(parents=True)
    (cached / package.tree / FMHA / "generate.py").touch()
    finding = doctor._package("aiter", package, tmp_path)
    assert (finding.state, f"another sha256, {other[:64]}" in finding.detail) == ("broken", True)
    assert f"correct the sha256 in matrix/upstreams.yaml ({package.sha256})" in finding.advice


@pytest.mark.parametrize(("digits", "ending"), [(64, ".lock"), (16, ".lock"), (16, "")])
def test_doctor_lock_or_folder_of_16_digits_is_no_download(tmp_path: Path, digits: int, ending: str) -> None:
    package = upstreams()["aiter"]
    (tmp_path / "upstream" / f"aiter-{package.version}-{package.sha256[:digits]}{ending}").mkdir(parents=True)
    finding = doctor._package("aiter", package, tmp_path)
    assert (finding.state, finding.advice) == ("missing", "is downloaded by the first build that needs it")


@pytest.mark.parametrize(
    ("bf16", "advice"),
    [("compiler", ""), ("truncate", "build with -DCK_TILE_FLOAT_TO_BFLOAT16_DEFAULT=3 to round to nearest")],
)
def test_rocm_that_truncates_to_bf16_has_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bf16: str, advice: str
) -> None:
    identity = doctor.Examination("toolchain rocm", "ok", "rocm hipcc HIP 6.4.43484")
    monkeypatch.setattr(rocm, "locate", lambda: "/usr/bin/hipcc")
    monkeypatch.setattr(doctor, "_toolchain", lambda name, cache: identity)
    monkeypatch.setattr(doctor, "_conversion", lambda cache: bf16)
    assert doctor._rocm(tmp_path) == dataclasses.replace(identity, detail=f"{identity.detail}, /usr/bin/hipcc")
    monkeypatch.setattr(doctor, "is_unpacked", lambda package, cache: True)
    monkeypatch.setattr(doctor, "damage", lambda package, cache: [])
    finding = doctor._rocm(tmp_path)
    assert (finding.state, finding.detail[-len(bf16) :], finding.advice[-len(advice) :]) == ("ok", bf16, advice)
    assert bool(finding.advice) == bool(advice)


@pytest.mark.parametrize(
    ("version", "state"), [("3.11.0", "ok"), ("3.14.1", "ok"), ("3.10.12", "broken"), ("2.7.18", "broken")]
)
def test_old_python_is_broken(monkeypatch: pytest.MonkeyPatch, version: str, state: str) -> None:
    monkeypatch.setattr(platform, "python_version", lambda: version)
    monkeypatch.setattr(platform, "python_version_tuple", lambda: tuple(version.split(".")))
    assert doctor._python().state == state


@pytest.mark.parametrize(
    ("system", "machine", "state"),
    [("Linux", "x86_64", "ok"), ("Darwin", "arm64", "broken"), ("Linux", "aarch64", "broken")],
)
def test_another_system_is_broken(monkeypatch: pytest.MonkeyPatch, system: str, machine: str, state: str) -> None:
    monkeypatch.setattr(platform, "system", lambda: system)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    assert doctor._system().state == state


def store_entry(cache: Path) -> Path:
    store = Store(cache / "emulator/programs")
    store.put("key", b"a program")
    return store.entries()[0]


def make_adopted(file: str, cache: Path) -> Path:
    library = cache / file
    library.parent.mkdir(parents=True)
    with draft_folder(cache) as drafts:
        (drafts / "library").write_bytes(b"\x7fELF")
        adopt(drafts / "library", library)
    return library


def launcher(cache: Path) -> Path:
    detect("embedded", cache=cache)
    return next((cache / "launchers").glob("*/lld"))


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (store_entry, "decoded programs"),
        (functools.partial(make_adopted, "emulator/core-portable-0/libamdhip64.so.7"), "the emulator's core"),
        (launcher, "launchers"),
        (functools.partial(make_adopted, "jit/entries/0123/libckpm.so"), "libraries compiled on demand"),
    ],
)
def test_damaged_entry_of_cache_is_named(tmp_path: Path, make: Callable[[Path], Path], what: str) -> None:
    file = make(tmp_path)
    assert list(doctor._entries(tmp_path)) == []
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    (finding,) = doctor._entries(tmp_path)
    assert (finding.subject, finding.state) == (f"cache: {what}", "damaged")
    damaged = file.parent if what == "launchers" else file
    assert finding.detail == f"1 of 1 are not as they were written: {damaged}"


@pytest.mark.parametrize(
    ("compiler", "gpu", "variable", "row"),
    [
        ("ok", "ok", "1", ("ok", "builds, runs on the GPU", "")),
        ("ok", "missing", "1", ("missing", "builds, runs nothing", "see GPU")),
        ("missing", "missing", "", ("missing", "builds nothing, runs nothing", "see toolchain rocm and GPU")),
        ("missing", "ok", "1", ("broken", "builds nothing, runs on the GPU", "see toolchain rocm")),
    ],
)
def test_row_tells_what_rocm_can_do(
    monkeypatch: pytest.MonkeyPatch, compiler: str, gpu: str, variable: str, row: tuple[str, str, str]
) -> None:
    monkeypatch.setenv("CKPM_ROCM", variable)
    finding = doctor._rocm_road(doctor.Examination("toolchain rocm", compiler, ""), doctor.Examination("GPU", gpu, ""))
    assert (finding.state, finding.detail, finding.advice) == row
