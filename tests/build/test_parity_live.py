"""The matrix and our text agree with the packaged upstreams' own codegen; a changed upstream is noticed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from ckpm.base.results import CaseResult
from ckpm.kernels.families import spellings
from ckpm.kernels.families.render import plan_units, unit_text
from ckpm.kernels.parity import cases as parity
from ckpm.kernels.parity import names as parity_names
from ckpm.kernels.parity.bindings import bindings
from ckpm.kernels.upstream import codegen_runner
from ckpm.kernels.upstream.tree import Tree
from ckpm.matrix.dialects import dialect, upstreams
from ckpm.matrix.enumeration import enumerate_keys
from ckpm.matrix.families import MASK_IMPLS
from tests.build.parity import change_tree, same_code

CODEGEN = "fmha_batch_prefill.py"
NAMES = tuple(name for name, package in upstreams().items() if package.has_codegen)


@pytest.mark.parametrize("name", NAMES)
def test_receipts_of_every_kind_agree(trees: Mapping[str, Tree], name: str) -> None:
    """A full, a partial and (in one of the trees) an empty receipt; ``nox -s parity`` does all receipts and archs."""
    compared = list(parity.live_cases(trees[name], ("gfx950", "gfx90a", "gfx1100"), (0, 100, 800), MASK_IMPLS))
    assert len(compared) == 3 * 3 * 2
    assert [(case.name, case.text) for case in compared if case.outcome != "passed"] == []
    assert {
        parity_names.ARCH_IGNORED in case.text for case in compared if "gfx1100 batch_prefill receipt 0" in case.name
    } == {True}


@pytest.mark.parametrize("name", NAMES)
def test_tree_is_only_read(trees: Mapping[str, Tree], name: str, tmp_path: Path) -> None:
    before = {file: file.stat().st_mtime_ns for file in trees[name].fmha.rglob("*")}
    codegen_runner.render(trees[name], "gfx950", "batch_prefill", 200, "simplified", tmp_path)
    assert {file: file.stat().st_mtime_ns for file in trees[name].fmha.rglob("*")} == before


@pytest.mark.parametrize("name", NAMES)
def test_units_bind_as_upstream(trees: Mapping[str, Tree], name: str, tmp_path: Path) -> None:
    tree = trees[name]
    keys = enumerate_keys(dialect(tree.dialect).family("batch_prefill"), arch="gfx950", receipt=200)
    rendered = codegen_runner.render(tree, "gfx950", "batch_prefill", 200, "simplified", tmp_path)
    for unit in plan_units(keys):
        own_bindings = bindings(unit_text(unit, spellings.features(tree.dialect)))
        assert own_bindings == [bindings(rendered.instances[key.name])[0] for key in unit.keys]


def only_case(tree: Tree) -> CaseResult:
    (case,) = parity.live_cases(tree, ("gfx950",), (200,), ("simplified",))
    return case


@pytest.mark.parametrize(
    ("old", "new", "where", "named"),
    [
        ("receipt == 200", "receipt == 201", "names", "missing"),
        ("result[128].insert(0,", "result[128].insert(1,", "names", "order differs"),
        ("min_cu_util_rate = 0.8", "min_cu_util_rate = 0.7", "dispatch", "min_cu_util_rate: upstream float(0.7)"),
        ("kM0 - 1) / kM0", "kM0) / kM0", "dispatch", "get_num_blocks: for a.batch 1"),
        ("t.has_lse == {F_lse}", "t.has_lse != {F_lse}", "dispatch", "only upstream requires t.has_lse != "),
        ("{F_vlayout}>;", "false>;", "bindings", "kernel: upstream"),
        ("blocks, 0, kargs", "blocks, 1024, kargs", "bindings", "call: upstream"),
    ],
)
def test_changed_upstream_is_noticed(
    trees: Mapping[str, Tree], tmp_path: Path, old: str, new: str, where: str, named: str
) -> None:
    case = only_case(change_tree(trees["aiter"], tmp_path, CODEGEN, old, new))
    assert case.outcome == "failed"
    assert f"{where} differ:" in case.text
    assert named in case.text


def test_broken_upstream_is_error_with_message(trees: Mapping[str, Tree], tmp_path: Path) -> None:
    planted = ("class FmhaFwdKernel:", "class FmhaFwdKernel(Nothing):")
    case = only_case(change_tree(trees["flash-attn"], tmp_path, CODEGEN, *planted))
    assert case.outcome == "error"
    assert "NameError: name 'Nothing' is not defined" in case.text


@pytest.mark.parametrize("name", ["aiter", pytest.param("flash-attn", marks=pytest.mark.nightly)])
def test_machine_code_of_batch_prefill_agrees(trees: Mapping[str, Tree], name: str, tmp_path: Path) -> None:
    """One small kernel compiled from both texts, on one arch; ``nox -s parity`` does a covering sample on two."""
    tree = trees[name]
    keys = enumerate_keys(dialect(tree.dialect).family("batch_prefill"), arch="gfx942", receipt=200)
    key = next(key for key in keys if key.tile.bm0 == 64 and not (key.lse or key.dropout or key.logits))
    rendered = codegen_runner.render(tree, "gfx942", "batch_prefill", 200, "simplified", tmp_path)
    assert min(same_code(tree, "gfx942", [(key, rendered.instances[key.name])])) > 4000
