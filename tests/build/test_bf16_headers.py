"""CK's conversion to bf16 by the version of HIP and by the macros of ``-D``, as its real headers decide it.

CK's rule: the compiler's conversion from HIP 6.5.50421 on, before it CK's own, which truncates unless a macro chooses
another. Machine code shows it: gfx950 has an instruction that rounds to nearest, CK's own rounding adds a half,
and truncation has neither.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from ckpm.base.settings import cache_folder
from ckpm.kernels.code.bf16 import bf16_conversion
from ckpm.kernels.code.toolchains import Toolchain, compile_command, detect
from ckpm.kernels.library import command
from ckpm.kernels.upstream.tree import Tree
from ckpm_emulator.inspection.coverage import cover

NEAREST = "-DCK_TILE_FLOAT_TO_BFLOAT16_DEFAULT=3"
KERNEL = """#include "ck_tile/core.hpp"
__global__ void narrow(ck_tile::bf16_t* out, const float* in)
{
    out[threadIdx.x] = ck_tile::type_convert<ck_tile::bf16_t>(in[threadIdx.x]);
}
"""


@pytest.fixture(scope="module")
def toolchain() -> Toolchain:
    return detect("embedded", cache=cache_folder())


def compile_for(tree: Tree, toolchain: Toolchain, hip: str, flags: tuple[str, ...], folder: Path) -> list[str]:
    """The command that compiles the kernel for gfx950 with headers of a version of HIP before the toolchain's own."""
    (folder / "hip").mkdir()
    parts = zip(("MAJOR", "MINOR", "PATCH"), hip.split("."), strict=True)
    (folder / "hip/hip_version.h").write_text(
        "#pragma once\n" + "".join(f"#define HIP_VERSION_{name} {number}\n" for name, number in parts)
    )
    (folder / "narrow.hip").write_text(KERNEL)
    return compile_command(
        dataclasses.replace(toolchain, flags=(*toolchain.flags, *flags)),
        archs=["gfx950"],
        source=str(folder / "narrow.hip"),
        output=str(folder / "narrow.o"),
        includes=[str(folder), *map(str, tree.includes)],
        cuid="0123456789abcdef",
        prefix_map={},
        device_only=True,
    )


@pytest.mark.parametrize(
    ("upstream", "hip", "flags", "conversion"),
    [
        ("aiter", "6.4.43484", (), "truncate"),  # Debian's ROCm
        ("aiter", "6.5.50420", (), "truncate"),
        ("aiter", "6.5.50421", (), "compiler"),
        ("aiter", "7.0.0", (NEAREST,), "compiler"),
        ("aiter", "6.4.43484", ("-DCK_TILE_USE_LLVM_BUILTIN_BF16=1",), "compiler"),
        ("flash-attn", "7.1.0", (), "truncate"),
        ("flash-attn", "7.1.0", (NEAREST,), "standard_asm"),
    ],
)
def test_conversion_follows_hips_version_and_macros(
    trees: Mapping[str, Tree], toolchain: Toolchain, upstream: str, hip: str, flags: tuple[str, ...], conversion: str,
    tmp_path: Path,
) -> None:  # fmt: skip
    command_line = compile_for(trees[upstream], toolchain, hip, flags, tmp_path)
    assert bf16_conversion(command_line, toolchain.environment) == conversion


@pytest.mark.parametrize(
    ("hip", "flags", "conversion", "instructions"),
    [
        ("7.1.0", (), "compiler", {"v_cvt_pk_bf16_f32"}),
        ("6.4.43484", (), "truncate", set()),
        ("6.4.43484", (NEAREST,), "standard_asm", {"v_add3_u32", "v_bfe_u32"}),
    ],
)
def test_machine_code_converts_as_named(
    trees: Mapping[str, Tree], toolchain: Toolchain, hip: str, flags: tuple[str, ...], conversion: str,
    instructions: set[str], tmp_path: Path,
) -> None:  # fmt: skip
    compiled = compile_for(trees["aiter"], toolchain, hip, flags, tmp_path)
    assert bf16_conversion(compiled, toolchain.environment) == conversion
    subprocess.run(compiled, env={**os.environ, **toolchain.environment}, check=True)
    names = {name for _, name in cover(tmp_path / "narrow.o").opcodes}
    assert names & {"v_cvt_pk_bf16_f32", "v_add3_u32", "v_bfe_u32"} == instructions


def test_macro_of_option_is_among_flags_of_build() -> None:
    parser = argparse.ArgumentParser()
    command.add_options(parser)
    options = parser.parse_args(["--toolchain", "embedded", NEAREST])
    assert command.read_options(options).request.toolchain.flags[-1] == NEAREST
