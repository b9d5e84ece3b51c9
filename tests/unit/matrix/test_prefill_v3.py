"""Dialect prefill-v3: the names of pull request 6054, what V3 leaves to V2 and why, and two arch traits on one arch."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from ckpm.base.errors import NameSyntaxError, TableError
from ckpm.matrix.configurations.report import judge_kernel
from ckpm.matrix.dialects import dialect
from ckpm.matrix.enumeration import enumerate_keys, enumerate_names
from ckpm.matrix.explain import find_key, why
from ckpm.matrix.keys import Key
from ckpm.matrix.names import own_name, parse
from ckpm.matrix.problems.case import SUITES, SuiteCase
from ckpm.matrix.problems.serving import needed_values, serving_kernels
from ckpm.matrix.problems.tables import problems
from ckpm.matrix.published import stored_lists
from ckpm.matrix.selection import Selection, select
from tests.unit.matrix.matrix_samples import edit_dialect
from tests.unit.matrix.own_lists import OWN

NAME = "prefill-v3"
BATCH_PREFILL = dialect(NAME).family("batch_prefill")
V3_NAMES = {
    name
    for stored in stored_lists(OWN)
    if (stored.dialect, stored.mask_impl) == (NAME, "generic")
    for name in stored.names()
    if "_v3_" in name
}
ONE = (
    "fmha_batch_prefill_d128_fp8bf16_group_ps1024_b256x64x128x128x64x128_r8x1x1_r8x1x1_w32x32x32_w32x32x32_"
    "qr_async_trload_v3_vr_pssk_nlogits_nbias_mc_nlse_ndropout_kv_blockscale_nsink_linear_sglang_gfx950"
)


def april() -> set[str]:
    """Upstream's names of April 2026 with the trait of all gfx9."""
    (entry,) = (
        entry for entry in stored_lists() if (entry.dialect, entry.api) == ("rocm-libraries-2026-04", "batch_prefill")
    )
    assert (entry.arch, entry.mask_impl, entry.receipt) == ("gfx950", "generic", 0)
    return {f"{name}_gfx9" for name in entry.names()}


def names(arch: str, receipt: int = 0, masks: str = "generic") -> list[str]:
    return enumerate_names(BATCH_PREFILL, arch=arch, receipt=receipt, mask_impl=masks)


@pytest.mark.parametrize("receipt", [0, 200])
def test_names_are_aprils_after_v3_with_arch_trait(receipt: int) -> None:
    assert len(V3_NAMES) == 32
    assert set(names("gfx90a", receipt)) == set(names("gfx942", receipt)) == april()
    listed = names("gfx950", receipt)
    assert len(listed) == len(set(listed)) == len(april()) + 32
    assert (set(listed[:32]), set(listed[32:])) == (V3_NAMES, april())


@pytest.mark.parametrize("receipt", [2, 3, 4, 100, 600, 800, 801])
def test_receipts_without_scales_have_no_v3(receipt: int) -> None:
    assert not V3_NAMES & set(names("gfx950", receipt))


def listed_by_pull_request() -> dict[str, str]:
    """The codegen's names of V2 on gfx950, where all its names have the trait of that arch, and ours."""
    return {name.removesuffix("_gfx9") + "_gfx950": name for name in sorted(april())}


def test_v2_names_of_pull_request_are_read_as_ours() -> None:
    for upstream_name, matrix_name in listed_by_pull_request().items():
        assert own_name((BATCH_PREFILL,), upstream_name) == own_name((BATCH_PREFILL,), matrix_name) == matrix_name
        assert parse(BATCH_PREFILL, upstream_name, "generic") == parse(BATCH_PREFILL, matrix_name, "generic")
    assert {own_name((BATCH_PREFILL,), name) for name in V3_NAMES} == V3_NAMES


def test_why_and_show_of_pull_request_s_name_give_ours() -> None:
    upstream_name, matrix_name = next(iter(listed_by_pull_request().items()))
    explanation = why(dialect(NAME), Selection(archs=("gfx950",), mask_impl="generic"), upstream_name)
    assert (explanation.name, explanation.reasons, explanation.also_written) == (matrix_name, (), (upstream_name,))
    for arch, name in (("gfx942", matrix_name), ("gfx950", min(V3_NAMES))):
        assert not why(dialect(NAME), Selection(archs=(arch,), mask_impl="generic"), name).also_written
    assert find_key(dialect(NAME), upstream_name, "generic")[1] == find_key(dialect(NAME), matrix_name, "generic")[1]
    assert judge_kernel(dialect(NAME), upstream_name, "generic", "gfx950").findings == ()


def test_other_dialects_read_no_trait_of_another_arch() -> None:
    upstream_name = next(iter(listed_by_pull_request()))
    newest = dialect("rocm-libraries-2026").family("batch_prefill")
    assert own_name((newest,), upstream_name) == upstream_name
    with pytest.raises(NameSyntaxError):
        parse(newest, upstream_name)


@pytest.mark.parametrize(
    ("old", "new", "rule"),
    [
        ("_linear_", "_vectorized_", "v3_takes_linear_layout"),
        ("_fp8bf16_", "_bf16_", "v3_takes_fp8"),
        ("_fp8bf16_", "_fp16_", "v3_takes_fp8"),
        ("_nbias_", "_alibi_", "v3_has_no_bias"),
        ("_nlse_", "_lse_", "v3_has_no_lse"),
        ("_ndropout_", "_dropout_", "v3_has_no_dropout"),
        ("_nsink_", "_sink_", "v3_has_no_sink"),
        ("_d128_", "_d256_", "v3_takes_head_dim_128"),
        ("_mc_", "_mg_", "v3_has_no_window"),
        ("_ps1024_", "_ps16_", "kv_blockscale_within_page"),
    ],
)
def test_why_reports_what_v3_leaves_to_v2(old: str, new: str, rule: str) -> None:
    explanation = why(dialect(NAME), Selection(archs=("gfx950",), mask_impl="generic"), ONE.replace(old, new))
    assert rule in [reason.name for reason in explanation.reasons if reason.kind == "rule"]


