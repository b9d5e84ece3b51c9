"""Our own batch prefill: archs that lack its instructions, and kernels of each upstream that has it, are parsed."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from ckpm.base.paths import PROJECT
from ckpm.base.settings import cache_folder
from ckpm.kernels.code.toolchains import compile_command, detect
from ckpm.kernels.families.render import plan_units, render
from ckpm.kernels.library.request import features_for
from ckpm.kernels.upstream.tree import Tree
from ckpm.matrix.dialects import dialect
from ckpm.matrix.selection import Selection, select

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
    run = parse(source, arch, trees["ckpm"])
    assert (run.returncode == 0, _SAID in run.stderr) == (fits, not fits), run.stderr[-2000:]


@pytest.mark.parametrize("upstream", ["ckpm", "ckpm-v3", "ckpm-extended", "ckpm-serving"])
def test_a_kernel_of_v2_is_parsed(trees: Mapping[str, Tree], tmp_path: Path, upstream: str) -> None:
    tree = trees[upstream]
    smoke = select(dialect(tree.dialect), Selection(archs=("gfx950",), tier="smoke"))
    keys = [next(key for key in smoke if key.pipeline == "qr_async")]
    (source,) = render(keys, plan_units(keys), tree.dialect, features_for(tree), tmp_path)["units"]
    run = parse(source, "gfx950", tree)
    assert run.returncode == 0, run.stderr[-2000:]


def parse(source: Path, arch: str, tree: Tree) -> subprocess.CompletedProcess[str]:
    """Parse a source for an arch, as a build would compile it."""
    toolchain = detect("embedded", cache=cache_folder())
    command = compile_command(
        toolchain,
        archs=[arch],
        source=str(source),
        output=str(source.with_suffix(".o")),
        includes=[*map(str, tree.includes), str(PROJECT / "kernels/include")],
        cuid="0" * 16,
        prefix_map={},
        extra=("-fsyntax-only", "-Wno-unused-command-line-argument"),
        device_only=True,
    )
    environment = {**os.environ, **toolchain.environment}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=600)
