"""fwd, its paged form, split-KV, append-KV and the backward pass of the default upstream.

Our instances bind what its codegen binds, in its dispatch order, for the same machine code.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from ckpm.kernels.families.libraries import host
from ckpm.kernels.upstream import codegen_runner
from ckpm.kernels.upstream.tree import Tree
from ckpm.matrix.dialects import dialect
from ckpm.matrix.enumeration import enumerate_keys
from ckpm.matrix.keys import Key
from tests.build.parity import TREE, cases, same_code


@pytest.mark.parametrize(
    ("api", "receipt", "mask", "archs", "counts"),
    [
        ("fwd", 2, "simplified", "gfx950 gfx1201", ("", "")),
        ("fwd", 4, "generic", "gfx950 gfx1201", ("", "")),
        ("fwd", 888, "simplified", "gfx950 gfx1201", ("", "")),
        ("pagedkv_prefill", 0, "simplified", "gfx950 gfx1201", ("", "")),
        ("pagedkv_prefill", 0, "generic", "gfx950 gfx1201", ("", "")),
        ("fwd_splitkv", 0, "simplified", "gfx950 gfx1201", ("", "")),
        ("fwd_splitkv", 200, "generic", "gfx950 gfx1201", ("", "")),
        ("fwd_appendkv", 0, "simplified", "gfx942 gfx950 gfx1201", ("99 instances", "99")),
        ("fwd_appendkv", 2, "simplified", "gfx942 gfx950 gfx1201", ("96 instances", "96")),
        ("bwd", 4, "simplified", "gfx950", ("1176 instances", "1560")),
        ("bwd", 801, "simplified", "gfx942", ("22 instances", "12")),
    ],
)
def test_instances_and_dispatch_agree(
    trees: Mapping[str, Tree], api: str, receipt: int, mask: str, archs: str, counts: tuple[str, str]
) -> None:
    compared = cases(trees[TREE], *archs.split(), api=api, receipt=receipt, mask=mask)
    assert [(case.name, case.text) for case in compared if case.outcome != "passed"] == []
    assert len(compared) == len(archs.split())
    bound, branches = f"the same: bindings of {counts[0]}", f"{counts[1]} dispatch branches"
    assert all(bound in case.text and branches in case.text for case in compared)


def test_upstream_without_kernels_or_templates_has_no_cases(trees: Mapping[str, Tree]) -> None:
    assert cases(trees[TREE], "gfx1201", api="bwd", receipt=800, mask="generic") == []  # no kernels in fp32
    other = trees["flash-attn"]
    assert not host("fwd").renders(other.dialect)
    assert cases(other, "gfx950") == []


def check_code(tree: Tree, api: str, keys: list[Key], folder: Path) -> list[int]:
    rendered = codegen_runner.render(tree, "gfx950", api, 2, "simplified", folder)
    return same_code(tree, "gfx950", [(key, rendered.instances[key.name]) for key in keys])


def bf16(tree: Tree, family: str, hdim: int = 128) -> list[Key]:
    keys = enumerate_keys(dialect(tree.dialect).family(family), arch="gfx950", receipt=2)
    return [key for key in keys if (key.dtype, key.hdim_q, key.mode) == ("bf16", hdim, "batch")]


@pytest.mark.nightly
def test_machine_code_of_fwd_agrees(trees: Mapping[str, Tree], tmp_path: Path) -> None:
    """One kernel of each of the pipelines that serve head dim 64 in bf16 without bias."""
    keys = [
        key
        for key in bf16(trees[TREE], "fwd", hdim=64)
        if (key.bias, key.mask) == ("no", "mask") and not (key.lse or key.dropout or key.logits)
    ]
    chosen = [next(key for key in keys if key.pipeline == name) for name in ("qr_async", "qr_async_trload")]
    assert min(check_code(trees[TREE], "fwd", chosen, tmp_path)) > 4000


@pytest.mark.nightly
def test_machine_code_of_pagedkv_agrees(trees: Mapping[str, Tree], tmp_path: Path) -> None:
    """ALiBi under a mask where keys are padded."""
    keys = bf16(trees[TREE], "fwd_pagedkv")
    (chosen,) = [key for key in keys if (key.pad, key.bias, key.mask) == ("pssk", "alibi", "mask")]
    assert min(check_code(trees[TREE], "pagedkv_prefill", [chosen], tmp_path)) > 4000


@pytest.mark.nightly
def test_machine_code_of_splitkv_agrees(trees: Mapping[str, Tree], tmp_path: Path) -> None:
    """Every variant of a key of both stages: code that upstream's text makes and ours doesn't would be noticed."""
    first = [key for key in bf16(trees[TREE], "fwd_splitkv") if (key.bias, key.mask) == ("no", "no")]
    split_key = next(key for key in first if key.pad == "pssk" and not (key.logits or key.paged_kv))
    combine_key = next(key for key in bf16(trees[TREE], "fwd_splitkv_combine") if key.pad == "ps" and key.lse)
    sizes = check_code(trees[TREE], "fwd_splitkv", [split_key, combine_key], tmp_path)
    assert sizes[0] > 4 * 4000  # four variants
    assert sizes[1] > 5 * 500


@pytest.mark.nightly
def test_machine_code_of_appendkv_agrees(trees: Mapping[str, Tree], tmp_path: Path) -> None:
    keys = [key for key in bf16(trees[TREE], "fwd_appendkv") if key.rope == "half" and key.paged_kv]
    assert [key.pad for key in keys] == ["pskd", "psskddv"]
    assert min(check_code(trees[TREE], "fwd_appendkv", keys[:1], tmp_path)) > 2000


def plain(tree: Tree, family: str) -> list[Key]:
    """bf16 with head dim 64 in batch mode, without features."""
    keys = bf16(tree, family, hdim=64)
    return [key for key in keys if key.bias in ("", "no") and key.mask in ("", "mask") and not key.dropout]


@pytest.mark.nightly
def test_machine_code_of_bwd_agrees(trees: Mapping[str, Tree], tmp_path: Path) -> None:
    tree = trees[TREE]
    first = next(key for key in plain(tree, "bwd_dot_do_o") if key.pad == "psdv")
    main = next(key for key in plain(tree, "bwd_dq_dk_dv") if key.trload and key.pad == "pd8dv8")
    last = next(key for key in plain(tree, "bwd_convert_dq") if key.deterministic and key.pad == "psd")
    sizes = check_code(tree, "bwd", [first, main, last], tmp_path)
    assert sizes[1] > 8000
    assert min(sizes) > 1000
