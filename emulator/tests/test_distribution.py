"""A wheel of ckpm-emulator that zig made is for every machine; another is for the machine that made it."""

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
from tests.emulator.test_core_build import use_small_core

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


def test_wheel_of_machines_compiler_is_for_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = build_wheel("c++", tmp_path, monkeypatch)
    assert wheel.name == "ckpm_emulator-0.1.0-py3-none-linux_x86_64.whl"
    assert [*libraries(wheel)] == [f"ckpm_emulator/core/{toolchain.isa_level()}/{toolchain.SONAME}"]


@pytest.mark.nightly
def test_wheel_of_zig_is_for_every_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = build_wheel(f"{sys.executable} -m ziglang c++", tmp_path, monkeypatch)
    assert wheel.name == "ckpm_emulator-0.1.0-py3-none-manylinux_2_28_x86_64.whl"
    assert {*libraries(wheel)} == {f"ckpm_emulator/core/{level}/{toolchain.SONAME}" for level in toolchain.ISA_LEVELS}
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {"ckpm_emulator/base/store.py", "ckpm_emulator/inspection/isa.yaml"} < names
    assert {name.partition("/")[0] for name in names} == {"ckpm_emulator", "ckpm_emulator-0.1.0.dist-info"}
    venv.create(tmp_path / "environment")
    python = tmp_path / "environment/bin/python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*pip, str(wheel)], check=True)
    (packages,) = tmp_path.glob("environment/lib/python*/site-packages")
    (packages / "borrowed.pth").write_text(sysconfig.get_path("purelib"))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    command = [str(python.with_name("ckpm-emulator")), "core"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True)
    assert done.stdout == f"{packages / 'ckpm_emulator/core' / toolchain.isa_level() / toolchain.SONAME}\n"
