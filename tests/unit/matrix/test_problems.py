"""Problems as data: what tables expand to, what a kernel must have, and mistakes told with file and line."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ckpm.base.errors import ProblemError, SetupError, TableError, UnknownWordError
from ckpm.commands import main
from ckpm.matrix.dialects import dialect, dialect_names
from ckpm.matrix.enumeration import enumerate_keys
from ckpm.matrix.keys import MIXED_DTYPES
from ckpm.matrix.problems.case import (
    CHECKS,
    PAIRWISE,
    SUITES,
    TIERS,
    complaint,
    counterpart,
    other_batches,
    wave_instructions,
)
from ckpm.matrix.problems.problem import Strides, launch_seqlen_k, loads, mask_corner
from ckpm.matrix.problems.serving import (
    missing_kernel,
    missing_load,
    needed_values,
    serves,
    serves_every_batch,
    serving_kernels,
)
from ckpm.matrix.problems.tables import find, problems, read
from ckpm.matrix.selection import Selection, select, select_some
from tests.unit.attention.fakes import make_case
from tests.unit.shared import replace_text, table_complaint

make = functools.partial(make_case, name="suite/x")


@pytest.mark.parametrize("suite", SUITES)
def test_cases_are_well_formed_named_once_and_nested(suite: str) -> None:
    smoke, full, nightly = (problems(suite, tier) for tier in TIERS)
    assert smoke
    assert smoke == full[: len(smoke)]
    assert full == nightly[: len(full)]
    assert len({problem.name for problem in nightly}) == len(nightly)
    assert [problem.name for problem in nightly if complaint(problem)] == []
    assert all(problem.name.startswith(f"{suite}/{problem.group}") for problem in nightly)


def test_smoke_tier_suits_emulator() -> None:
    """Two cores, 9 million wave-instructions a second and core, under two minutes with reference and start-up.

    No library has kernels for all. The bounds have room for a few values of an axis, as docs/howto/add-a-kernel-axis.md
    adds them: the four problems of a page size have 0.8 million.
    """
    cases = [problem for suite in SUITES for problem in problems(suite)]
    remedy = "a large new group belongs to another tier: `tier: full` in its table"
    assert sum(map(wave_instructions, cases)) < 600e6, remedy
    assert len([problem for problem in cases if problem.v3 != "on"]) < 3200, remedy


def test_smoke_cases_have_all_features_of_issue() -> None:
    cases = [problem for suite in SUITES for problem in problems(suite)]
    byte = [(p, p.pool_pages * p.page_elements("k") * p.element_bytes) for p in cases]
    assert any(0 in p.seqlens_k for p in cases)
    assert any(p.mask != "no" and p.seqlens_q[0] > p.seqlens_k[0] > 0 for p in cases)
    assert any(p.window_left >= 0 and not p.sink_size for p in cases)
    assert any(p.pool_pages > 8_388_608 for p in cases)
    assert any(p.page_order == "lines" and size > 2**33 for p, size in byte)
    assert any(p.page_order == "lines" and 2**31 < size < 2**32 for p, size in byte)
    assert any("identity_vs_scrambled" in p.checks and size > 2**31 for p, size in byte)
    assert any(p.placement in ("high", "crossing") and size < 2**31 for p, size in byte)
    assert {check for p in cases for check in p.checks} == set(CHECKS)
    assert {p.page_order for p in cases} >= {"identity", "scrambled", "spread", "lines", "shared", "repeated"}
    assert {p.table_end for p in cases} == {"exact", "zeros", "nan_page", "minus_one"}


def test_kernels_have_cases_that_find_planted_defects() -> None:
    """Scores far below 0, a key more or less at each place of a tile, several KV heads, short head dims."""
    cases = problems("batch-prefill", "smoke")
    for name in dialect_names():
        keys = select_some(dialect(name), Selection(archs=("gfx950",), tier="smoke"))
        # pages, dtypes and splits that upstream doesn't build have groups of their own
        plain = [k for k in keys if k.hdim_q == 128 and k.qscale == "no" and k.page_size in (None, 1, 16, 1024)]
        plain = [k for k in plain if k.pipeline == "qr_async"]
        for group in ("negative_scores", "pairs", "key_residues", "head_dims_kernels", "head_dims_narrow"):
            group_cases = [p for p in cases if p.group in (group, f"{group}_paged", f"{group}_batch")]
            left = {key.name for key in plain if not any(serves(key, p) for p in group_cases)}
            # column-major V in batch mode has the loads of group mode; the tables say why the others are left out
            narrow = dict.fromkeys(("head_dims_kernels", "head_dims_narrow"), ("vectorized", "_vc_"))
            out = {"key_residues": ("_batch_b64",), **narrow}.get(group, ())
            left = {kernel_name for kernel_name in left if not any(word in kernel_name for word in (*out, "_vc_psddv"))}
            assert left == set(), (name, group)


def test_each_slice_of_eight_columns_is_last_one_of_some_row() -> None:
    """Kernels store O eight columns at a time, and compare each with the head dim."""
    cases = problems("batch-prefill", "smoke")
    for feature in ("m64", "m128", "bias", "drop"):
        dims = {p.hdim_v for p in cases if p.group.startswith("head_dims_") and p.name.endswith(f"-{feature}")}
        assert dims == set(range(8, 128, 8))


def test_keys_end_at_each_place_of_tile() -> None:
    cases = problems("batch-prefill", "smoke")
    for problem in (p for p in cases if p.group == "key_residues"):
        assert {length % 128 for length in problem.seqlens_k} == set(range(128))
        assert max(problem.seqlens_k) > 128  # a tile in front
    for problem in (p for p in cases if p.group == "negative_scores"):
        q, k = problem.q_range, problem.kv_range
        highest = problem.hdim_q * q[0] * k[1] * problem.softmax_scale  # of any two rows
        assert highest < -90  # below the 87 under which exp is 0 in float32


def test_find_takes_name_back() -> None:
    name = "large-kv/many_pages.p8388609"
    assert find(name).pool_pages == 8_388_609
    for wrong in ("large-kv/many_pages.p1", "nosuite/x", ""):
        with pytest.raises(ProblemError, match="no problem"):
            find(wrong)
    with pytest.raises(UnknownWordError):
        problems("large")
    with pytest.raises(UnknownWordError):
        problems("large-kv", "quick")


@pytest.mark.parametrize(
    ("fields", "field", "values"),
    [
        ({}, "page_size", {1, None}),
        ({"page_size": 16}, "page_size", {16}),
        ({"sink_logits": True}, "page_size", {1}),
        ({"hdim_v": 72}, "hdim_q", {128}),
        ({"hdim_q": 136, "hdim_v": 128}, "hdim_q", {192, 256}),
        ({"hdim_q": 64, "hdim_v": 64}, "hdim_q", {64, 128}),
        ({}, "mask", {"no"}),
        ({"mask": "bottom_right", "window_right": 0}, "mask", {"mask", "causal"}),
        ({"mask": "top_left", "window_left": 5}, "mask", {"mask"}),
        ({"mask": "window", "window_left": 5}, "mask", {"mask", "generic"}),
        ({"mode": "batch", "seqlens_k": (256,)}, "pad", {"psddv"}),
        ({"mode": "batch", "seqlens_k": (200,)}, "pad", {"psskddv"}),
        ({"pool_pages": 2**23 + 1}, "load", {"gload", None}),
        ({"tile_rows": 64}, "tile.bm0", {64}),
        ({"sink_size": 4, "mask": "window", "window_left": 9}, "sink", {True}),
    ],
)
def test_needed_values_follow_fields_of_case(fields: dict[str, object], field: str, values: set[object]) -> None:
    assert needed_values(make(**fields))[field] == values


def test_needed_leaves_pad_and_tile_open() -> None:
    assert not {"pad", "tile.bm0"} & set(needed_values(make()))


@pytest.mark.parametrize(
    ("fields", "modes"),
    [
        ({"page_size": 1024, "pool_pages": 2**20}, {"bload"}),  # a descriptor for each page, whatever the pool
        ({"page_size": 128, "pool_pages": 2**23}, {"bload"}),
        ({"pool_pages": 2**23}, {"gload"}),  # 2^31 bytes: one more than INT32_MAX
        ({"pool_pages": 2**23 - 1}, {"bload", "gload"}),
        ({"page_size": 64, "pool_pages": 2**17}, {"gload"}),
        # a head's pages reach over all other heads, and the selector sees the first head's
        ({"page_size": 16, "nhead_q": 2, "nhead_k": 2, "strides": (("k", Strides(2048, 2048 * 100, 128)),)}, {"gload"}),
        (
            {"page_size": 16, "nhead_q": 2, "nhead_k": 2, "strides": (("k", Strides(4096, 2048, 128)),)},
            {"bload", "gload"},
        ),
        ({}, {"bload", "gload"}),  # by the version of the tree, and by the pool's address
    ],
)
def test_load_modes_that_selector_may_choose(fields: dict[str, object], modes: set[str]) -> None:
    assert set(loads(make(**fields))) == modes


def test_load_mode_that_library_lacks_is_named() -> None:
    selection = Selection(archs=("gfx950",), tier="smoke")
    keys = select(dialect("rocm-libraries-2026"), selection)
    paged = make(page_size=16, kv_layout="vectorized")
    assert missing_load(keys, paged) is None
    assert missing_load([key for key in keys if key.load == "gload"], paged) == "bload"
    assert missing_load([key for key in keys if key.load == "bload"], paged) == "gload"
    assert missing_load(select(dialect("ck-2025-11"), selection), make()) is None
    april = select(dialect("rocm-libraries-2026-04"), selection)
    assert missing_load(april, paged) is None
    assert missing_kernel(april, dataclasses.replace(paged, pool_pages=2**23)) == (
        f"no kernel with load gload among {len(serving_kernels(april, paged))} that fit otherwise"
    )


def test_library_serves_what_it_holds_and_reports_what_it_lacks() -> None:
    keys = select(dialect("ck-2025-11"), Selection(archs=("gfx950",), receipt=200, tier="smoke"))
    assert missing_kernel(keys, make(mask="bottom_right", window_right=0)) == ""
    assert (
        missing_kernel(keys, make(page_size=16))
        == f"no kernel with page_size 16 among {_plain(keys)} that fit otherwise"
    )
    assert missing_kernel(keys, make(mask="bottom_right", logits_soft_cap=9.0)) != ""
    capped = make(mask="bottom_right", logits_soft_cap=9.0, lse=True)
    served = [key for key in keys if serves(key, capped)]
    assert served
    assert {(key.logits, key.lse, key.mask, key.dtype) for key in served} == {(True, True, "mask", "bf16")}
    assert missing_kernel([], make()) == "no kernel with dtype bf16 among 0 that fit otherwise"


def _plain(keys: Sequence[object]) -> int:
    names = [str(getattr(key, "name", "")) for key in keys]
    return sum("_bf16_group_" in n and "_nlogits_nbias_nmask_nlse_ndropout" in n for n in names)


@pytest.mark.parametrize("name", ["ck-2025-06", "ck-2025-11", "rocm-libraries-2026"])
def test_full_dialects_serve_every_case_of_their_features(name: str) -> None:
    """Only cases with fields unknown to a dialect may be without a kernel."""
    family = dialect(name).family("batch_prefill")
    keys = enumerate_keys(family, arch="gfx950")
    for problem in (p for suite in SUITES for p in problems(suite) if p.expect == "ok"):
        reason = missing_kernel(keys, problem)
        newer = problem.page_size > 1 or problem.sink_size or problem.sink_logits or problem.dtype == "fp8bf16"
        newer = newer or max(problem.hdim_q, problem.hdim_v) > 128 or problem.kv_table == "vllm"
        beyond = problem.page_size not in (1, 16, 1024) or problem.dtype in MIXED_DTYPES or problem.split_keys
        beyond = beyond or problem.hdim_q > 256
        if beyond or problem.v3 == "on":  # of ckpm-extended, or prefill-v3, alone
            assert reason, problem.name
        elif name == "rocm-libraries-2026":
            assert (not reason) == (problem.mode == "group" and problem.vlayout == "row"), (problem.name, reason)
        elif problem.vlayout == "row" or name == "ck-2025-06":
            assert bool(reason) == newer, (problem.name, reason)


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
@pytest.mark.parametrize("masks", ["simplified", "generic"])
@pytest.mark.parametrize("name", dialect_names())
def test_smoke_kernels_and_problems_cover_each_other(name: str, masks: str, arch: str) -> None:
    """Every kernel of a smoke library is launched: a kernel without a problem would be built and never tried.

    Of the kernels that serve a problem, dispatch takes the first of each load mode; with ``tile_rows`` it is named. No
    smoke problem has so many blocks that dispatch passes the tile for few blocks by (0.8 of 80 CUs).
    """
    if arch not in dialect(name).known_archs:
        with pytest.raises(SetupError):
            select_some(dialect(name), Selection(archs=(arch,), tier="smoke"))
        return
    keys = select_some(dialect(name), Selection(archs=(arch,), tier="smoke", mask_impl=masks))
    launched = set()
    for problem in (p for suite in ("batch-prefill", "large-kv", "page-fault") for p in problems(suite)):
        assert problem.batch * problem.nhead_q * -(-max(problem.seqlens_q) // 128) < 0.8 * 80 or problem.tile_rows
        able = serving_kernels(keys, problem)
        assert not able or missing_load(keys, problem) is None, problem.name
        first = {key.load: key.name for key in reversed(able)}
        launched |= set(first.values())
        if "v3_off" in problem.checks:
            off = serving_kernels(keys, dataclasses.replace(problem, v3="off"))
            launched |= {key.name for key in off[:1] if able}
    assert {key.name for key in keys} == launched


def test_batch_mode_promises_whole_tiles_only_if_all_lengths_are() -> None:
    assert launch_seqlen_k(make(seqlens_q=(1, 1), seqlens_k=(256, 128))) == 256
    assert launch_seqlen_k(make(seqlens_q=(1, 1), seqlens_k=(256, 100))) == 257
    assert launch_seqlen_k(make(seqlens_q=(1, 1), seqlens_k=(256, 0))) == 257
    assert launch_seqlen_k(make(seqlens_k=(100,))) == 100


def test_mask_corner_equals_values_by_hand() -> None:
    """(y, x) by hand: row r sees r - y < c < r + x. 3 queries, 5 keys; the last row of a bottom-right mask is row 4."""
    causal = make(mask="bottom_right", window_left=-1, window_right=0)
    assert mask_corner(causal, 3, 5) == (3, 3)
    assert mask_corner(dataclasses.replace(causal, mask="top_left"), 3, 5) == (3, 1)
    assert mask_corner(dataclasses.replace(causal, window_left=1), 3, 5) == (0, 3)
    assert mask_corner(make(mask="window"), 3, 5) == (3, 5)


def test_cost_counts_tiles_that_mask_leaves_and_every_launch() -> None:
    problem = make(seqlens_q=(128,), seqlens_k=(256,))
    assert wave_instructions(problem) == 4 * 1600 + 2 * 3000
    causal = dataclasses.replace(problem, mask="top_left", window_right=0)
    assert wave_instructions(causal) == 2 * 1600 + 2 * 3000  # rows 0-127 of the upper left see 128 keys alone
    assert wave_instructions(dataclasses.replace(problem, checks=("repeat_bitwise",))) == 2 * wave_instructions(problem)
    assert wave_instructions(dataclasses.replace(problem, expect="unsupported")) == 0


def test_counterpart_differs_in_one_respect_only() -> None:
    problem = make(seqlens_q=(3, 4), seqlens_k=(5, 6), page_size=16, kv_layout="vectorized", seed=9)
    for check in {*PAIRWISE} - {"batch_orders"}:
        other = counterpart(problem, check)
        assert other.name == f"suite/x~{check}"
        assert other.seed == 9
        assert (dataclasses.replace(other, name=problem.name) == problem) == (check == "repeat_bitwise")
    alone = counterpart(problem, "batch_invariance")
    assert (alone.seqlens_q, alone.seqlens_k, alone.ids) == ((4,), (6,), (1,))
    first = counterpart(problem, "batch_invariance", 0)
    assert (first.seqlens_q, first.seqlens_k, first.ids) == ((3,), (5,), (0,))
    with pytest.raises(KeyError):
        counterpart(problem, "reference")


def test_other_batches_hold_sequences_at_their_places() -> None:
    problem = make(seqlens_q=(3, 4, 1), seqlens_k=(5, 6, 8), checks=("batch_orders",))
    alone = list(other_batches(problem, "batch_invariance"))
    assert [other.lengths for _, other, _ in alone] == [((3, 5),), ((4, 6),), ((1, 8),)]
    (_, turned, _), (_, larger, _) = orders = list(other_batches(problem, "batch_orders"))
    assert turned.lengths == ((1, 8), (4, 6), (3, 5))
    assert larger.lengths == ((74, 138), (4, 6), (1, 8), (5, 9), (3, 5))
    assert len({*larger.ids}) == 5
    for _, other, places in (*alone, *orders):
        assert all(other.lengths[at] == problem.lengths[sequence] for sequence, at in places.items())
        assert all(other.ids[at] == problem.ids[sequence] for sequence, at in places.items())
    assert {*orders[0][2]} == {*orders[1][2]} == {0, 1, 2}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"seqlens_k": (1, 2)}, "same number of sequences"),
        ({"nhead_q": 3, "nhead_k": 2}, "not a multiple"),
        ({"page_size": 3}, "power of two"),
        ({"kv_layout": "vectorized"}, "multiple of 8 tokens"),
        ({"dtype": "fp8bf16"}, "needs a qscale"),
        ({"window_left": 3}, "need a mask"),
        ({"pool_pages": 10}, "can't hold the 128"),
        ({"placement": "low", "pool_pages": 8_000_000}, "pools of 4096000000 bytes don't fit below 4 GiB"),
        ({"checks": ("freed_pages",), "page_size": 8}, "pages of a multiple of 4096 bytes"),
        ({"checks": ("freed_pages", "nan_canary"), "page_size": 16}, "nan_canary could fill"),
        ({"mode": "batch", "seqlens_q": (1, 2), "seqlens_k": (1, 2)}, "one seqlen_q"),
        ({"checks": ("batch_orders",), "mode": "batch"}, "it needs group mode"),
        ({"k_page_scales": (1.0, 2.0)}, "page scales are not negative, and for block scales"),
        ({"dtype": "fp8bf16", "qscale": "kv_blockscale", "v_page_scales": (1.0, -1.0)}, "page scales are not negative"),
    ],
)
def test_complaint_names_mistake_of_case(fields: dict[str, object], message: str) -> None:
    assert complaint(make()) is None
    assert message in str(complaint(make(**fields)))


TABLE = """suite: dispatch
defaults: {heads: [1, 1]}
groups:
  a:
    tier: smoke
    why: a test
    set: {lengths: {q: 3, k: 4}}
    axes:
      dtype: [bf16, fp16]
      mask: {full: {mask: no}, causal: {mask: bottom_right, window: [-1, 0]}}
    drop:
      - {dtype: fp16, mask: no, why: a test}
