"""The matrix holds exactly upstream's kernels, in upstream's order; changing one entry of a table is noticed.

Expected numbers are those that upstream published or that its own codegen listed (stored lists), never our output.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ckpm.matrix.dialects import APIS, Dialect, archs, dialect, dialect_names
from ckpm.matrix.enumeration import enumerate_keys, enumerate_names
from ckpm.matrix.published import StoredList, emission_sha256, stored_lists
from tests.unit.enumerated import keys_of, names_of, stored_names
from tests.unit.matrix.matrix_samples import TILE, edit_dialect

# Receipts in the order of upstream's table (facts: "Counts, newest, simplified masks").
NEWEST = {
    0: 4848, 1: 4848, 2: 3456, 3: 3456, 4: 3456, 100: 0, 200: 4848, 300: 4848, 400: 4848, 600: 4608, 700: 0, 800: 0,
    801: 0, 888: 4848,
}  # fmt: skip
# 768 and 384 are upstream's; from them: 3 of 4 pairs of logits and bias are left in receipts 2-4, group mode has one of
# three paddings, mid-2025 loses half of each receipt to row-major V alone.
NOVEMBER = {0: 384, 1: 384, 2: 288, 3: 288, 4: 288, 100: 256, 200: 128, 300: 384, 600: 128, 800: 0, 801: 0, 888: 384}
MID_2025 = {0: 768, 1: 768, 2: 288, 3: 288, 4: 288, 100: 256, 200: 128, 300: 768, 600: 128, 888: 768}


def names(chosen: Dialect, arch: str = "gfx950", receipt: int = 0, mask_impl: str = "simplified") -> list[str]:
    family = chosen.families["batch_prefill"]
    return enumerate_names(family, arch=arch, receipt=receipt, mask_impl=mask_impl)


def names_listed(name: str, arch: str = "gfx950", receipt: int = 0, mask_impl: str = "simplified") -> list[str]:
    """The names of a dialect of the house."""
    return names_of(name, "batch_prefill", arch, receipt, mask_impl)


PUBLISHED = [("rocm-libraries-2026", NEWEST), ("ck-2025-11", NOVEMBER), ("ck-2025-06", MID_2025)]


@pytest.mark.parametrize(("name", "counts"), PUBLISHED)
def test_counts_of_every_receipt(name: str, counts: dict[int, int]) -> None:
    assert {receipt: len(names_listed(name, "gfx950", receipt)) for receipt in counts} == counts


@pytest.mark.parametrize("arch", ["gfx90a", "gfx942"])
@pytest.mark.parametrize(("name", "counts"), PUBLISHED)
def test_counts_of_other_gfx9_archs(name: str, counts: dict[int, int], arch: str) -> None:
    assert {receipt: len(names_listed(name, arch, receipt)) for receipt in (0, 4, 600)} == {
        receipt: counts[receipt] for receipt in (0, 4, 600)
    }


# Of bwd's other receipts, which are alike, whole lists are compared below.
RECEIPTS = {
    "fwd": (0, 1, 2, 3, 4, 100, 200, 600, 700, 800, 801, 888),
    "bwd": (2, 3, 4, 300, 400, 800, 801),
    **dict.fromkeys(("fwd_splitkv", "fwd_appendkv", "pagedkv_prefill"), (0, 1, 2, 3, 4, 100, 200, 600, 700, 800)),
}


def names_of_api(name: str, api: str, arch: str, receipt: int, masks: str = "simplified") -> list[str]:
    return [kernel_name for family in APIS[api] for kernel_name in names_of(name, family, arch, receipt, masks)]


@pytest.mark.parametrize(
    ("name", "api", "arch", "counts"),
    [
        ("rocm-libraries-2026", "fwd", "gfx950", [7760, 10576, 540, 3872, 2160, 4928, 2544, 7472, 748, 1728, 24, 248]),
        ("rocm-libraries-2026", "fwd", "gfx1100", [5376, 8064, 336, 2688, 1344, 2688, 2688, 5376, 496, 0, 0, 0]),
        ("rocm-libraries-2026", "fwd", "gfx1201", [4562, 6738, 272, 2176, 1088, 2194, 2188, 4382, 400, 0, 0, 60]),
        ("ck-2025-11", "fwd", "gfx950", [3004, 4028, 1104, 1104, 528, 1848, 940, 2788, 3004, 864, 12, 108]),
        ("ck-2025-11", "fwd", "gfx1201", [1884, 1884, 624, 624, 272, 1112, 556, 1668, 1884, 0, 0, 108]),
        ("ck-2025-11", "fwd", "gfx1100", [0] * 12),
        # this version has no 700 to 888
        ("ck-2025-06", "fwd", "gfx90a", [5016, 6936, 960, 960, 416, 1664, 832, 2496, 5016, 5016, 5016, 5016]),
        ("rocm-libraries-2026", "bwd", "gfx90a", [1140, 840, 840, 2360, 2300, 918, 22]),
        ("rocm-libraries-2026", "bwd", "gfx950", [1588, 1176, 1176, 2872, 2684, 918, 22]),
        ("rocm-libraries-2026", "bwd", "gfx1100", [912, 672, 672, 1888, 1840, 0, 0]),
        ("ck-2025-11", "bwd", "gfx950", [1600, 1176, 1176, 2880, 2688, 918, 22]),
        ("ck-2025-11", "bwd", "gfx1100", [0] * 7),
        # this version has no 800 and 801
        ("ck-2025-06", "bwd", "gfx950", [1424, 1056, 1056, 4192, 1072, 7824, 7824]),
        ("rocm-libraries-2026", "fwd_splitkv", "gfx950", [2106, 2106, 618, 2106, 138, 2106, 680, 2040, 138, 0]),
        ("rocm-libraries-2026", "fwd_splitkv", "gfx1100", [2186, 2186, 650, 2186, 138, 2186, 808, 2168, 138, 0]),
        ("rocm-libraries-2026", "fwd_splitkv", "gfx1201", [2234, 2234, 650, 2234, 138, 2234, 808, 2168, 138, 0]),
        ("rocm-libraries-2026", "fwd_appendkv", "gfx950", [99, 99, 96, 99, 96, 99, 99, 99, 99, 0]),
        ("rocm-libraries-2026", "fwd_appendkv", "gfx1100", [96, 96, 96, 96, 96, 96, 96, 96, 96, 0]),
        ("rocm-libraries-2026", "pagedkv_prefill", "gfx950", [168, 168, 36, 36, 36, 64, 32, 96, 0, 0]),
        ("rocm-libraries-2026", "pagedkv_prefill", "gfx1100", [96, 96, 36, 36, 36, 64, 32, 96, 0, 0]),
        ("ck-2025-11", "fwd_splitkv", "gfx950", [1146, 1146, 858, 1146, 138, 1146, 360, 1080, 1146, 0]),
        ("ck-2025-11", "fwd_splitkv", "gfx1201", [954, 954, 714, 954, 138, 954, 296, 888, 954, 0]),
        ("ck-2025-11", "fwd_splitkv", "gfx1100", [0] * 10),
        ("ck-2025-11", "fwd_appendkv", "gfx1201", [99, 99, 96, 99, 96, 99, 99, 99, 99, 0]),
        ("ck-2025-11", "pagedkv_prefill", "gfx942", [120, 120, 36, 36, 36, 32, 16, 48, 120, 0]),
        ("ck-2025-06", "fwd_splitkv", "gfx90a", [2091, 2283, 867, 2091, 147, 2091, 368, 1104, 2091, 2091]),
        ("ck-2025-06", "fwd_appendkv", "gfx950", [195, 195, 96, 195, 96, 195, 195, 195, 195, 195]),
        ("ck-2025-06", "pagedkv_prefill", "gfx942", [384, 384, 72, 72, 72, 128, 64, 192, 384, 384]),
    ],
)
def test_counts_of_every_receipt_of_other_apis(name: str, api: str, arch: str, counts: list[int]) -> None:
    assert [len(names_of_api(name, api, arch, receipt)) for receipt in RECEIPTS[api]] == counts


LISTS = {
    ("ck-2025-11", "fwd", "gfx950", 1, "generic"): "198a3fb78090631ac422c21b3ad4bef1e18f71366dc51c306a51ffc8d0c6e1b4",
    ("ck-2025-11", "fwd", "gfx942", 800): "f9600f01e2c6b37897110836a5c7f5812e006f715226c67fc521a668ce95ef41",
    ("ck-2025-11", "fwd", "gfx1201", 0): "571bbe191fb7f93990adea8884714e56733e62637eeca9987caa8e520434c4a7",
    ("ck-2025-06", "fwd", "gfx942", 1): "5bdfded3c1c686c78930a004dc3958eebe2e37f0679be6a36ca4cd5cbab7ab11",
    ("ck-2025-11", "bwd", "gfx950", 0): "38412d3cd0ac62abd6e14de6620f87f1d18ee1e9fea651d1925dbc5d2cd0c665",
    ("ck-2025-11", "bwd", "gfx942", 800, "generic"): "8837a6283dd18540e09702b5d301a197f8ac94cd413893514d0f34f0c1e26f71",
    ("ck-2025-06", "bwd", "gfx942", 0): "0838b02168915934da1be54f17037e86609a11a8520643b61a4adafcb909a28d",
}


@pytest.mark.parametrize("selection", LISTS)
def test_lists_in_order_of_emission(selection: Any) -> None:
    assert emission_sha256(names_of_api(*selection)) == LISTS[selection]


@pytest.mark.parametrize("api", ["fwd", "bwd"])
def test_minimal_set_of_fp32_is_empty_with_generic_masks(api: str) -> None:
    assert names_of_api("rocm-libraries-2026", api, "gfx950", 801)
    assert not names_of_api("rocm-libraries-2026", api, "gfx950", 801, "generic")


@pytest.mark.parametrize("arch", ["gfx1100", "gfx1201"])
@pytest.mark.parametrize("name", dialect_names())
def test_archs_without_kernels_give_empty_list_and_reason(name: str, arch: str) -> None:
    assert arch in archs()
    assert names(dialect(name), arch) == []
    assert "gfx9 buffer instructions" in dialect(name).families["batch_prefill"].absent


STORED = [stored for stored in stored_lists() if stored.api == "batch_prefill"]
# (API, arch, receipt, masks) of other families of the newest state: parity compares all
OTHERS = {
    ("bwd", "gfx950", 0, "generic"), ("bwd", "gfx950", 800, "simplified"), ("bwd", "gfx1100", 2, "generic"),
    ("bwd", "gfx1201", 2, "generic"), ("fwd", "gfx950", 0, "generic"), ("fwd", "gfx950", 888, "simplified"),
    ("fwd", "gfx942", 1, "simplified"), ("fwd", "gfx1100", 1, "simplified"), ("fwd", "gfx1201", 200, "generic"),
    *((api, arch, 0, "generic") for api in ("fwd_splitkv", "fwd_appendkv", "pagedkv_prefill")
      for arch in ("gfx950", "gfx1100", "gfx1201")),
}  # fmt: skip
COMPARED = STORED + [
    stored
    for stored in stored_lists()
    if stored.api != "batch_prefill"
    and (
        stored.dialect == "rocm-libraries-2026-04"
        or (stored.api, stored.arch, stored.receipt, stored.mask_impl) in OTHERS
    )
]


@pytest.mark.parametrize("stored", COMPARED, ids=lambda s: f"{s.dialect}-{s.api}-{s.arch}-{s.mask_impl}-r{s.receipt}")
def test_stored_lists_name_by_name_and_in_order_of_emission(stored: StoredList) -> None:
    selection = stored.arch, stored.receipt, stored.mask_impl
    kernel_names = [name for family in stored.families for name in names_of(stored.dialect, family, *selection)]
    assert sorted(kernel_names) == list(stored_names(stored))
    assert stored.sha256_emission_order in (None, emission_sha256(kernel_names))


@pytest.mark.parametrize("mask_impl", ["simplified", "generic"])
@pytest.mark.parametrize("name", dialect_names())
def test_no_name_is_given_twice(name: str, mask_impl: str) -> None:
    kernel_names = names_listed(name, mask_impl=mask_impl)
    assert len(set(kernel_names)) == len(kernel_names) > 0


def test_every_caller_has_list_of_its_own() -> None:
    family = dialect("ck-2025-11").family("batch_prefill")
    enumerate_keys(family, arch="gfx950").clear()
    assert len(enumerate_keys(family, arch="gfx950")) == 384


def test_keys_carry_what_their_name_says() -> None:
    key = keys_of("rocm-libraries-2026", "batch_prefill")[0]
    # upstream's first kernel: fp16, d128, the tile of few blocks, every feature on
    assert (key.dtype, key.hdim_q, key.hdim_v, key.mode) == ("fp16", 128, 128, "group")
    assert (key.tile.bm0, key.tile.when) == (64, "few_blocks")
    assert (key.logits, key.bias, key.lse, key.dropout, key.sink) == (True, "no", True, True, False)
    assert (key.family, key.mask_impl, key.vlayout, key.pad) == ("batch_prefill", "simplified", "row", "psskddv")


def test_fields_that_dialect_lacks_are_none() -> None:
    key = keys_of("ck-2025-11", "batch_prefill")[0]
    assert (key.sink, key.page_size, key.load, key.kv_layout, key.kv_table) == (None, None, None, None, None)


def differs_from_stored(chosen: Dialect) -> bool:
    """Return True if any stored list, each content once, differs from the dialect's names."""
    lists = {stored.member: stored for stored in STORED if stored.dialect == chosen.name}.values()
    return any(
        emission_sha256(names(chosen, stored.arch, stored.receipt, stored.mask_impl)) != stored.sha256_emission_order
        for stored in lists
    )


