"""Comparisons of our texts and machine code with the codegen of an upstream, and copies of a codegen with a change."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Sequence
from pathlib import Path

from ckpm.base import jobs, settings
from ckpm.base.processes import ProcessPool
from ckpm.base.results import CaseResult
from ckpm.base.rocm_choice import default_toolchain
from ckpm.kernels.code.toolchains import detect
from ckpm.kernels.parity import cases as parity
from ckpm.kernels.parity import machine_code
from ckpm.kernels.upstream.tree import FMHA, Tree
from ckpm.matrix.keys import Key

TREE = "aiter"


def cases(tree: Tree, *archs: str, api: str = "fwd", receipt: int = 2, mask: str = "simplified") -> list[CaseResult]:
    return list(parity.text_cases(tree, api, archs, (receipt,), (mask,)))


def change_tree(tree: Tree, folder: Path, name: str, old: str, new: str) -> Tree:
    """A copy of a tree's codegen with a text replaced throughout a file."""
    shutil.copytree(tree.fmha, folder / FMHA)
    file = folder / FMHA / "codegen/ops" / name
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))
    return dataclasses.replace(tree, root=folder)


def same_code(tree: Tree, arch: str, pairs: Sequence[tuple[Key, str]]) -> list[int]:
    """Compile our text and upstream's of each kernel; the code is the same. Return its bytes."""
    cache = settings.cache_folder()
    toolchain = detect(default_toolchain(), cache=cache)
    with ProcessPool(jobs.processors()) as pool:
        started = machine_code.compare(pairs, tree, toolchain, arch, cache=cache, pool=pool)
    rows = started()
    assert [(row.difference, row.error) for row in rows] == [("", "")] * len(pairs)
    return [row.code_bytes for row in rows]
