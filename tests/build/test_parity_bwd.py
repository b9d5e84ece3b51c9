"""The backward families of the default upstream: our instances bind what its codegen binds, in its dispatch order, for
the same machine code."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from ckpm.kernels.upstream.trees import Tree
from ckpm.matrix.dialects import dialect
from ckpm.matrix.enumeration import enumerate_keys
from ckpm.matrix.keys import Key
from tests.build.test_parity_fwd import TREE, cases, change_tree, same_code


@pytest.mark.parametrize(
    ("receipt", "mask", "arch", "counts"),
    [
        (4, "simplified", "gfx950", (1176, 1560)),
        (801, "simplified", "gfx942", (22, 12)),
        (800, "generic", "gfx1201", None),  # no kernels in fp32
    ],
)
def test_instances_and_dispatch_agree(
    trees: Mapping[str, Tree], receipt: int, mask: str, arch: str, counts: tuple[int, int] | None
) -> None:
    found = cases(trees[TREE], arch, api="bwd", receipt=receipt, mask=mask)
    assert [(case.name, case.text) for case in found if case.outcome != "passed"] == []
    assert len(found) == (counts is not None)
    if counts is not None:
        assert f"the same: bindings of {counts[0]} instances" in found[0].text
        assert f"the same: order and conditions of {counts[1]} dispatch branches" in found[0].text


@pytest.mark.parametrize(
    ("old", "new", "where", "named"),
    [
        ("{F_occupancy}>;\n\nusing fmha_bwd_dot", "3>;\n\nusing fmha_bwd_dot", "bindings", "kernel: upstream"),
        ("({F_dvpad} > 0)>>;", "({F_dvpad} > 1)>>;", "bindings", "kernel: upstream"),
        ("ck_tile::min({F_wk0}, {F_bk4})", "ck_tile::max({F_wk0}, {F_bk4})", "bindings", "kernel: upstream"),
        ("BlockSize = */ 256", "BlockSize = */ 128", "bindings", "_convert_dq_"),
        ("make_kernel<kBlockPerCu, {F_arch.tag}>", "make_kernel<kBlockPerCu>", "bindings", "launch: upstream"),
        ("blocks, 0, kargs)(", "blocks, 64, kargs)(", "bindings", "call: upstream"),
        ('f"a.hdim_q % {self.dpad} == 0"', 'f"a.hdim_q % 4 == 0"', "dispatch", "only ours requires a.hdim_q % 8 == 0"),
        ("{F_spad1d}, ({F_dvpad} > 0)>", "true, ({F_dvpad} > 0)>", "dispatch", "kernels: "),
        ("sorted(pool_by_hdim,", "pool_by_hdim[::-1] or sorted(pool_by_hdim,", "dispatch", "another order"),
        ("(t.is_deterministic == {F_deterministic})", "(t.is_deterministic)", "dispatch", "only upstream requires"),
        ("conditional_t<{F_convert_dq_enabled}", "conditional_t<false", "dispatch", "branches of upstream are missing"),
    ],
)
def test_changed_upstream_is_noticed(
    trees: Mapping[str, Tree], tmp_path: Path, old: str, new: str, where: str, named: str
) -> None:
    tree = change_tree(trees[TREE], tmp_path, "fmha_bwd.py", old, new)
    (case,) = cases(tree, "gfx942", api="bwd", receipt=801)
    assert case.outcome == "failed"
    assert f"{where} differ:" in case.text
    assert named in case.text


def plain(tree: Tree, family: str) -> list[Key]:
    """bf16 with head dim 64 in batch mode, without features."""
    found = enumerate_keys(dialect(tree.dialect).family(family), arch="gfx950", receipt=2)
    alike = [key for key in found if (key.dtype, key.hdim_q, key.mode) == ("bf16", 64, "batch")]
    return [key for key in alike if key.bias in ("", "no") and key.mask in ("", "mask") and not key.dropout]


@pytest.mark.nightly
def test_machine_code_of_bwd_agrees(trees: Mapping[str, Tree], tmp_path: Path) -> None:
    tree = trees[TREE]
    first = next(key for key in plain(tree, "bwd_dot_do_o") if key.pad == "psdv")
    main = next(key for key in plain(tree, "bwd_dq_dk_dv") if key.trload and key.pad == "pd8dv8")
    last = next(key for key in plain(tree, "bwd_convert_dq") if key.deterministic and key.pad == "psd")
    sizes = same_code(tree, "bwd", [first, main, last], tmp_path)
    assert sizes[1] > 8000
    assert min(sizes) > 1000