def test_unchanged_copy_does_not_differ(tmp_path: Path) -> None:
    name = "rocm-libraries-2026"
    assert not differs_from_stored(edit_dialect(tmp_path, f"{name}/dialect", "summary: rocm", "summary: Rocm"))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("order: [dtype, hdim_q hdim_v,", "order: [hdim_q hdim_v, dtype,"),
        ("kv_table, page_size, load", "kv_table, load, page_size"),
        ("dtype: [fp16, bf16, fp8bf16]\n  hdim_q", "dtype: [bf16, fp16, fp8bf16]\n  hdim_q"),
        ("[[128, 128], [256, 256]]", "[[256, 256], [128, 128]]"),
        ("qscale: [no, pertensor, kv_blockscale]", "qscale: [no, kv_blockscale, pertensor]"),
        ("sink: [true, false]", "sink: [false, true]"),
        ("sink: [true, false]", "sink: [false]"),
        ("kv_layout: [vectorized, linear]", "kv_layout: [linear]"),
        ("kv_table: [vllm, sglang]", "kv_table: [vllm]"),
        ("page_size: [1, 16, 1024]", "page_size: [1, 16, 512]"),
        ("page_size: [1, 16, 1024]", "page_size: [16, 1024]"),
        ("load: [bload, gload]", "load: [gload, bload]"),
        ("pad: [psskddv]", "pad: [pssk]"),
        ("{no: nqscale}", "{no: nsquant}"),
        ("{true: sink, false: nsink}", "{true: s, false: nsink}"),
        ("b128x128x32x128x32x128_r4x1x1", "b128x128x64x128x32x128_r4x1x1"),
        ("_r4x1x1_r4x1x1_w32x32x32", "_r2x1x1_r4x1x1_w32x32x32"),
        ("_w32x32x32_w32x32x32", "_w32x32x16_w32x32x16"),
        ("_w32x32x32]", "_w32x32x32_o2]"),
        ("256x256: [b128x128x32x256x32x256_r4x1x1_r4x1x1_w32x32x16_w32x32x16]", "256x256: []"),
        ("group_mode_only,", ""),
        ("logits_soft_cap_without_bias,", ""),
        ("sink_needs_mask,", ""),
        ("fp8_needs_qscale,", ""),
        ("qscale_needs_fp8,", ""),
        ("fp8_is_inference_only,", ""),
        ("page_size_1_is_linear,", ""),
        ("kv_blockscale_within_page,", ""),
        (", gload_only_for_small_pages]", "]"),
        ("2: &half {dtype: [fp16, bf16]}", "2: &half {dtype: [bf16]}"),
        ("4: *half", "4: {dtype: [fp16, bf16], bias: [no]}"),
        ("200: {qscale: null}", "200: {qscale: [no]}"),
        ("700: {dtype: []}", "600: {qscale: null}\n  700: {dtype: []}"),
    ],
)
def test_one_changed_entry_of_newest_dialect_is_noticed(tmp_path: Path, old: str, new: str) -> None:
    assert differs_from_stored(edit_dialect(tmp_path, "rocm-libraries-2026/batch_prefill", old, new))