"""


def test_expansion_by_hand(tmp_path: Path) -> None:
    file = tmp_path / "dispatch.yaml"
    file.write_text(TABLE)
    cases = read(file, "dispatch", "smoke")
    assert [case.name for case in cases] == ["dispatch/a.bf16-full", "dispatch/a.bf16-causal", "dispatch/a.fp16-causal"]
    assert (cases[2].dtype, cases[2].mask, cases[2].window_right) == ("fp16", "bottom_right", 0)
    assert (cases[0].seqlens_q, cases[0].seqlens_k, cases[0].mask) == ((3,), (4,), "no")
    assert read(file, "dispatch", "full") == ()


def test_smaller_tier_picks_from_larger_group(tmp_path: Path) -> None:
    file = tmp_path / "dispatch.yaml"
    smoke = "{dtype: fp16, kind: [a, b], lengths: [{q: 3, k: 4}, {q: 9, k: 9}]}"
    picks = f"    picks: {{smoke: {smoke}, full: {{kind: c}}}}\n"
    table = TABLE.replace("tier: smoke", "tier: nightly").replace(
        "axes:\n", "axes:\n      kind: {a: null, b: null, c: null}\n"
    )
    file.write_text(table.replace("mask: no, why", "kind: b, why") + picks)
    names = {tier: [case.name.partition(".")[2] for case in read(file, "dispatch", tier)] for tier in TIERS}
    assert names["smoke"] == ["a-fp16-full", "a-fp16-causal"]  # fp16 of b is dropped
    assert names["full"] == ["c-bf16-full", "c-bf16-causal", "c-fp16-full", "c-fp16-causal"]
    assert names["nightly"] == ["a-bf16-full", "a-bf16-causal", "b-bf16-full", "b-bf16-causal"]
    assert {case.tier for case in read(file, "dispatch", "full")} == {"full"}
    for wrong, message in (
        ("{kind: d}", "unknown word 'd' of the axis; known: a, b, c"),
        ("{lse: true}", "no case of the"),
    ):
        file.write_text(table + f"    picks: {{full: {wrong}}}\n")
        with pytest.raises(TableError, match=message):
            read(file, "dispatch", "full")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("suite: dispatch", "suite: other", "1: suite: must be dispatch"),
        ("bf16, fp16]", "bf16, bf8]", "9: groups.a.axes.dtype[1]: unknown word 'bf8'; known here: "),
        ("bf16, fp16]", "bf16, bf16]", "two cases are named dispatch/a.bf16-full"),
        ("q: 3", "q: -3", "dispatch/a.bf16-full: a length is negative"),
        ("q: 3", "z: 3", "unknown field; known here: q, k, batch, ragged"),
        ("{mask: no}", "{mask: no, dtype: fp16}", "two axes set 'dtype'"),
        ("dtype: [bf16,", "kind: [bf17,", "9: groups.a.axes.kind[0]: unknown word 'bf17'; write WORD: {field: value}"),
        ("mask: no, why: a test", "mask: no", "field 'why' is missing"),
        ("axes:", "axis:", "unknown field; known here: why, tier, set, axes, cover, drop, picks"),
        ("    drop:", "    picks: {full: {mask: no}}\n    drop:", "groups.a.picks.full: unknown field; known here: "),
        ("mask: no, why", "shade: no, why", "groups.a.drop[0].shade: unknown field; known here: dtype"),
    ],
)
def test_mistakes_in_table(tmp_path: Path, old: str, new: str, message: str) -> None:
    text = replace_text(TABLE, old, new)
    assert message in table_complaint(tmp_path / "dispatch.yaml", text, lambda file: read(file, "dispatch", "smoke"))


def test_words_of_axis_set_their_parts_fields(tmp_path: Path) -> None:
    file = tmp_path / "dispatch.yaml"
    axis = "[fp16, ps16_vectorized, {a: fp8_blocks_ps64}, {b: {page_size: 32}}]"
    file.write_text(replace_text(TABLE, "dtype: [bf16, fp16]", f"kind: {axis}"))
    cases = [case for case in read(file, "dispatch", "smoke") if case.mask != "no"]
    fields = [(case.name.split("-")[-2], case.dtype, case.qscale, case.page_size, case.kv_layout) for case in cases]
    assert fields == [
        ("dispatch/a.fp16", "fp16", "no", 1, "linear"),
        ("dispatch/a.ps16_vectorized", "bf16", "no", 16, "vectorized"),
        (
            "dispatch/a.a",
            "fp8bf16",
            "kv_blockscale",
            64,
            "linear",
        ),  # blocks has pages of 1,024, and ps64 comes after it
        ("dispatch/a.b", "bf16", "no", 32, "linear"),
    ]


def test_problems_command_lists_and_counts_cases(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["problems", "--suite", "large-kv", "--count", "--format", "csv"]) == 0
    header, row = capsys.readouterr().out.splitlines()
    assert header == "suite,problems,million_wave_instructions"
    assert row.split(",")[:2] == ["large-kv", str(len(problems("large-kv")))]
    assert main(["problems", "--suite", "page-fault"]) == 0
    assert capsys.readouterr().out.splitlines() == [problem.name for problem in problems("page-fault")]
    assert main(["problems", "--suite", "nothing"]) == 2
    assert main(["problems", "--tier", "nothing"]) == 2


@pytest.mark.parametrize(
    ("where", "dialect_name", "taken"),
    [
        ("key.tile.bm0 == 64 and not key.dropout", "ckpm-extended", True),
        ("key.pipeline == 'qr_async_split'", "ckpm-extended", True),
        ("key.pipeline == 'qr_async_trload_v3' and key.dtype == 'fp8bf16'", "ckpm-extended", True),
        ("key.pipeline == 'qr_async_trload_v3' and key.dtype != 'fp8bf16'", "ckpm-extended", False),
        ("key.dropout", "ck-2025-11", False),
        ("key.mode == 'batch' and key.pad == 'psddv'", "ck-2025-11", False),
    ],
)
def test_kernel_serves_every_batch_unless_batch_decides_it(where: str, dialect_name: str, taken: bool) -> None:
    keys = select_some(dialect(dialect_name), Selection(archs=("gfx950",), where=(where,)))
    assert {serves_every_batch(key) for key in keys} == {taken}


def test_kernel_that_no_launch_names_serves_no_batch_alone() -> None:
    keys = select_some(dialect("ck-2025-11"), Selection(archs=("gfx950",), families=("fwd",), tier="smoke"))
    assert not any(serves_every_batch(key) for key in keys)


@pytest.mark.parametrize(
    ("name", "changes", "lost"),
    [
        ("ck-2025-11", {}, set()),
        ("ck-2025-11", {"mode": "batch", "seqlens_k": (256,)}, {"qr_async"}),
        ("ckpm-extended", {"dtype": "bf16", "hdim_q": 64, "hdim_v": 64, "seqlens_q": (300,)}, {"qr_async_trload_v3"}),
        ("ckpm-extended", {"dtype": "fp8bf16", "qscale": "pertensor", "hdim_q": 64, "hdim_v": 64}, set()),
    ],
)
def test_batch_invariance_loses_kernels_that_batch_decides(name: str, changes: dict[str, Any], lost: set[str]) -> None:
    keys = enumerate_keys(dialect(name).family("batch_prefill"), arch="gfx950")
    problem = make_case(**changes)
    able = serving_kernels(keys, problem)
    taken = serving_kernels(keys, dataclasses.replace(problem, batch_invariant=True))
    assert taken
    assert all(serves_every_batch(key) for key in taken)
    gone = [key for key in able if key not in taken]
    assert {key.pipeline for key in gone} == lost
    assert not any(serves_every_batch(key) for key in gone)
