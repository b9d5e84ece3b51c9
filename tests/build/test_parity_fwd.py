"""fwd, its paged form, split-KV and append-KV of the default upstream: our instances bind what its codegen binds, in
its dispatch order, for the same machine code."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ckpm.base import jobs, settings
from ckpm.base.results import Case
from ckpm.kernels.code.toolchains import detect
from ckpm.kernels.families.libraries import host
from ckpm.kernels.parity import cases as parity
from ckpm.kernels.parity import machine_code
from ckpm.kernels.upstream import codegen_runner
from ckpm.kernels.upstream.trees import FMHA, Tree
from ckpm.matrix.dialects import dialect
from ckpm.matrix.enumeration import enumerate_keys
from ckpm.matrix.keys import Key

TREE = "aiter"


def cases(tree: Tree, *archs: str, api: str = "fwd", receipt: int = 2, mask: str = "simplified") -> list[Case]:
    return list(parity.text_cases(tree, api, archs, (receipt,), (mask,)))


def change_tree(tree: Tree, folder: Path, name: str, old: str, new: str) -> Tree:
    """A copy of a tree's codegen with one word of a file's replaced throughout."""
    shutil.copytree(tree.fmha, folder / FMHA)
    file = folder / FMHA / "codegen/ops" / name
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))
    return dataclasses.replace(tree, root=folder)


@pytest.mark.parametrize(
    ("api", "receipt", "mask"),
    [
        ("fwd", 2, "simplified"),
        ("fwd", 4, "generic"),
        ("fwd", 888, "simplified"),
        ("pagedkv_prefill", 0, "simplified"),
        ("pagedkv_prefill", 0, "generic"),
    ],
)
def test_instances_and_dispatch_agree(trees: Mapping[str, Tree], api: str, receipt: int, mask: str) -> None:
    found = cases(trees[TREE], "gfx950", "gfx1201", api=api, receipt=receipt, mask=mask)
    assert [(case.name, case.text) for case in found if case.outcome != "passed"] == []
    assert len(found) == 2
    assert all("the same: bindings of " in case.text and " dispatch branches" in case.text for case in found)


@pytest.mark.parametrize(("receipt", "mask"), [(0, "simplified"), (200, "generic")])
def test_split_kv_agrees(trees: Mapping[str, Tree], receipt: int, mask: str) -> None:
    found = cases(trees[TREE], "gfx950", "gfx1201", api="fwd_splitkv", receipt=receipt, mask=mask)
    assert [(case.name, case.text) for case in found if case.outcome != "passed"] == []
    assert len(found) == 2
    assert all("the same: bindings of " in case.text and " dispatch branches" in case.text for case in found)


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("if (t.has_lse) {{", "if (!t.has_lse) {{", "combine kernel"),
        ("FmhaFwdFp8>)", "FmhaFwdBf16>)", "combine kernel"),
        ("a.block_table_ptr != nullptr", "a.block_table_ptr == nullptr", "kernel: 32 branches of upstream are missing"),
        (
            "true, {F_squant}, {F_spad}",
            "false, {F_squant}, {F_spad}",
            "combine kernel: 1 branches of upstream are missing",
        ),
    ],
)
def test_changed_split_kv_is_noticed(trees: Mapping[str, Tree], tmp_path: Path, old: str, new: str, named: str) -> None:
    tree = change_tree(trees[TREE], tmp_path, "fmha_fwd_splitkv.py", old, new)
    (case,) = cases(tree, "gfx950", api="fwd_splitkv", receipt=200)
    assert case.outcome == "failed"
    assert "dispatch differ:" in case.text
    assert named in case.text


@pytest.mark.parametrize("receipt", [0, 2])
def test_append_kv_agrees(trees: Mapping[str, Tree], receipt: int) -> None:
    found = cases(trees[TREE], "gfx942", "gfx950", "gfx1201", api="fwd_appendkv", receipt=receipt)
    assert [(case.name, case.text) for case in found if case.outcome != "passed"] == []
    branches = 99 if receipt == 0 else 96
    assert len(found) == 3
    for case in found:
        assert f"the same: bindings of {branches} instances" in case.text
        assert f"the same: order and conditions of {branches} dispatch branches" in case.text


@pytest.mark.parametrize(
    ("old", "new", "where", "named"),
    [
        ("{F_dvpad},\n ", "true,\n ", "bindings", "kernel: upstream"),
        ("    {F_vlayout},\n", "    false,\n", "bindings", "kernel: upstream"),
        ('"a.seqlen_q % {self.bs} == 0"', '"a.seqlen_q % {self.bs} < 9"', "dispatch", "upstream requires a.seqlen_q"),
        ('"a.hdim_v % {self.bdv} == 0"', '"true"', "dispatch", "only ours requires a.hdim_v"),
        ("a.block_table_ptr != nullptr", "a.block_table_ptr == nullptr", "dispatch", "ours requires (a.block_table"),
        ('["row"], ["t", "f"]', '["row"], ["f", "t"]', "dispatch", "kernel: another order in "),
    ],
)  # fmt: skip
def test_changed_append_kv_is_noticed(
    trees: Mapping[str, Tree], tmp_path: Path, old: str, new: str, where: str, named: str
) -> None:
    (case,) = cases(change_tree(trees[TREE], tmp_path, "fmha_fwd_appendkv.py", old, new), "gfx950", api="fwd_appendkv")
    assert case.outcome == "failed"
    assert f"{where} differ:" in case.text
    assert named in case.text


@pytest.mark.parametrize(
    ("old", "new", "where", "named"),
    [
        ("{F_pagedkv},  //pagedkv", "false,", "bindings", "kernel: upstream"),
        ("{F_spad}, {F_dvpad}>>;", "true, true>>;", "bindings", "kernel: upstream"),
        ("{F_squant}, {F_spad}", "false, {F_spad}", "bindings", "dispatch_trait: upstream"),
        ("(t.use_pagedkv == {F_pagedkv})", "(t.use_pagedkv)", "dispatch", "only upstream requires"),
        ("a.seqlen_k_ptr == nullptr && ", "", "dispatch", "only ours requires a.seqlen_k_ptr"),
        ('f"a.hdim_v % {bk0submax} == 0"', '"true"', "dispatch", "only ours requires a.hdim_v % 128 == 0"),
    ],
)
def test_changed_paged_form_is_noticed(
    trees: Mapping[str, Tree], tmp_path: Path, old: str, new: str, where: str, named: str
) -> None:
    tree = change_tree(trees[TREE], tmp_path, "fmha_pagedkv_prefill.py", old, new)
    (case,) = cases(tree, "gfx950", api="pagedkv_prefill", receipt=0)
    assert case.outcome == "failed"
    assert f"{where} differ:" in case.text
    assert named in case.text


def test_upstream_without_our_c_words_has_no_such_cases(trees: Mapping[str, Tree]) -> None:
    other = trees["flash-attn"]
    assert other.dialect not in host("fwd").dialects()
    assert cases(other, "gfx950") == []


@pytest.mark.parametrize(
    ("old", "new", "where", "named"),
    [
        ("{F_occupancy},\n", "1,\n", "bindings", "kernel: upstream"),
        ("{F_vlayout}>;", "false>;", "bindings", "kernel: upstream"),
        ("make_kernel<kBlockPerCu, {F_arch.tag}>", "make_kernel<kBlockPerCu>", "bindings", "launch: upstream"),
        ('f"a.seqlen_q <= {self.bm0}"', 'f"a.seqlen_q < {self.bm0}"', "dispatch", "only upstream requires a.seqlen_q<"),
        ("a.seqlen_k % {self.bn0} == 0)", "a.seqlen_k % {self.bm0} == 0)", "dispatch", "only ours requires a.seqlen_k"),
        ("{F_if}({F_arch.device_name_check})", "{F_if}(true)", "dispatch", "device"),
    ],
)  # fmt: skip
def test_changed_upstream_is_noticed(
    trees: Mapping[str, Tree], tmp_path: Path, old: str, new: str, where: str, named: str
) -> None:
    (case,) = cases(change_tree(trees[TREE], tmp_path, "fmha_fwd.py", old, new), "gfx950")
    assert case.outcome == "failed"
    assert f"{where} differ:" in case.text
    assert named in case.text


def same_code(tree: Tree, api: str, keys: list[Key], folder: Path) -> list[int]:
    """Compiles both texts of each kernel for gfx950 and compares; the lengths of the code."""
    cache = settings.cache_folder()
    rendered = codegen_runner.render(tree, "gfx950", api, 2, "simplified", folder)
    pairs = [(key, rendered.instances[key.name]) for key in keys]
    with ThreadPoolExecutor(jobs.processors()) as pool:
        started = machine_code.compare(pairs, tree, detect("auto", cache=cache), "gfx950", cache=cache, pool=pool)
    found = started()
    assert [(row.difference, row.error) for row in found] == [("", "")] * len(keys)
    return [row.code_bytes for row in found]


def bf16(tree: Tree, family: str, hdim: int = 128) -> list[Key]:
    found = enumerate_keys(dialect(tree.dialect).family(family), arch="gfx950", receipt=2)
    return [key for key in found if (key.dtype, key.hdim_q, key.mode) == ("bf16", hdim, "batch")]


@pytest.mark.nightly
def test_machine_code_of_fwd_agrees(trees: Mapping[str, Tree], tmp_path: Path) -> None:
    """One kernel of each of the pipelines that serve head dim 64 in bf16 without bias."""
    keys = [
        key
        for key in bf16(trees[TREE], "fwd", hdim=64)
        if (key.bias, key.mask) == ("no", "mask") and not (key.lse or key.dropout or key.logits)
    ]
    chosen = [next(key for key in keys if key.pipeline == name) for name in ("qr_async", "qr_async_trload")]
    assert min(same_code(trees[TREE], "fwd", chosen, tmp_path)) > 4000


@pytest.mark.nightly
def test_machine_code_of_pagedkv_agrees(trees: Mapping[str, Tree], tmp_path: Path) -> None:
    """ALiBi under a mask where keys are padded."""
    found = bf16(trees[TREE], "fwd_pagedkv")
    (chosen,) = [key for key in found if (key.pad, key.bias, key.mask) == ("pssk", "alibi", "mask")]
    assert min(same_code(trees[TREE], "pagedkv_prefill", [chosen], tmp_path)) > 4000


@pytest.mark.nightly
def test_machine_code_of_splitkv_agrees(trees: Mapping[str, Tree], tmp_path: Path) -> None:
    """Every variant of a key of both stages: code that upstream's text makes and ours doesn't would be noticed."""
    first = [key for key in bf16(trees[TREE], "fwd_splitkv") if (key.bias, key.mask) == ("no", "no")]
    one = next(key for key in first if key.pad == "pssk" and not (key.logits or key.paged_kv))
    two = next(key for key in bf16(trees[TREE], "fwd_splitkv_combine") if key.pad == "ps" and key.lse)
    sizes = same_code(trees[TREE], "fwd_splitkv", [one, two], tmp_path)
    assert sizes[0] > 4 * 4000  # four variants
    assert sizes[1] > 5 * 500


def test_machine_code_of_appendkv_agrees(trees: Mapping[str, Tree], tmp_path: Path) -> None:
    keys = [key for key in bf16(trees[TREE], "fwd_appendkv") if key.rope == "half" and key.paged_kv]
    assert [key.pad for key in keys] == ["pskd", "psskddv"]
    assert min(same_code(trees[TREE], "fwd_appendkv", keys[:1], tmp_path)) > 2000
