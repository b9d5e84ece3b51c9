"""A wheel that zig made is for every machine, another one for the machine that made it. Both run without ckpm."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from ckpm_emulator import toolchain
from emulator_assembly import assemble
from test_core_build import use_small_core

PROJECT = toolchain.PROJECT


def build_wheel(compiler: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The wheel of a core with one source."""
    project = folder / "project"
    use_small_core(project, monkeypatch)
    for name in ("pyproject.toml", "build_backend.py", "README.md", "LICENSE"):
        shutil.copy(PROJECT / name, project)
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(PROJECT / "ckpm_emulator", project / "ckpm_emulator", ignore=ignored)
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
    tools = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # cmake and ninja
    environment = {**os.environ, "PATH": tools, "CXX": compiler}
    subprocess.run([*pip, "--wheel-dir", str(folder), str(project)], env=environment, check=True)
    (file,) = folder.glob("*.whl")
    return file


def libraries(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if name.endswith(toolchain.SONAME)}


def install(wheel: Path, folder: Path) -> tuple[Path, Path]:
    """Install a wheel in a new environment, with the dependencies of this one; return its Python and its packages."""
    venv.create(folder / "environment")
    python = folder / "environment/bin/python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*pip, str(wheel)], check=True)
    (packages,) = folder.glob("environment/lib/python*/site-packages")
    (packages / "borrowed.pth").write_text(sysconfig.get_path("purelib"))
    return python, packages


def output_of(command: list[str], folder: Path) -> str:
    """The output of a command that finds neither this clone nor this user's cache."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment["CKPM_CACHE"] = str(folder / "cache")
    return subprocess.run(command, cwd=folder, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout


COPY = """
s_load_dwordx4 s[4:7], s[0:1], 0x0
v_lshlrev_b32 v1, 2, v0
s_waitcnt lgkmcnt(0)
global_load_dword v2, v1, s[4:5]
s_waitcnt vmcnt(0)
global_store_dword v1, v2, s[6:7]
s_endpgm
"""
ALONE = """
import ctypes, sys
from pathlib import Path
sys.modules["ckpm"] = None  # its import fails, even if it is among the borrowed packages
import numpy as np
from ckpm_emulator.cli import main
from ckpm_emulator.device import EmulatedGpu
assert main(["coverage", sys.argv[1]]) == 0
device = EmulatedGpu("gfx942", poison=True)
values = np.arange(64, dtype=np.uint32)
buffers = device.upload(values), device.upload(np.zeros_like(values))
arguments = [ctypes.c_uint64(buffer.address) for buffer in buffers]
device.load_module(Path(sys.argv[1]).read_bytes()).launch("test_kernel", (1,), (64,), arguments)
device.synchronize()
assert (device.read(buffers[1], np.uint32) == values).all()
"""


def test_wheel_of_machines_compiler_runs_without_ckpm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    core = toolchain.library()
    wheel = build_wheel("c++", tmp_path, monkeypatch)
    assert wheel.name == "ckpm_emulator-0.1.0-py3-none-linux_x86_64.whl"
    (library,) = libraries(wheel)
    assert library == f"ckpm_emulator/core/{toolchain.isa_level()}/{toolchain.SONAME}"
    python, packages = install(wheel, tmp_path)
    shutil.copy(core, packages / library)  # all sources would take minutes to compile
    (tmp_path / "copy.hsaco").write_bytes(assemble(COPY))
    printed = output_of([str(python), "-c", ALONE, "copy.hsaco"], tmp_path)
    assert printed.endswith("opcodes, nothing missing\n")


@pytest.mark.nightly
def test_wheel_of_zig_is_for_every_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = build_wheel(f"{sys.executable} -m ziglang c++", tmp_path, monkeypatch)
    assert wheel.name == "ckpm_emulator-0.1.0-py3-none-manylinux_2_28_x86_64.whl"
    assert {*libraries(wheel)} == {f"ckpm_emulator/core/{level}/{toolchain.SONAME}" for level in toolchain.ISA_LEVELS}
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {"ckpm_emulator/cache.py", "ckpm_emulator/inspection/isa.yaml"} < names
    assert {name.partition("/")[0] for name in names} == {"ckpm_emulator", "ckpm_emulator-0.1.0.dist-info"}
    python, packages = install(wheel, tmp_path)
    printed = output_of([str(python.with_name("ckpm-emulator")), "core"], tmp_path)
    assert printed == f"{packages / 'ckpm_emulator/core' / toolchain.isa_level() / toolchain.SONAME}\n"
