"""ROCm is found in the folders of AMD, distributions and Python packages. An unused GPU is reported with a reason."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ckpm.attention.launch import device
from ckpm.base import rocm_places
from ckpm.kernels.code import toolchains
from ckpm.kernels.code.toolchains import rocm
from ckpm.kernels.library import doctor

GFX950 = "simd_count 1024\ngfx_target_version 90500\n"
CPU = "simd_count 0\ngfx_target_version 0\n"
HIPCC = "echo 'HIP version: 6.1.1'; echo 'clang version 17.0.6'"


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder in the place of a machine without GPU, ROCm, and entries in the loader's cache."""
    folder = tmp_path / "system"
    for name in ("ROCM_PATH", "HIP_PATH", "LD_LIBRARY_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(rocm_places, "SYSTEM", folder)
    monkeypatch.setattr(rocm_places, "KFD", folder / "dev/kfd")
    monkeypatch.setattr(rocm_places, "NODES", folder / "nodes")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site-packages"), *sys.path])
    monkeypatch.setenv("PATH", str(folder / "bin"))
    program(folder / "bin/ldconfig", "exit 0")
    return folder


def program(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)


def empty(file: Path, text: str = "") -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def gpu(system: Path, properties: str = GFX950) -> None:
    empty(system / "nodes/0/properties", CPU)
    empty(system / "nodes/1/properties", properties)
    empty(system / "dev/kfd")


@pytest.mark.parametrize(
    "file",
    [
        "system/opt/rocm/lib/libamdhip64.so.7",
        "system/opt/rocm/lib/libamdhip64.so",
        "system/usr/lib/x86_64-linux-gnu/libamdhip64.so.6",
        "system/usr/lib64/libamdhip64.so.6",
        "site-packages/_rocm_sdk_core/lib/libamdhip64.so.7",
    ],
)
@pytest.mark.usefixtures("system")
def test_runtime_is_found_in_folder(tmp_path: Path, file: str) -> None:
    assert rocm_places.runtime() is None
    empty(tmp_path / file)
    assert rocm_places.runtime() == str(tmp_path / file)


def test_runtime_is_found_by_loader_cache(system: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    distribution = empty(system / "usr/lib/x86_64-linux-gnu/libamdhip64.so.6")
    old, new, small = (empty(tmp_path / name / "hip.so") for name in ("old", "new", "small"))
    lines = (
        "2 libs found in cache",
        f"\tlibamdhip64.so.7 (libc6) => {small}",  # for 32 bits
        f"\tlibamdhip64.so.6 (libc6,x86-64) => {old}",
        f"\tlibamdhip64.so.7 (libc6,x86-64, OS ABI: Linux 3.2.0) => {new}",
    )
    program(system / "bin/ldconfig", "/bin/cat <<END\n" + "\n".join(lines) + "\nEND")
    assert rocm_places.runtime() == str(new)
    new.unlink()
    assert rocm_places.runtime() == str(old)
    preferred = empty(tmp_path / "asked/libamdhip64.so.7")
    monkeypatch.setenv("LD_LIBRARY_PATH", f"/nowhere::{preferred.parent}")
    assert rocm_places.runtime() == str(preferred)
    program(system / "bin/ldconfig", "exit 1")
    monkeypatch.delenv("LD_LIBRARY_PATH")
    assert rocm_places.runtime() == str(distribution)


@pytest.mark.parametrize(
    ("properties", "access", "runtime", "reason"),
    [
        (GFX950, True, False, "ROCm's libamdhip64.so is nowhere where the loader looks"),
        (GFX950, False, True, "add the user to the groups render and video"),
        (GFX950.replace("90500", "90402"), True, True, "there is gfx942, and the library is for gfx950"),
    ],
)
def test_unused_gpu_is_reported(
    system: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    properties: str, access: bool, runtime: bool, reason: str,
) -> None:  # fmt: skip
    gpu(system, properties)
    monkeypatch.setattr("os.access", lambda path, mode: access)
    if runtime:
        empty(system / "usr/lib64/libamdhip64.so.6")
    assert device.kind_of("auto", "gfx950") == "emulator"
    output = capsys.readouterr().err
    assert output.startswith("warning: a GPU is here, and is not used: ")
    assert reason in output
    assert reason in device.unused_gpu("gfx950")
    assert device.kind_of("emulator", "gfx950") == "emulator"
    assert capsys.readouterr().err == ""  # requested


def test_gpu_with_runtime_of_distribution_is_taken(system: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert device.kind_of("auto", "gfx950") == "emulator"
    gpu(system)
    runtime = empty(system / "usr/lib/x86_64-linux-gnu/libamdhip64.so.6")
    assert device.kind_of("auto", "gfx950") == "hip"
    assert capsys.readouterr().err == ""
    finding = doctor._device()
    assert (finding.state, finding.detail) == ("ok", f"gfx950, {runtime}")
    runtime.unlink()
    finding = doctor._device()
    assert (finding.state, finding.detail) == ("broken", "gfx950, no libamdhip64.so")


@pytest.mark.parametrize(
    "file", ["system/opt/rocm/bin/hipcc", "system/bin/hipcc", "site-packages/_rocm_sdk_core/bin/amdclang++"]
)
@pytest.mark.usefixtures("system")
def test_compilers_are_found_in_folder(tmp_path: Path, file: str) -> None:
    assert rocm.locate() is None
    program(tmp_path / file, HIPCC)
    assert rocm.locate() == str(tmp_path / file)
    assert toolchains.detect(cache=tmp_path / "cache").compiler == (str(tmp_path / file),)
    assert str(tmp_path / file) in doctor._rocm(tmp_path / "cache").detail


@pytest.mark.parametrize("bitcode", ["usr/lib/llvm-21/lib/clang/21", "usr/lib/clang/21", "usr/lib/x86_64-linux-gnu"])
def test_clang_of_distribution_needs_headers_and_libraries(system: Path, tmp_path: Path, bitcode: str) -> None:
    for version in (9, 20, 21):
        program(system / f"usr/bin/clang++-{version}", "echo 'Debian clang version 21.1.0'")
    assert rocm.locate() is None
    empty(system / "usr/include/hip/hip_runtime.h")
    assert rocm.locate() is None
    library = empty(system / bitcode / "amdgcn/bitcode/ockl.bc")
    toolchain = toolchains.detect(cache=tmp_path / "cache")
    # a shared folder of device libraries belongs to the newest clang
    assert (toolchain.name, toolchain.compiler) == ("rocm", (str(system / "usr/bin/clang++-21"),))
    assert toolchain.search == (f"--rocm-path={system / 'usr'}", f"--rocm-device-lib-path={library.parent}")
    assert not [word for word in (toolchain.identity, *toolchain.flags, *toolchain.link_flags) if str(system) in word]
