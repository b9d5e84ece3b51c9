"""Our own batch prefill on archs that lack its instructions: the compiler reports it before the assembler can."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from ckpm.base.settings import cache_folder
from ckpm.kernels.code.toolchains import compile_command, detect
from ckpm.kernels.upstream.tree import Tree

_SOURCE = """
#include "ckpm_prefill/paged_cache.hpp"
template struct ckpm::prefill::CacheReader<ckpm::prefill::LoadPath::ADDRESS_64, 1>;
"""
_SAID = "ckpm's batch prefill needs the buffer descriptors and the bf16 MFMA of gfx90a, gfx942 or gfx950"


@pytest.mark.parametrize(("arch", "fits"), [("gfx908", False), ("gfx1100", False), ("gfx942", True)])
def test_arch_without_instructions_is_named_by_static_assert(
    trees: Mapping[str, Tree], tmp_path: Path, arch: str, fits: bool
) -> None:
    source = tmp_path / "reader.hip"
    source.write_text(_SOURCE)
    toolchain = detect("embedded", cache=cache_folder())
    command = compile_command(
        toolchain,
        archs=[arch],
        source=str(source),
        output=str(tmp_path / "reader.o"),
        includes=[str(folder) for folder in trees["ckpm"].includes],
        cuid="0" * 16,
        prefix_map={},
        extra=("-fsyntax-only", "-Wno-unused-command-line-argument"),
        device_only=True,
    )
    environment = {**os.environ, **toolchain.environment}
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=600)
    assert (run.returncode == 0, _SAID in run.stderr) == (fits, not fits), run.stderr[-2000:]
