"""The wheel of ckpm-emulator has a library for each instruction set, and its command finds the best."""

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


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The wheel of a core with one source."""
    project = tmp_path / "project"
    use_small_core(project, monkeypatch)
    for name in ("pyproject.toml", "build_backend.py", "README.md", "LICENSE"):
        shutil.copy(PROJECT / name, project)
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(PROJECT / "ckpm_emulator", project / "ckpm_emulator", ignore=ignored)
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
    monkeypatch.setenv("CMAKE_ARGS", "-DEMU_LEVELS='portable;avx2;avx512'")
    tools = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # cmake and ninja
    environment = {**os.environ, "PATH": tools}
    subprocess.run([*pip, "--wheel-dir", str(tmp_path), str(project)], env=environment, check=True, capture_output=True)
    (file,) = tmp_path.glob("*.whl")
    return file


def test_installed_command_finds_library_of_machine(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    libraries = {f"ckpm_emulator/core/{level}/{toolchain.SONAME}" for level in toolchain.ISA_LEVELS}
    assert libraries | {"ckpm_emulator/base/store.py", "ckpm_emulator/inspection/isa.yaml"} < names
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
