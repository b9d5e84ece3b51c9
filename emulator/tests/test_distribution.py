"""A wheel that zig made is for every machine, another one for the machine that made it. Both run without ckpm."""

from __future__ import annotations

import hashlib
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


NO_CKPM = 'raise ImportError("the emulator stands alone")'
TESTS = ("tests/test_launches.py", "tests/test_exact_mfma.py")


def test_wheel_of_machines_compiler_passes_tests_without_ckpm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    core = toolchain.library()
    wheel = build_wheel("c++", tmp_path, monkeypatch)
    assert wheel.name == "ckpm_emulator-0.1.0-py3-none-linux_x86_64.whl"
    (library,) = libraries(wheel)
    assert library == f"ckpm_emulator/core/{toolchain.isa_level()}/{toolchain.SONAME}"
    python, packages = install(wheel, tmp_path)
    shutil.copy(core, packages / library)  # all sources would take minutes to compile
    for name in ("conformance", "programs", "tests"):
        shutil.copytree(PROJECT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("conftest.py", "pyproject.toml"):
        shutil.copy(PROJECT / name, tmp_path)
    (tmp_path / "ckpm.py").write_text(NO_CKPM)
    run = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    assert " tests collected in " in output_of([*run, "--collect-only"], tmp_path)
    assert " passed in " in output_of([*run, *TESTS], tmp_path)


def test_wheel_has_core_that_a_build_left_in_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CKPM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("CXX", "c++")
    use_small_core(tmp_path / "clone", monkeypatch)
    core = toolchain.library()
    core.chmod(0o644)
    core.write_text("of the cache")
    core.with_name(f"{core.name}.sha256").write_text(hashlib.sha256(b"of the cache").hexdigest())
    wheel = build_wheel("c++", tmp_path, monkeypatch)
    assert libraries(wheel) == {f"ckpm_emulator/core/{toolchain.isa_level()}/{toolchain.SONAME}": b"of the cache"}


@pytest.mark.nightly
def test_wheel_of_zig_is_for_every_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = build_wheel(f"{sys.executable} -m ziglang c++", tmp_path, monkeypatch)
    assert wheel.name == "ckpm_emulator-0.1.0-py3-none-manylinux_2_28_x86_64.whl"
    assert {*libraries(wheel)} == {f"ckpm_emulator/core/{level}/{toolchain.SONAME}" for level in toolchain.ISA_LEVELS}
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    files = ("cache.py", "lowering/isa.yaml")
    assert {f"ckpm_emulator/{file}" for file in files} < names
    assert {name.partition("/")[0] for name in names} == {"ckpm_emulator", "ckpm_emulator-0.1.0.dist-info"}
    python, packages = install(wheel, tmp_path)
    printed = output_of([str(python.with_name("ckpm-emulator")), "core"], tmp_path)
    assert printed == f"{packages / 'ckpm_emulator/core' / toolchain.isa_level() / toolchain.SONAME}\n"
