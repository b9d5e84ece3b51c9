"""One real kernel of the default upstream, compiled for gfx942 and gfx950 by the embedded toolchain into a library.

Expectations are the hardware's limits and numbers measured beforehand: the 64-row tile neither
spills nor uses scratch.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from ckpm.base.settings import cache_folder
from ckpm.base.warming import ZIG_CACHE
from ckpm.kernels.code import code_object as codeobject
from ckpm.kernels.code import precompiled
from ckpm.kernels.code.toolchains import detect
from ckpm.kernels.library.manifest import Manifest
from ckpm.kernels.library.plan import BuildPlan
from ckpm.kernels.library.request import LIBRARY
from ckpm.kernels.library.resources import show
from ckpm.kernels.library.run_step import run_command
from ckpm.reports.resources import read_manifest
from tests.build.real_kernel import NAME

LDS_LIMIT = {"gfx942": 64 * 1024, "gfx950": 160 * 1024}  # CDNA3 and CDNA4 ISA documents


@pytest.fixture(scope="module")
def manifest(built: Path) -> Manifest:
    return read_manifest(built / "manifest.json")


@pytest.mark.parametrize("arch", LDS_LIMIT)
def test_resources_of_machine_code_are_in_limits(built: Path, manifest: Manifest, arch: str) -> None:
    images = codeobject.bundles(built / LIBRARY)[arch]
    kernels = [kernel for image in images for kernel in codeobject.kernels(image)]
    assert len(kernels) == 1  # one kernel symbol
    kernel = kernels[0]
    assert kernel.symbol.startswith("_ZN7ck_tile6kentry")
    assert 0 < kernel.lds_bytes <= LDS_LIMIT[arch]
    assert (kernel.scratch_bytes, kernel.vgpr_spills) == (0, 0)
    assert 128 < kernel.vgpr <= 256
    assert kernel.max_workgroup == 256  # 4 waves of 64 lanes
    assert kernel.wavefront == 64
    assert kernel.occupancy_waves >= 1
    assert kernel.text_bytes > 4096
    assert manifest.kernels[NAME].archs[arch] == kernel


@pytest.mark.nightly
def test_object_has_same_bytes_without_precompiled_headers(built: Path, tmp_path: Path) -> None:
    plan = BuildPlan.read(built / "plan.json")
    (unit,) = [step for step in plan.steps if step.kind == "unit"]
    argv = [*unit.argv[:-1], str(tmp_path / "unit.o")]
    argv[argv.index("-c") + 1] = str(built / "src" / Path(unit.sources[0]).name)
    commands, objects = [], []

    def run(argv: Sequence[str], environment: Mapping[str, str]) -> tuple[int, str]:
        commands.append(argv)
        return run_command(argv, environment)

    for environment in (plan.environment, {**plan.environment, ZIG_CACHE: ""}):
        assert precompiled.run_unit(argv, {**os.environ, **environment}, run, unit.headers)[0] == 0
        objects.append((tmp_path / "unit.o").read_bytes())
    assert ["-include-pch" in command for command in commands][-2:] == [True, False]
    folder = Path(commands[-2][commands[-2].index("-include-pch") + 2])
    assert [file.stat().st_size > 10_000_000 for file in folder.glob("*.pch")] == 3 * [
        True
    ]  # host, two archs: all of CK
    assert objects[0] == objects[1]


def test_two_archs_have_their_own_code(manifest: Manifest) -> None:
    archs = manifest.kernels[NAME].archs
    assert archs["gfx942"].text_sha256 != archs["gfx950"].text_sha256


def test_manifest_lists_artifacts_and_holds_no_path(built: Path, manifest: Manifest) -> None:
    assert manifest.archs == ("gfx942", "gfx950")
    assert len(manifest.kernels) == 1
    assert manifest.upstream_identity.startswith("amd-aiter 0.1.7.post2.dev18 sha256:fe139d74")
    assert "ziglang 0.17.0 clang 22.1.8" in manifest.identity
    assert "-O3" in manifest.flags
    for name, digest in manifest.artifacts.items():
        checked = subprocess.run(["sha256sum", built / name], capture_output=True, text=True, check=True)
        assert checked.stdout.split()[0] == digest
    assert f'"{str(built.parent.parent.parent)[:5]}' not in (built / "manifest.json").read_text()


def dynamic_symbols(library: Path, *, defined: bool) -> set[str]:
    with library.open("rb") as stream:
        symbols = list(ELFFile(stream).get_section_by_name(".dynsym").iter_symbols())
    visible = [s for s in symbols if s["st_info"]["bind"] != "STB_LOCAL"]
    return {s.name for s in visible if (s["st_shndx"] != "SHN_UNDEF") == defined}


def test_library_loads_and_lists_its_kernel(built: Path, tmp_path: Path) -> None:
    source, runtime = tmp_path / "hip.c", tmp_path / "libhip.so"
    # a HIP runtime of empty functions is enough to load a library and ask it what it holds
    wanted = [name for name in dynamic_symbols(built / LIBRARY, defined=False) if "hip" in name]
    assert {"hipLaunchKernel", "__hipRegisterFatBinary", "hipGetDevicePropertiesR0600"} <= set(wanted)
    source.write_text(
        "static void *image;\n" + "".join(f"void *{name}(void) {{ return &image; }}\n" for name in wanted)
    )
    toolchain = detect("embedded", cache=cache_folder())
    compiler = [toolchain.compiler[0], "cc", "-shared", "-fPIC", "-o", str(runtime), str(source)]
    subprocess.run(compiler, env={**dict(toolchain.environment), "PATH": "/usr/bin"}, check=True, capture_output=True)
    code = (
        "import ctypes, sys\n"
        "ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)\n"
        "library = ctypes.CDLL(sys.argv[2])\n"
        "library.ckpm_kernel_name.restype = ctypes.c_char_p\n"
        "library.ckpm_dialect.restype = ctypes.c_char_p\n"
        "print(library.ckpm_kernel_count(), library.ckpm_kernel_name(0).decode(), library.ckpm_kernel_name(1))\n"
        "print(library.ckpm_abi_version(), library.ckpm_dialect().decode())\n"
        "message = ctypes.create_string_buffer(200)\n"
        "print(library.ckpm_launch(None, None, None, message, 200), message.value.decode())\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, str(runtime), str(built / LIBRARY)], capture_output=True, text=True, check=True
    )
    assert run.stdout.splitlines() == [f"1 {NAME} None", "2 ck-2025-11", "2 no problem given"]


def test_library_without_hip_runtime_names_symbol(built: Path) -> None:
    """Use another process: a test may have loaded a runtime into this process."""
    code = "import ctypes, sys; ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_LOCAL | 0x2)"  # RTLD_NOW
    command = [sys.executable, "-c", code, str(built / LIBRARY)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert re.search(r"OSError: .*undefined symbol: (__)?hip", done.stderr), done.stderr


def test_only_c_abi_is_exported(built: Path) -> None:
    assert dynamic_symbols(built / LIBRARY, defined=True) == {
        "ckpm_abi_version",
        "ckpm_problem_bytes",
        "ckpm_dialect",
        "ckpm_kernel_count",
        "ckpm_kernel_name",
        "ckpm_launch",
        "ckpm_selected_kernel",
    }


def test_table_shows_kernel_against_its_budget(manifest: Manifest, capsys: pytest.CaptureFixture[str]) -> None:
    show(manifest)
    row = next(line for line in capsys.readouterr().out.splitlines() if "d128_bf16_group_b64x128_qr_async" in line)
    vgpr = manifest.kernels[NAME].archs["gfx942"].vgpr
    assert f" {vgpr} " in row
    assert "SPILLS" not in row
