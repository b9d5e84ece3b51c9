"""fwd of the default upstream: our instances bind what its codegen binds, in its dispatch order, to the same code."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kernels import codegen_runner, jobs, machine_code, parity, settings
from kernels.renderable import dialects
from kernels.results import Case
from kernels.toolchains import detect
from kernels.upstream import FMHA, Tree
from matrix.dialects import dialect
from matrix.enumeration import enumerate_keys

TREE = "aiter"


def cases(tree: Tree, *archs: str, receipt: int = 2, mask: str = "simplified") -> list[Case]:
    return list(parity.text_cases(tree, "fwd", archs, (receipt,), (mask,)))


@pytest.mark.parametrize(("receipt", "mask"), [(2, "simplified"), (4, "generic"), (888, "simplified")])
def test_instances_and_dispatch_agree(trees: Mapping[str, Tree], receipt: int, mask: str) -> None:
    found = cases(trees[TREE], "gfx950", "gfx942", "gfx1201", receipt=receipt, mask=mask)
    assert [(case.name, case.text) for case in found if case.outcome != "passed"] == []
    assert len(found) == 3
    assert all("the same: bindings of " in case.text and " dispatch branches" in case.text for case in found)


def test_an_upstream_without_our_c_words_has_no_such_cases(trees: Mapping[str, Tree]) -> None:
    other = trees["flash-attn"]
    assert other.dialect not in dialects("fwd")
    assert cases(other, "gfx950") == []


@pytest.mark.parametrize(
    ("old", "new", "where", "named"),
    [
        ("{F_occupancy},\n", "1,\n", "bindings", "kernel: upstream"),
        ("{F_vlayout}>;", "false>;", "bindings", "kernel: upstream"),
        ("make_kernel<kBlockPerCu, {F_arch.tag}>", "make_kernel<kBlockPerCu>", "bindings", "launch: upstream"),
        ('f"a.seqlen_q <= {self.bm0}"', 'f"a.seqlen_q < {self.bm0}"', "dispatch", "only upstream requires a.seqlen_q<"),
        ("a.seqlen_k % {self.bn0} == 0)", "a.seqlen_k % {self.bm0} == 0)", "dispatch", "only ours requires a.seqlen_k"),
        ("if({F_arch.device_name_check})", "if(true)", "dispatch", "device"),
    ],
)  # fmt: skip
def test_a_changed_upstream_is_noticed(
    trees: Mapping[str, Tree], tmp_path: Path, old: str, new: str, where: str, named: str
) -> None:
    shutil.copytree(trees[TREE].fmha, tmp_path / FMHA)
    file = tmp_path / FMHA / "codegen/ops/fmha_fwd.py"
    text = file.read_text()
    new_text = text.replace(old, new).replace("{F_if}" + old.removeprefix("if"), "{F_if}" + new.removeprefix("if"))
    assert new_text != text
    file.write_text(new_text)
    (case,) = cases(dataclasses.replace(trees[TREE], root=tmp_path), "gfx950")
    assert case.outcome == "failed"
    assert f"{where} differ:" in case.text
    assert named in case.text


def test_kernels_have_the_same_machine_code(trees: Mapping[str, Tree], tmp_path: Path) -> None:
    """One kernel of each of the pipelines that serve head dim 128 in bf16 without bias."""
    tree, cache = trees[TREE], settings.cache_folder()
    rendered = codegen_runner.render(tree, "gfx950", "fwd", 2, "simplified", tmp_path)
    keys = [
        key
        for key in enumerate_keys(dialect(tree.dialect).family("fwd"), arch="gfx950", receipt=2)
        if (key.dtype, key.hdim_q, key.mode, key.bias, key.mask) == ("bf16", 128, "batch", "no", "mask")
        and not (key.lse or key.dropout or key.logits)
    ]
    chosen = [next(key for key in keys if key.pipeline == name) for name in ("qr_async", "qr_async_trload")]
    pairs = [(key, rendered.instances[key.name]) for key in chosen]
    with ThreadPoolExecutor(jobs.processors()) as pool:
        started = machine_code.compare(pairs, tree, detect("auto", cache=cache), "gfx950", cache=cache, pool=pool)
    found = started()
    assert [(row.difference, row.error) for row in found] == [("", ""), ("", "")]
    assert min(row.code_bytes for row in found) > 4000
