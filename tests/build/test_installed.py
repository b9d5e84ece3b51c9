"""Both wheels of a release in new environments, far from the clone: a HIP program, and an attention call."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from ckpm import __version__
from ckpm_emulator.toolchain import ISA_LEVELS, SONAME
from programs.program_builder import sample

pytestmark = pytest.mark.nightly
ROOT = Path(__file__).parents[2]
GLIBC = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "ld-linux-x86-64.so.2"}
ATTENTION = """
import numpy as np
import ckpm
from ckpm import kernel_set
from ckpm.attention.jit.on_demand import on_demand
kernels = kernel_set(arch="gfx950", family="fwd", mode="batch", dtype="bf16", hdim_q=128, pad="psskddv", mask="no",
                     tile={"bm0": 128, "bn0": 128}, logits=False, bias="no", lse=False, dropout=False, skip=False)
over = ckpm.Dispatcher(ckpm.Registry(kernels), ckpm.choose("emulator", "gfx950"), compile=on_demand())
q, k, v = np.random.default_rng(0).uniform(-1, 1, (3, 1, 32, 2, 128))  # [batch, token, head, dim]
scores = np.exp(np.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(128))
expected = np.einsum("bhqk,bkhd->bqhd", scores / scores.sum(-1, keepdims=True), v)
print(np.abs(ckpm.fmha(q, k, v, dtype="bf16", dispatcher=over).o - expected).max())
"""


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The wheels of emulator and ckpm by the release's command."""
    folder = tmp_path_factory.mktemp("wheels")
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder)]
    tools = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": tools, "CXX": f"{sys.executable} -m ziglang c++"}
    command = [sys.executable, "-m", "pip", "wheel", *options, str(ROOT), str(ROOT / "emulator")]
    subprocess.run(command, env=environment, check=True)
    return {file.name.partition("-")[0]: file for file in folder.iterdir()}


def call(folder: Path, *command: str) -> str:
    """Run a program of the environment ``folder`` with a cache of its own; return its output."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment = {**variables, "CKPM_CACHE": str(folder / "cache"), "PATH": f"{folder / 'bin'}:/usr/bin:/bin"}
    done = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


def install(folder: Path, *wheels: Path) -> None:
    venv.create(folder, with_pip=True)
    call(folder, "bin/python", "-m", "pip", "install", "--quiet", *map(str, wheels))


def test_core_in_wheel_needs_glibc_of_tag_alone(wheels: dict[str, Path]) -> None:
    assert wheels["ckpm_emulator"].name.endswith("-py3-none-manylinux_2_28_x86_64.whl")
    with zipfile.ZipFile(wheels["ckpm_emulator"]) as archive:
        for level in ISA_LEVELS:
            elf = ELFFile(io.BytesIO(archive.read(f"ckpm_emulator/core/{level}/{SONAME}")))
            dynamic, needed = (elf.get_section_by_name(name) for name in (".dynamic", ".gnu.version_r"))
            assert {tag.needed for tag in dynamic.iter_tags("DT_NEEDED")} <= GLIBC
            for _, versions in needed.iter_versions():
                numbers = [version.name.removeprefix("GLIBC_").split(".") for version in versions]
                assert all([*map(int, number)] <= [2, 28] for number in numbers)


def test_installed_emulator_runs_hip_program(wheels: dict[str, Path], tmp_path: Path) -> None:
    install(tmp_path, wheels["ckpm_emulator"])
    program = str(sample("queries"))
    printed = call(tmp_path, "bin/python", "-m", "ckpm_emulator", "run", "--arch", "gfx950", "--", program)
    assert {"arch gfx950:sramecc+:xnack-", "warp 64"} < set(printed.splitlines())
    assert not list((tmp_path / "cache/emulator").glob("core-*"))  # compiled before


def test_installed_ckpm_computes_attention(wheels: dict[str, Path], tmp_path: Path) -> None:
    install(tmp_path, *wheels.values())
    assert call(tmp_path, "bin/ckpm", "--version") == f"ckpm {__version__}\n"
    error = float(call(tmp_path, "bin/python", "-c", ATTENTION))
    assert error < 2**-7  # bf16 has 8 bits