@pytest.mark.parametrize(
    ("file", "arch", "old", "new"),
    [
        ("ck-2025-06/batch_prefill", "gfx950", "rules: [group_mode_pads_both_seqlens, ", "rules: ["),
        ("ck-2025-06/batch_prefill", "gfx950", ", logits_soft_cap_without_bias]", "]"),
        ("ck-2025-06/batch_prefill", "gfx950", "lse: [true, false]", "lse: [true]"),
        ("ck-2025-06/batch_prefill", "gfx950", "pad: [psddv, psskddv]", "pad: [psskddv]"),
        ("ck-2025-06/batch_prefill", "gfx950", "vlayout: [row, col]", "vlayout: [row]"),
        ("ck-2025-06/batch_prefill", "gfx950", "dropout: [true, false]", "dropout: [false]"),
        ("ck-2025-06/batch_prefill", "gfx950", "simplified: [no, mask]", "simplified: [mask]"),
        ("rocm-libraries-2026/fwd", "gfx950", "sink: &both [true, false]", "sink: &both [false, true]"),
        ("rocm-libraries-2026/fwd", "gfx950", "128x128: &half_128\n", f"128x128: &half_128\n        - {TILE}\n"),
        (
            "rocm-libraries-2026/fwd",
            "gfx950",
            "hdim_q: [64, 128, 256]}\n    order: *loops",
            "hdim_q: [64, 128]}\n    order: *loops",
        ),
        ("rocm-libraries-2026/fwd", "gfx950", "pad: [npad, pddv, pssk]", "pad: [npad, pssk, pddv]"),
        ("rocm-libraries-2026/fwd", "gfx950", "    masks: generic\n", ""),
        ("rocm-libraries-2026/fwd", "gfx950", "mask: [no, causal]", "mask: [causal, no]"),
        ("rocm-libraries-2026/fwd", "gfx950", "v3_has_its_own_tiles,", ""),
        ("rocm-libraries-2026/fwd", "gfx950", "qr_and_qr_async_take_128_row_tiles,", ""),
        ("rocm-libraries-2026/fwd", "gfx950", "trload_takes_narrow_tiles_at_d128,", ""),
        ("rocm-libraries-2026/fwd", "gfx950", "d192x128_and_d160_are_inference_only,", ""),
        ("rocm-libraries-2026/fwd", "gfx950", "for: {dtype: [mxfp8]}", "for: {dtype: [mxfp4]}"),
        ("rocm-libraries-2026/fwd", "gfx950", "  default: {dtype: [fp16,", "  default: {dtype: [fp32, fp16,"),
        ("ck-2025-06/fwd_splitkv_combine", "gfx950", "[psdv, ps, pdv, npad]", "[psdv, pdv, ps, npad]"),
        ("ck-2025-11/fwd_splitkv_combine", "gfx950", "pad: [psdv, ps, pdv, npad]", "pad: [psdv, ps]"),
        ("rocm-libraries-2026/fwd_splitkv", "gfx950", "[psk, ps, pssk", "[ps, psk, pssk"),
        ("rocm-libraries-2026/fwd_splitkv", "gfx1201", ", nwarp_pipeline_for_several_n_waves]", "]"),
        ("rocm-libraries-2026/fwd_splitkv", "gfx1100", "b16x64x32x64", "b16x64x64x64"),
        ("ck-2025-06/fwd_appendkv", "gfx950", "[inter, half]", "[half, inter]"),
        ("ck-2025-06/fwd_appendkv", "gfx950", 'false: ""', "false: npagedkv"),
        ("rocm-libraries-2026/fwd_pagedkv", "gfx1100", "sink: [true, false]", "sink: [false, true]"),
        ("ck-2025-11/fwd_pagedkv", "gfx950", "[npad, pssk]", "[pssk, npad]"),
    ],
)
def test_changed_entry_of_table_is_noticed(tmp_path: Path, file: str, arch: str, old: str, new: str) -> None:
    name, _, family = file.partition("/")
    changed = edit_dialect(tmp_path, file, old, new).family(family)
    assert enumerate_names(changed, arch=arch) != names_of(name, family, arch)
