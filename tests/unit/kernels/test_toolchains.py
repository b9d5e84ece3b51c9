"""Toolchains are found where they are, keep machine paths out of signatures, and the embedded one builds real code."""

from __future__ import annotations

import dataclasses
import errno
import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from ckpm.base import rocm_places
from ckpm.base.errors import DiskFullError, SetupError, UsageError
from ckpm.kernels.code import toolchains
from ckpm.kernels.code.toolchains import Toolchain, embedded

_ROCM_VARIABLES = ("ROCM_PATH", "HIP_PATH")
# hip_runtime_api.h and not hip_runtime.h: that one parses libc++ for seconds, as every test in tests/build does
_KERNEL = """
#include <hip/hip_runtime_api.h>
#include <stdint.h>
__global__ void add(float* out, const float* in, uint32_t n)
{
    const char* path = __FILE__;
    const uint32_t i = __builtin_amdgcn_workitem_id_x();
    if(i < n)
        out[i] += in[i] + path[0];
}
const char* host_path() { return __FILE__; }
"""
_HIPCC = """#!/bin/sh
echo 'HIP version: 7.1.25424-4179531dcd'
echo 'AMD clang version 20.0.0git (https://example.invalid/llvm-project roc-7.1.0 25425)'
echo 'InstalledDir: /somewhere/private/llvm/bin'
"""


@pytest.fixture
def no_rocm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without ROCm, whatever this one has; returns an empty folder in which to put one."""
    for name in _ROCM_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(rocm_places, "SYSTEM", tmp_path / "absent")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr(shutil, "which", lambda name: None)
    root = tmp_path / "fake rocm"
    (root / "bin").mkdir(parents=True)
    return root


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache with spaces")


@pytest.fixture(scope="module")
def built(cache: Path) -> tuple[Toolchain, Path]:
    return toolchains.detect("embedded", cache=cache), cache


def _program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def _compile(tc: Toolchain, folder: Path) -> bytes:
    """Write the kernel into ``folder``, compile it, and return the object's bytes."""
    folder.mkdir()
    (folder / "add.hip").write_text(_KERNEL)
    command = toolchains.compile_command(
        tc,
        archs=["gfx950"],
        source=str(folder / "add.hip"),
        output=str(folder / "add.o"),
        includes=[],
        cuid="0123456789abcdef",
        prefix_map={str(folder): "unit"},
    )
    run = subprocess.run(command, env={**os.environ, **tc.environment}, capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (0, "")
    return (folder / "add.o").read_bytes()


def test_unknown_choice(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        toolchains.detect("gcc", cache=tmp_path)
    assert str(caught.value) == "unknown toolchain 'gcc'. Known: embedded, rocm."
    with pytest.raises(UsageError, match=r"Known: embedded, rocm\. 'auto' is gone: .*--rocm"):
        toolchains.detect("auto", cache=tmp_path)


@pytest.mark.parametrize("variable", _ROCM_VARIABLES)
def test_rocm_is_taken_from_variable(
    no_rocm: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    _program(no_rocm / "bin" / "hipcc", _HIPCC)
    monkeypatch.setenv(variable, str(no_rocm))
    tc = toolchains.detect("rocm", cache=cache)
    assert tc.identity == "rocm hipcc HIP 7.1.25424-4179531dcd clang 20.0.0git roc-7.1.0"
    assert tc.compiler == (str(no_rocm / "bin" / "hipcc"),)


def test_amdclang_gets_flags_hipcc_adds(no_rocm: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _program(no_rocm / "bin" / "amdclang++", _HIPCC)
    monkeypatch.setenv("ROCM_PATH", str(no_rocm))
    assert "-amdgpu-early-inline-all=true" in toolchains.detect("rocm", cache=cache).flags


def test_rocm_variables_cannot_slip_flags_in(no_rocm: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _program(no_rocm / "bin" / "hipcc", _HIPCC)
    monkeypatch.setenv("ROCM_PATH", str(no_rocm))
    monkeypatch.setenv("HIPCC_COMPILE_FLAGS_APPEND", "-O0")
    tc = toolchains.detect("rocm", cache=cache)
    assert {**os.environ, **tc.environment}["HIPCC_COMPILE_FLAGS_APPEND"] == ""


def test_rocm_missing(no_rocm: Path, cache: Path) -> None:
    with pytest.raises(SetupError, match="install ROCm or set ROCM_PATH, or leave out --rocm"):
        toolchains.detect("rocm", cache=cache)


def test_rocm_broken(no_rocm: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _program(no_rocm / "bin" / "hipcc", "#!/bin/sh\necho no device libraries >&2\nexit 3\n")
    monkeypatch.setenv("ROCM_PATH", str(no_rocm))
    with pytest.raises(SetupError, match="ended with 3 and said 'no device libraries'"):
        toolchains.detect("rocm", cache=cache)


def test_ziglang_missing(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SetupError, match="pip install ziglang=="):
        toolchains.detect("embedded", cache=cache)


def test_cache_without_room_for_launchers_is_left_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, text: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(DiskFullError, match=r"launchers: no space left on the disk\. Free some, or set CKPM_CACHE to "):
        toolchains.detect("embedded", cache=tmp_path)
    assert list((tmp_path / "launchers").iterdir()) == []


def test_signature_fields_hold_no_machine_paths(built: tuple[Toolchain, Path]) -> None:
    tc, cache = built
    fields = [tc.identity, *tc.flags, *tc.link_flags, *toolchains.describe(tc).values()]
    assert not [field for field in fields if "/" in field or str(cache) in field]


def test_launchers_are_made_once(built: tuple[Toolchain, Path]) -> None:
    _, cache = built
    before = sorted((path, path.stat().st_mtime_ns) for path in cache.rglob("launchers/*/*"))
    toolchains.detect("embedded", cache=cache)
    after = sorted((path, path.stat().st_mtime_ns) for path in cache.rglob("launchers/*/*"))
    assert [path.name for path, _ in before] == ["clang-offload-bundler", "lld"]
    assert before == after


def test_folder_and_machine_headers_take_no_part(
    built: tuple[Toolchain, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tc, _ = built
    plain = _compile(tc, tmp_path / "one")
    (tmp_path / "trap").mkdir()
    (tmp_path / "trap" / "stdint.h").write_text("#error a header of the machine was included\n")
    for variable in ("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH"):
        monkeypatch.setenv(variable, str(tmp_path / "trap"))
    assert _compile(tc, tmp_path / "another one") == plain


def test_identity_has_header_that_hides_one_of_the_compiler(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Our HIP headers are searched first, whatever a header's name ends with."""
    headers = tmp_path / "hip"
    shutil.copytree(embedded._HEADERS, headers)
    monkeypatch.setattr(embedded, "_HEADERS", headers)
    before = toolchains.detect("embedded", cache=cache).identity
    (headers / "vector").write_text("// another\n")
    assert toolchains.detect("embedded", cache=cache).identity != before


def test_link_command(built: tuple[Toolchain, Path]) -> None:
    tc = dataclasses.replace(built[0], linker=("ld",), link_flags=("-shared",))
    command = toolchains.link_command(
        tc, objects=["@list"], output="libx.so", version_script="x.map", soname="libx.so.1"
    )
    assert command == [
        *("ld", "-shared", "-Wl,--version-script=x.map", "-Wl,-soname,libx.so.1"),
        *("-o", "libx.so", "@list"),
    ]


def test_response_text_quotes() -> None:
    assert toolchains.response_text(["a b.o", 'c"d.o', "e\\f.o"]) == '"a b.o"\n"c\\"d.o"\n"e\\\\f.o"\n'
