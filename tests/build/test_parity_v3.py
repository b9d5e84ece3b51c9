"""fwd_v3 of the default upstream: ours has its files' names, traits, dispatch and, for one kernel, its machine code."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from ckpm.kernels.parity import v3 as parity_v3
from ckpm.kernels.upstream.tree import FMHA, Tree
from ckpm.matrix.dialects import dialect
from ckpm.matrix.enumeration import enumerate_keys
from tests.build.parity import same_code

ARCH = "gfx950"
FILES = "instances/fmha_fwd_v3_d128_"


def change_tree(tree: Tree, folder: Path) -> Tree:
    """A copy of what of a tree is compared as text."""
    (folder / FMHA).mkdir(parents=True)
    shutil.copytree(tree.fmha / "instances", folder / FMHA / "instances")
    shutil.copy(tree.fmha / parity_v3.DISPATCH, folder / FMHA)
    return dataclasses.replace(tree, root=folder)


def test_names_traits_and_dispatch_agree(trees: Mapping[str, Tree]) -> None:
    case = parity_v3.texts_case(trees["aiter"], ARCH)
    assert case.outcome == "passed", case.text
    for note in ("4 names of files", "traits of 4 instances", "conditions of 4 dispatch branches"):
        assert note in case.text


@pytest.mark.parametrize(
    ("file", "old", "new", "named"),
    [
        (f"{FILES}bf16_mask.cpp", "false, true", "false, false", "upstream binds fmha_fwd_v3_kernel_traits<"),
        (f"{FILES}bf16_mask.cpp", "enum::bf16", "enum::fp16", "fmha_fwd_v3_d128_bf16_mask: upstream binds"),
        (parity_v3.DISPATCH, "args.mask_type ==", "args.mask_type !=", "dispatch differ"),
        (parity_v3.DISPATCH, "bf16, false, true", "bf16, true, true", "upstream's is missing: <fmha_fwd_v3_kernel_t"),
        (parity_v3.DISPATCH, "if(args.data_type ==", "if(args.batch > 1 && args.data_type ==", "a.batch>1"),
        (parity_v3.DISPATCH, "fmha_fwd_v3(const", "fmha_fwd_v4(const", "expected one function fmha_fwd_v3, found 0"),
    ],
)
def test_changed_upstream_is_noticed(
    trees: Mapping[str, Tree], tmp_path: Path, file: str, old: str, new: str, named: str
) -> None:
    tree = change_tree(trees["aiter"], tmp_path)
    text = (tree.fmha / file).read_text()
    assert old in text
    (tree.fmha / file).write_text(text.replace(old, new))
    case = parity_v3.texts_case(tree, ARCH)
    assert case.outcome in ("failed", "error")
    assert named in case.text


def test_renamed_and_missing_files_are_noticed(trees: Mapping[str, Tree], tmp_path: Path) -> None:
    tree = change_tree(trees["aiter"], tmp_path)
    (tree.fmha / f"{FILES}fp16_mask.cpp").rename(tree.fmha / "instances/fmha_fwd_v3_d192_fp16_mask.cpp")
    case = parity_v3.texts_case(tree, ARCH)
    assert case.outcome == "failed"
    assert "fmha_fwd_v3_d128_fp16_mask" in case.text
    assert "fmha_fwd_v3_d192_fp16_mask" in case.text
    (tree.fmha / parity_v3.DISPATCH).unlink()
    assert "upstream's file can't be read" in parity_v3.texts_case(tree, ARCH).text


@pytest.mark.nightly
def test_machine_code_of_v3_agrees(trees: Mapping[str, Tree]) -> None:
    tree = trees["aiter"]
    keys = enumerate_keys(dialect(tree.dialect).family("fwd_v3"), arch=ARCH)
    key = next(key for key in keys if key.name == "fmha_fwd_v3_d128_bf16_mask")
    assert min(same_code(tree, ARCH, [(key, parity_v3.instances(tree)[key.name])])) > 4000