def test_why_names_arch_and_padding_of_v3() -> None:
    generic = Selection(archs=("gfx942",), mask_impl="generic")
    assert [reason.text for reason in why(dialect(NAME), generic, ONE).reasons] == [
        "it is built for gfx950; gfx942 has kernels of its own"
    ]
    padded = why(dialect(NAME), Selection(archs=("gfx950",)), ONE.replace("_pssk_", "_psskddv_"))
    assert [reason.kind for reason in padded.reasons] == ["axis"]
    assert why(dialect(NAME), Selection(archs=("gfx950",)), ONE).reasons == ()


def test_one_library_of_two_archs_holds_kernel_of_both_once() -> None:
    both = [key.name for key in select(dialect(NAME), Selection(archs=("gfx942", "gfx950"), mask_impl="generic"))]
    assert len(both) == len(set(both)) == len(april()) + 32
    assert set(both[:32]) == V3_NAMES  # as dispatch tries them


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("_{kv_table}_{arch_trait}", "_{kv_table}", "an arch with several arch traits needs a slot {arch_trait}"),
        ("gfx950: [gfx950, gfx9]", "gfx951: [gfx950, gfx9]", "'gfx951' is not in archs.yaml"),
        ("also_written: [gfx950]", "also_written: [gfx951]", "'gfx951' is not an arch trait of this family"),
        ("{arch_trait: [gfx9]}", "{arch_trait: [gfx9, gfx950]}", "needs a 'for' with one arch_trait"),
    ],
)
def test_table_with_traits_that_names_do_not_tell_is_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(TableError) as caught:
        edit_dialect(tmp_path, f"{NAME}/batch_prefill", old, new).family("batch_prefill")
    assert message in str(caught.value)


def smoke(arch: str = "gfx950") -> list[Key]:
    return select(dialect(NAME), Selection(archs=(arch,), tier="smoke"))


EXTENDED = (
    "v3_extended",
    "rows_v3_extended",
    "v3_16bits",
    "latent_prefix",
    "lines_extended",
)  # groups of ckpm-extended


def fp8(**changes: Any) -> SuiteCase:
    first = next(p for p in problems("dispatch") if p.name == "dispatch/chosen_2026.fp8")
    assert (first.hdim_q, first.page_size, first.qscale, first.kv_layout) == (128, 16, "pertensor", "linear")
    return dataclasses.replace(first, **changes)


CAUSAL = {"mask": "bottom_right", "window_left": -1, "window_right": 0}
BLOCKS = {"qscale": "kv_blockscale", "page_size": 1024}


@pytest.mark.parametrize(
    "changes",
    [{}, CAUSAL, {"page_size": 1}, {"page_size": 1, **CAUSAL}, BLOCKS, {**BLOCKS, **CAUSAL}, {"kv_table": "vllm"}],
)
def test_v3_serves_request_first_and_v2_after_it(changes: dict[str, Any]) -> None:
    full = enumerate_keys(BATCH_PREFILL, arch="gfx950")
    v3, v2 = "qr_async_trload_v3", "qr_async"
    for turned, pipelines in {"any": [v3, v2], "on": [v3], "off": [v2]}.items():
        assert [key.pipeline for key in serving_kernels(full, fp8(v3=turned, **changes))] == pipelines
    assert serving_kernels(smoke(), fp8(v3="on", **changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"hdim_q": 112, "hdim_v": 112},
        {"hdim_v": 64},
        {"sink_logits": True},
        {"mask": "bottom_right", "window_right": 20},  # V3's dispatch asks for a right bound of 0
        {"mask": "window", "window_left": 20, "window_right": 0},
        {"mask": "bottom_right", "window_left": 20, "window_right": 0},
        {"kv_layout": "vectorized"},
    ],
)
def test_v2_alone_serves_what_lies_just_beyond_v3(changes: dict[str, Any]) -> None:
    able = serving_kernels(enumerate_keys(BATCH_PREFILL, arch="gfx950"), fp8(**changes))
    assert {key.pipeline for key in able} == {"qr_async"}


def test_needed_pad_depends_on_head_dim_of_v3() -> None:
    """No other dialect's answer depends on it: in group mode all other kernels pad head dims."""
    assert "pad" not in needed_values(fp8())
    assert needed_values(fp8(hdim_q=112, hdim_v=112))["pad"] == {"psskddv"}
    newest = {key.pad for key in enumerate_keys(dialect("rocm-libraries-2026").family("batch_prefill"), arch="gfx950")}
    assert newest == {"psskddv"}


def test_smoke_problems_served_by_v3_take_v3() -> None:
    """The others are for V2 alone, of which smoke libraries of this dialect hold few."""
    full, few = (list(keys) for keys in (enumerate_keys(BATCH_PREFILL, arch="gfx950"), smoke()))
    v3 = [key for key in full if key.pipeline == "qr_async_trload_v3"]
    for problem in (p for suite in SUITES for p in problems(suite) if p.expect == "ok"):
        if serving_kernels(v3, problem):
            assert serving_kernels(few, problem)[0] in v3, problem.name
        else:
            assert problem.v3 != "on" or problem.group.startswith(EXTENDED), problem.name
