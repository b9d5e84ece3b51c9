"""Changes planted in the codegen of the default upstream: each is noticed, and the difference named."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from ckpm.kernels.upstream.tree import Tree
from tests.build.parity import TREE, cases, change_tree

FROM = {  # API: its file of the codegen, and an arch and receipt with few kernels
    "fwd": ("fmha_fwd.py", "gfx950", 801),
    "pagedkv_prefill": ("fmha_pagedkv_prefill.py", "gfx950", 0),
    "fwd_splitkv": ("fmha_fwd_splitkv.py", "gfx950", 200),
    "fwd_appendkv": ("fmha_fwd_appendkv.py", "gfx950", 2),
    "bwd": ("fmha_bwd.py", "gfx942", 801),
}
# API and what differs: old and new text, and the words of one line of the difference
PLANTED: dict[tuple[str, str], list[tuple[str, ...]]] = {
    ("fwd", "bindings"): [
        ("{F_occupancy},\n", "1,\n", "kernel: upstream"),
        ("{F_vlayout}>;", "false>;", "kernel: upstream"),
        ("make_kernel<kBlockPerCu, {F_arch.tag}>", "make_kernel<kBlockPerCu>", "launch: upstream"),
    ],
    ("fwd", "dispatch"): [
        ('f"a.seqlen_q <= {self.bm0}"', 'f"a.seqlen_q < {self.bm0}"', "only upstream requires a.seqlen_q<"),
        ("a.seqlen_k % {self.bn0} == 0)", "a.seqlen_k % {self.bm0} == 0)", "only ours requires a.seqlen_k"),
        ("{F_if}({F_arch.device_name_check})", "{F_if}(true)", "device"),
        (
            "!get_num_cus(num_cus)",
            "a.max_seqlen_q > 128 || !get_num_cus(num_cus)",
            "device: 1 branches of upstream are",
        ),
        ("float r = -1;", "float r = 0;", "without a kernel upstream returns 0, ours -1"),
    ],
    ("pagedkv_prefill", "bindings"): [
        ("{F_pagedkv},  //pagedkv", "false,", "kernel: upstream"),
        ("{F_spad}, {F_dvpad}>>;", "true, true>>;", "kernel: upstream"),
        ("{F_squant}, {F_spad}", "false, {F_spad}", "dispatch_trait: upstream"),
    ],
    ("pagedkv_prefill", "dispatch"): [
        ("(t.use_pagedkv == {F_pagedkv})", "(t.use_pagedkv)", "only upstream requires"),
        ("a.seqlen_k_ptr == nullptr && ", "", "only ours requires a.seqlen_k_ptr"),
        ('f"a.hdim_v % {bk0submax} == 0"', '"true"', "only ours requires a.hdim_v % 128 == 0"),
    ],
    ("fwd_splitkv", "bindings"): [
        ("kMergeNumHeadGroupsSeqLenQ,\n", "false,\n", "_qr_vr_pssk", "launch 1 of 2: kernel: upstream"),
        ("{F_occupancy}>;", "1>;", "_combine_", "launch 5 of 5: kernel: upstream"),
        ("{F_bn1},\n    fmha_trait>", "64,\n    fmha_trait>", "_combine_", "launch 5 of 5: kernel: upstream"),
        ("a.num_splits <= 16)", "a.num_splits < 16)", "_combine_", "launch 2 of 5: when: upstream"),
        ("a.nhead_k < a.nhead_q", "a.nhead_k <= a.nhead_q", "_nbias_nmask_", "launch 1 of 2: when: upstream"),
        ("{F_hdim} == 128 &&", "{F_hdim} == 64 &&", "upstream launches 1 kernels, ours 2"),
        ("({F_mode} == false)", "({F_mode} == true)", "upstream launches 3 kernels, ours 1"),
        ("#if !defined(__HIP", "#if defined(__HIP", "_combine_", "launch 5 of 5: guard: upstream"),
        ("make_kernel<kBlockPerCu, {F_arch.tag}>", "make_kernel<kBlockPerCu>", "launch 1 of 5: launch: upstream"),
        ("blocks, 0, kargs", "blocks, 64, kargs", "launch 1 of 5: call: upstream"),
    ],
    ("fwd_splitkv", "dispatch"): [
        (
            "splitkv_combine_oneshot_<fmha_fwd_splitkv_combine",
            "splitkv_oneshot_<fmha_fwd_splitkv_combine",
            "stages: only",
        ),
        ("if (t.has_lse) {{", "if (!t.has_lse) {{", "combine kernel"),
        ("FmhaFwdFp8>)", "FmhaFwdBf16>)", "combine kernel"),
        ("a.block_table_ptr != nullptr", "a.block_table_ptr == nullptr", "kernel: 32 branches of upstream are missing"),
        ("true, {F_squant}, {F_spad}", "false, {F_squant}, {F_spad}", "combine kernel: 1 branches of upstream"),
    ],
    ("fwd_appendkv", "bindings"): [
        ("{F_dvpad},\n ", "true,\n ", "kernel: upstream"),
        ("    {F_vlayout},\n", "    false,\n", "kernel: upstream"),
    ],
    ("fwd_appendkv", "dispatch"): [
        ('"a.seqlen_q % {self.bs} == 0"', '"a.seqlen_q % {self.bs} < 9"', "upstream requires a.seqlen_q"),
        ('"a.hdim_v % {self.bdv} == 0"', '"true"', "only ours requires a.hdim_v"),
        ("a.block_table_ptr != nullptr", "a.block_table_ptr == nullptr", "ours requires (a.block_table"),
        ('["row"], ["t", "f"]', '["row"], ["f", "t"]', "kernel: another order in "),
    ],
    ("bwd", "bindings"): [
        ("{F_occupancy}>;\n\nusing fmha_bwd_dot", "3>;\n\nusing fmha_bwd_dot", "kernel: upstream"),
        ("({F_dvpad} > 0)>>;", "({F_dvpad} > 1)>>;", "kernel: upstream"),
        ("ck_tile::min({F_wk0}, {F_bk4})", "ck_tile::max({F_wk0}, {F_bk4})", "kernel: upstream"),
        ("BlockSize = */ 256", "BlockSize = */ 128", "_convert_dq_"),
        ("make_kernel<kBlockPerCu, {F_arch.tag}>", "make_kernel<kBlockPerCu>", "launch: upstream"),
        ("blocks, 0, kargs)(", "blocks, 64, kargs)(", "call: upstream"),
    ],
    ("bwd", "dispatch"): [
        (
            "!std::is_same_v<convert_dq_trait_, void>",
            "std::is_same_v<convert_dq_trait_, void>",
            "stages: only upstream",
        ),
        ('f"a.hdim_q % {self.dpad} == 0"', 'f"a.hdim_q % 4 == 0"', "only ours requires a.hdim_q % 8 == 0"),
        ("{F_spad1d}, ({F_dvpad} > 0)>", "true, ({F_dvpad} > 0)>", "kernels: "),
        ("sorted(pool_by_hdim,", "pool_by_hdim[::-1] or sorted(pool_by_hdim,", "another order"),
        ("(t.is_deterministic == {F_deterministic})", "(t.is_deterministic)", "only upstream requires"),
        ("conditional_t<{F_convert_dq_enabled}", "conditional_t<false", "branches of upstream are missing"),
    ],
}


@pytest.mark.parametrize(
    ("api", "where", "old", "new", "fragments"),
    [(*key, *row[:2], row[2:]) for key, rows in PLANTED.items() for row in rows],
)
def test_change_of_codegen_is_named(
    trees: Mapping[str, Tree], tmp_path: Path, api: str, where: str, old: str, new: str, fragments: tuple[str, ...]
) -> None:
    file, arch, receipt = FROM[api]
    (case,) = cases(change_tree(trees[TREE], tmp_path, file, old, new), arch, api=api, receipt=receipt)
    assert (case.outcome, f"{where} differ:" in case.text) == ("failed", True)
    assert any(all(fragment in line for fragment in fragments) for line in case.text.splitlines()), case.text[:1000]


@pytest.mark.parametrize(
    ("api", "after", "statement"),
    [
        ("fwd_splitkv", "using k_ = fmha_kernel;", "warm(s)"),
        ("fwd", "create_kargs_and_grids<k_>(a);", "grids.y = 1"),
        ("fwd", "create_kargs_and_grids<k_>(a);", "if(a.window_size_left > 0) kargs.scale_s = 0"),
        (
            "fwd",
            "[[maybe_unused]] const std::string device_name = ck_tile::get_device_name();",
            "num_cus = num_cus / 4",
        ),
        ("fwd_appendkv", "float r = -1;", "a.nhead_q = 1"),
    ],
)
def test_unknown_statement_of_codegen_is_error(
    trees: Mapping[str, Tree], tmp_path: Path, api: str, after: str, statement: str
) -> None:
    file, arch, receipt = FROM[api]
    tree = change_tree(trees[TREE], tmp_path, file, after, f"{after} {statement};")
    (case,) = cases(tree, arch, api=api, receipt=receipt)
    assert case.outcome == "error"
    assert "is neither a declaration" in case.message
