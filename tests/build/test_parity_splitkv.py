"""Split-KV of the default upstream: a changed kernel, launch or condition of an instance is noticed and named."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from ckpm.kernels.upstream.trees import Tree
from tests.build.test_parity_fwd import TREE, cases, change_tree


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("kMergeNumHeadGroupsSeqLenQ,\n", "false,\n", ("_qr_vr_pssk", "launch 1 of 2: kernel: upstream")),
        ("{F_occupancy}>;", "1>;", ("_combine_", "launch 5 of 5: kernel: upstream")),
        ("{F_bn1},\n    fmha_trait>", "64,\n    fmha_trait>", ("_combine_", "launch 5 of 5: kernel: upstream")),
        ("a.num_splits <= 16)", "a.num_splits < 16)", ("_combine_", "launch 2 of 5: when: upstream")),
        ("a.nhead_k < a.nhead_q", "a.nhead_k <= a.nhead_q", ("_nbias_nmask_", "launch 1 of 2: when: upstream")),
        ("{F_hdim} == 128 &&", "{F_hdim} == 64 &&", ("upstream launches 1 kernels, ours 2",)),
        ("({F_mode} == false)", "({F_mode} == true)", ("upstream launches 3 kernels, ours 1",)),
        ("#if !defined(__HIP", "#if defined(__HIP", ("_combine_", "launch 5 of 5: guard: upstream")),
        ("make_kernel<kBlockPerCu, {F_arch.tag}>", "make_kernel<kBlockPerCu>", ("launch 1 of 5: launch: upstream",)),
        ("blocks, 0, kargs", "blocks, 64, kargs", ("launch 1 of 5: call: upstream",)),
    ],
)
def test_changed_launch_of_split_kv_is_noticed(
    trees: Mapping[str, Tree], tmp_path: Path, old: str, new: str, named: tuple[str, ...]
) -> None:
    tree = change_tree(trees[TREE], tmp_path, "fmha_fwd_splitkv.py", old, new)
    (case,) = cases(tree, "gfx950", api="fwd_splitkv", receipt=200)
    assert case.outcome == "failed"
    assert case.message.startswith("bindings: ")
    lines = case.text.splitlines()
    assert any(all(word in line for word in named) for line in lines), lines[:5]


def test_statement_that_is_not_followed_is_error(trees: Mapping[str, Tree], tmp_path: Path) -> None:
    tree = change_tree(
        trees[TREE], tmp_path, "fmha_fwd_splitkv.py", "using k_ = fmha_kernel;\n", "using k_ = fmha_kernel; warm(s);\n"
    )
    (case,) = cases(tree, "gfx950", api="fwd_splitkv", receipt=200)
    assert case.outcome == "error"
    assert "'warm(argument0)' is neither a declaration nor a known call nor a launch" in case.message
