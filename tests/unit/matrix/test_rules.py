"""Every rule keeps out the kernels it should and no others, and has its reason and upstream's source."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from ckpm.matrix.dialects import dialect, dialect_names
from ckpm.matrix.keys import Tile
from ckpm.matrix.rules import RULES, Rule, broken

TILE = Tile(128, 128, 32, 128, 32, 128, 4, 1, 1, 4, 1, 1, 32, 32, 16, 32, 32, 16)  # kN0 is 128
SHORT_Q = dataclasses.replace(TILE, max_seq_q=32)
UNSPLIT = dataclasses.replace(TILE, bn0=0)
SPLIT_N = dataclasses.replace(TILE, rm0=1, rn0=4)  # its waves lie along kN0
NARROW = Tile(128, 64, 32, 128, 16, 128, 4, 1, 1, 4, 1, 1, 32, 32, 16, 32, 32, 16)
LOW = Tile(64, 128, 64, 128, 64, 128, 4, 1, 1, 4, 1, 1, 16, 16, 16, 16, 16, 16)
V3 = Tile(256, 64, 128, 128, 64, 128, 8, 1, 1, 8, 1, 1, 32, 32, 32, 32, 32, 32)
GFX9 = {"arch_trait": "gfx9", "dtype": "fp16", "hdim_q": 128, "hdim_v": 128, "pipeline": "qr"}

# rule, what V3 has, what V2 takes
LEFT_TO_V2: tuple[tuple[str, dict[str, Any], dict[str, Any]], ...] = (
    ("v3_takes_fp8", {"dtype": "fp8bf16"}, {"dtype": "bf16"}),
    ("v3_takes_head_dim_128", {"hdim_q": 128, "hdim_v": 128}, {"hdim_q": 256, "hdim_v": 256}),
    ("v3_takes_linear_layout", {"kv_layout": "linear"}, {"kv_layout": "vectorized"}),
    ("v3_has_no_bias", {"bias": "no"}, {"bias": "alibi"}),
    ("v3_has_no_lse", {"lse": False}, {"lse": True}),
    ("v3_has_no_dropout", {"dropout": False}, {"dropout": True}),
    ("v3_has_no_sink", {"sink": False}, {"sink": True}),
    ("v3_has_no_window", {"mask": "causal"}, {"mask": "generic"}),
    ("v3_takes_pages_up_to_1024", {"page_size": 64}, {"page_size": 2048}),
    ("v3_has_one_load_for_each_page_size", {"page_size": 16, "load": "bload"}, {"page_size": 16, "load": "gload"}),
    ("v3_has_one_load_for_each_page_size", {"page_size": 1, "load": "gload"}, {"page_size": 1, "load": "bload"}),
    ("v3_takes_head_dim_256_in_fp8", {"hdim_q": 256, "dtype": "fp8bf16"}, {"hdim_q": 256, "dtype": "bf16"}),
    ("v3_takes_head_dim_256_in_fp8", {"hdim_q": 192, "dtype": "fp16"}, {"hdim_q": 256, "dtype": "fp16"}),
    (
        "serving_has_v3_of_head_dim_256_without_soft_caps",
        {"hdim_q": 128, "logits": True},
        {"hdim_q": 256, "logits": True},
    ),
    *[
        ("v3_beyond_pull_request_6054", {**own, **beyond}, own)
        for own in (
            {"dtype": "fp8bf16", "hdim_q": 128, "kv_layout": "linear", "page_size": 16, "lse": False, "mask": "no"},
        )
        for beyond in (
            {"dtype": "bf16"},
            {"hdim_q": 192},
            {"kv_layout": "vectorized"},
            {"page_size": 64},
            {"lse": True},
            {"mask": "generic"},
        )
    ],
)
FP8_KV = {
    "dtype": "bf16kvfp8", "hdim_q": 128, "page_size": 16, "kv_table": "vllm", "mask": "mask", "lse": False,
    "qscale": "pertensor",
}  # fmt: skip
PAGES = {
    "dtype": "bf16", "hdim_q": 128, "hdim_v": 128, "page_size": 64, "kv_layout": "linear", "kv_table": "sglang",
    "logits": False, "qscale": "no",
}  # fmt: skip
HDIM_256 = {"hdim_q": 256, "hdim_v": 256}
TOKENS_2D = {"page_size": 1, "kv_table": "vllm"}
CASES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [  # rule, values it lets pass, values it excludes
    ("group_mode_pads_both_seqlens", {"mode": "group", "pad": "psskddv"}, {"mode": "group", "pad": "psddv"}),
    ("group_mode_pads_both_seqlens", {"mode": "batch", "pad": "psddv"}, {"mode": "group", "pad": "psddv"}),
    ("logits_soft_cap_without_bias", {"logits": True, "bias": "no"}, {"logits": True, "bias": "alibi"}),
    ("logits_soft_cap_without_bias", {"logits": False, "bias": "bias"}, {"logits": True, "bias": "bias"}),
    ("group_mode_only", {"mode": "group"}, {"mode": "batch"}),
    ("sink_needs_mask", {"sink": True, "mask": "causal"}, {"sink": True, "mask": "no"}),
    ("sink_needs_mask", {"sink": False, "mask": "no"}, {"sink": True, "mask": "no"}),
    ("fp8_needs_qscale", {"dtype": "fp8bf16", "qscale": "pertensor"}, {"dtype": "fp8bf16", "qscale": "no"}),
    ("qscale_needs_fp8", {"dtype": "bf16", "qscale": "no"}, {"dtype": "bf16", "qscale": "kv_blockscale"}),
    *[
        (
            "fp8_is_inference_only",
            {"dtype": "bf16", "bias": "no", "lse": False, "dropout": False, **feature},
            {"dtype": "fp8bf16", "bias": "no", "lse": False, "dropout": False, **feature},
        )
        for feature in ({"bias": "alibi"}, {"lse": True}, {"dropout": True})
    ],
    *[
        (
            "fp8_of_v2_is_inference_only",
            {
                "pipeline": "qr_async_trload_v3",
                "dtype": "fp8bf16",
                "bias": "no",
                "lse": False,
                "dropout": False,
                **feature,
            },
            {"pipeline": "qr_async", "dtype": "fp8bf16", "bias": "no", "lse": False, "dropout": False, **feature},
        )
        for feature in ({"bias": "alibi"}, {"lse": True}, {"dropout": True})
    ],
    ("page_size_1_is_linear", {"page_size": 1, "kv_layout": "linear"}, {"page_size": 1, "kv_layout": "vectorized"}),
    (
        "page_size_1_is_linear",
        {"page_size": 16, "kv_layout": "vectorized"},
        {"page_size": 1, "kv_layout": "vectorized"},
    ),
    (
        "kv_blockscale_within_page",
        {"qscale": "kv_blockscale", "page_size": 128, "tile": TILE},
        {"qscale": "kv_blockscale", "page_size": 127, "tile": TILE},
    ),
    (
        "kv_blockscale_within_page",
        {"qscale": "pertensor", "page_size": 16, "tile": TILE},
        {"qscale": "kv_blockscale", "page_size": 16, "tile": TILE},
    ),
    (
        "beyond_upstreams_axes",
        {"pipeline": "qr_async", "dtype": "bf16", "hdim_q": 192, "hdim_v": 128, "page_size": 16},
        {"pipeline": "qr_async", "dtype": "fp8bf16", "hdim_q": 256, "hdim_v": 256, "page_size": 1024},
    ),
    (
        "beyond_upstreams_axes",
        {"pipeline": "qr_async", "dtype": "fp16", "hdim_q": 128, "hdim_v": 128, "page_size": 64},
        {"pipeline": "qr_async", "dtype": "fp16", "hdim_q": 128, "hdim_v": 128, "page_size": 16},
    ),
    (
        "beyond_upstreams_axes",
        {"pipeline": "qr_async_trload_v3", "dtype": "fp8bf16", "hdim_q": 128, "hdim_v": 128, "page_size": 16},
        {"pipeline": "qr_async", "dtype": "fp8bf16", "hdim_q": 128, "hdim_v": 128, "page_size": 16},
    ),
    (
        "beyond_upstreams_axes",
        {"pipeline": "qr_async", "dtype": "bf16kvfp8", "hdim_q": 128, "hdim_v": 128, "page_size": 16},
        {"pipeline": "qr_async", "dtype": "bf16", "hdim_q": 128, "hdim_v": 128, "page_size": 16},
    ),
    *(
        (
            "fp8_kv_is_inference_only",
            {"dtype": "bf16", "bias": "no", "dropout": False, **feature},
            {"dtype": "bf16kvfp8", "bias": "no", "dropout": False, **feature},
        )
        for feature in ({"bias": "alibi"}, {"bias": "bias"}, {"dropout": True})
    ),
    (
        "fp8_kv_has_one_load_for_pages_of_one_token",
        {"dtype": "fp16kvfp8", "page_size": 1, "load": "gload"},
        {"dtype": "fp16kvfp8", "page_size": 1, "load": "bload"},
    ),
    (
        "whole_keys_take_tiles_of_128_rows",
        {"pipeline": "qr_async_split", "hdim_q": 64, "tile": dataclasses.replace(TILE, bm0=64)},
        {"pipeline": "qr_async", "hdim_q": 64, "tile": dataclasses.replace(TILE, bm0=64)},
    ),
    ("fp8_needs_qscale", {"dtype": "bf16kvfp8", "qscale": "kv_blockscale"}, {"dtype": "bf16kvfp8", "qscale": "no"}),
    *[
        (rule, {"pipeline": "qr_async", **never}, {"pipeline": "qr_async_split", **never})
        for rule, never in (
            ("serving_splits_masked_keys", {"hdim_q": 128, "mask": "no", "logits": False}),
            ("serving_splits_masked_keys", {"hdim_q": 128, "mask": "mask", "logits": True}),
            ("serving_splits_masked_keys", {"hdim_q": 192, "mask": "mask", "logits": False}),
            ("split_has_no_bias", {"bias": "alibi"}),
            ("split_has_no_dropout", {"dropout": True}),
            ("split_takes_tiles_of_64_rows", {"tile": TILE}),
            ("split_reads_tokens_by_64_bits", {"page_size": 1, "load": "bload"}),
        )
    ],
    (
        "split_reads_tokens_by_64_bits",
        {"pipeline": "qr_async_split", "page_size": 16, "load": "bload"},
        {"pipeline": "qr_async_split", "page_size": 1, "load": "bload"},
    ),
    *[
        (rule, {"hdim_q": 256, **never}, {"hdim_q": hdim, **never})
        for hdim in (512, 576)
        for rule, never in (
            ("large_heads_have_what_models_call", {"bias": "alibi", "dropout": False, "logits": False, "sink": False}),
            ("large_heads_have_what_models_call", {"bias": "no", "dropout": True, "logits": False, "sink": False}),
            ("large_heads_have_what_models_call", {"bias": "no", "dropout": False, "logits": True, "sink": False}),
            ("large_heads_have_what_models_call", {"bias": "no", "dropout": False, "logits": False, "sink": True}),
            ("large_heads_read_linear_pages", {"kv_layout": "vectorized"}),
            ("large_heads_read_tokens_by_64_bits", {"page_size": 1, "load": "bload"}),
        )
    ],
    (
        "gload_only_for_small_pages",
        {"load": "gload", "page_size": 127, "tile": TILE},
        {"load": "gload", "page_size": 128, "tile": TILE},
    ),
    (
        "gload_only_for_small_pages",
        {"load": "bload", "page_size": 1024, "tile": TILE},
        {"load": "gload", "page_size": 1024, "tile": TILE},
    ),
    ("any_page_has_64_bit_loads", {"page_size": 0, "load": "gload"}, {"page_size": 0, "load": "bload"}),
    ("any_page_has_64_bit_loads", {"page_size": 16, "load": "bload"}, {"page_size": 0, "load": "bload"}),
    *[
        (
            "any_page_is_inference_only",
            {"page_size": 0, "bias": "alibi", "dropout": False},
            {"page_size": 0, "bias": "no", "dropout": False, **feature},
        )
        for feature in ({"bias": "bias"}, {"dropout": True})
    ],
    ("group_mode_pads_seqlen_q", {"mode": "group", "pad": "psdv"}, {"mode": "group", "pad": "pdv"}),
    ("group_mode_pads_seqlen_q", {"mode": "batch", "pad": "npad"}, {"mode": "group", "pad": "npad"}),
    *[
        (
            "nwarp_pipeline_for_several_n_waves",
            {"pipeline": pipeline, "tile": right},
            {"pipeline": pipeline, "tile": wrong},
        )
        for pipeline, right, wrong in (("qr", TILE, SPLIT_N), ("qr_nwarp_sshuffle", SPLIT_N, TILE))
    ],
    ("group_mode_pads_seqlen_q", {"mode": "group", "pad": "psd"}, {"mode": "group", "pad": "pd"}),
    ("dbias_needs_bias", {"bias": "bias", "dbias": True}, {"bias": "alibi", "dbias": True}),
    ("dbias_needs_bias", {"bias": "no", "dbias": False}, {"bias": "no", "dbias": True}),
    *[
        (
            "trload_on_gfx950_in_16_bits",
            {"arch_trait": "gfx950", "dtype": "bf16", "trload": True},
            {"arch_trait": "gfx950", "dtype": "bf16", "trload": True, **other},
        )
        for other in ({"arch_trait": "gfx9"}, {"arch_trait": "gfx12"}, {"dtype": "fp32"})
    ],
    *[
        (
            "trload_pads_both_head_dims_by_8",
            {"trload": True, "dpad": dpad, "dvpad": dpad},
            {"trload": True, "dpad": other, "dvpad": dpad},
        )
        for dpad, other in ((0, 8), (8, 0), (0, 1))
    ],
    (
        "trload_pads_both_head_dims_by_8",
        {"trload": False, "dpad": 1, "dvpad": 1},
        {"trload": True, "dpad": 1, "dvpad": 1},
    ),
    *[
        (
            "hdim_q_padded_by_8_needs_hdim_v_too",
            {"trload": False, "dpad": dpad, "dvpad": dvpad},
            {"trload": False, "dpad": dvpad, "dvpad": dpad},
        )
        for dpad, dvpad in ((0, 8), (1, 8))
    ],
    *[
        (
            "short_q_tiles_serve_unmasked_batches",
            {"mode": "batch", "mask": "no", "tile": SHORT_Q},
            {"mode": "batch", "mask": "no", "tile": SHORT_Q, **other},
        )
        for other in ({"mode": "group"}, {"mask": "mask"}, {"mask": "causal"})
    ],
    (
        "short_q_tiles_serve_unmasked_batches",
        {"mode": "group", "mask": "mask", "tile": TILE},
        {"mode": "group", "mask": "mask", "tile": SHORT_Q},
    ),
    *[
        (
            "deterministic_dq_is_split_by_kn0",
            {"deterministic": deterministic, "tile": right},
            {"deterministic": deterministic, "tile": wrong},
        )
        for deterministic, right, wrong in ((True, TILE, UNSPLIT), (False, UNSPLIT, TILE))
    ],
    *[
        (
            "integrations_pad_both_head_dims_alike",
            {"receipt": receipt, "dpad": 1, "dvpad": 1},
            {"receipt": receipt, "dpad": 0, "dvpad": 1},
        )
        for receipt in (2, 3, 4)
    ],
    (
        "integrations_pad_both_head_dims_alike",
        {"receipt": 300, "dpad": 0, "dvpad": 1},
        {"receipt": 3, "dpad": 0, "dvpad": 1},
    ),
    (
        "fp32_pads_both_head_dims_alike",
        {"dtype": "fp16", "dpad": 0, "dvpad": 1},
        {"dtype": "fp32", "dpad": 0, "dvpad": 1},
    ),
    ("fp32_has_receipts_of_its_own", {"receipt": 800, "dtype": "fp32"}, {"receipt": 600, "dtype": "fp32"}),
    ("fp32_has_receipts_of_its_own", {"receipt": 0, "dtype": "bf16"}, {"receipt": 801, "dtype": "bf16"}),
    ("fp8_has_no_sink", {"dtype": "bf16", "sink": True}, {"dtype": "fp8bf16", "sink": True}),
    *[
        (
            "d192x128_and_d160_are_inference_only",
            {"hdim_q": 192, "hdim_v": 192, "bias": "no", "dropout": False, **feature},
            {"hdim_q": hdim_q, "hdim_v": hdim_v, "bias": "no", "dropout": False, **feature},
        )
        for hdim_q, hdim_v in ((192, 128), (160, 160))
        for feature in ({"bias": "alibi"}, {"dropout": True})
    ],
    *[
        ("qr_and_qr_async_take_128_row_tiles", {**GFX9, "tile": TILE, **passes}, {**GFX9, **excluded})
        for passes, excluded in (
            ({}, {"tile": NARROW}),  # 64 keys at d128
            ({"hdim_q": 64, "hdim_v": 64, "tile": NARROW}, {"hdim_q": 64, "hdim_v": 64, "tile": LOW}),
            ({"tile": LOW}, {"tile": NARROW}),
            ({"tile": NARROW, "pipeline": "qr_async_trload"}, {"tile": NARROW, "pipeline": "qr_async"}),
            ({"tile": NARROW, "arch_trait": "gfx12"}, {"tile": NARROW, "arch_trait": "gfx950"}),
            ({"tile": NARROW, "dtype": "fp32"}, {"tile": NARROW, "dtype": "fp8bf16"}),
        )
    ],
    *[
        ("qr_takes_no_64_wide_slices_at_d128", {**GFX9, "tile": LOW, **passes}, {**GFX9, "tile": LOW})
        for passes in (
            {"tile": TILE},
            {"pipeline": "qr_async"},
            {"dtype": "mxfp8"},
            {"hdim_q": 192},
            {"arch_trait": "gfx12"},
        )
    ],
    *[
        (
            "trload_takes_narrow_tiles_at_d128",
            {"hdim_q": 128, "hdim_v": 128, "pipeline": "qr_async_trload", "tile": TILE, **passes},
            {"hdim_q": 128, "hdim_v": 128, "pipeline": "qr_async_trload", "tile": TILE},
        )
        for passes in ({"tile": NARROW}, {"pipeline": "qr_async"}, {"hdim_q": 256, "hdim_v": 256})
    ],
    *[
        (
            "v3_has_its_own_tiles",
            {"arch_trait": "gfx950", "pipeline": pipeline, "tile": tile},
            {"arch_trait": "gfx950", "pipeline": pipeline, "tile": other},
        )
        for pipeline, tile, other in (("qr_async_trload_v3", V3, TILE), ("qr_async", TILE, V3))
    ],
    *[
        (rule, {"pipeline": pipeline, **accepted}, {"pipeline": "qr_async_trload_v3", **left_to_v2})
        for rule, has, left_to_v2 in LEFT_TO_V2
        for pipeline, accepted in (("qr_async_trload_v3", has), ("qr_async", left_to_v2))
    ],
    (
        "fp32_minimal_set_has_simplified_masks",
        {"receipt": 801, "mask_impl": "simplified"},
        {"receipt": 801, "mask_impl": "generic"},
    ),
    (
        "fp32_minimal_set_has_simplified_masks",
        {"receipt": 800, "mask_impl": "generic"},
        {"receipt": 801, "mask_impl": "generic"},
    ),
    ("serving_takes_bf16_and_fp8", {"dtype": "fp8bf16"}, {"dtype": "fp16"}),
    *(
        ("serving_has_fp8_kv_beside_bf16_where_callers_mix", FP8_KV | accepted, FP8_KV | refused)
        for accepted, refused in (
            ({}, {"mask": "no"}),
            ({"dtype": "bf16", "lse": True}, {"lse": True}),
            ({"kv_table": "sglang", "page_size": 1}, {"kv_table": "sglang"}),
            ({"hdim_q": 576, "kv_table": "sglang", "page_size": 1, "lse": True}, {"hdim_q": 576}),
            ({"hdim_q": 256}, {"hdim_q": 192}),
            ({"hdim_q": 512}, {"hdim_q": 512, "lse": True}),
            ({"hdim_q": 64}, {"qscale": "kv_blockscale", "page_size": 1024}),
        )
    ),
    ("serving_has_no_bias_and_no_dropout", {"bias": "no", "dropout": False}, {"bias": "alibi", "dropout": False}),
    ("serving_has_no_bias_and_no_dropout", {"bias": "no", "dropout": False}, {"bias": "no", "dropout": True}),
    *(
        ("serving_has_the_callers_pages", PAGES | accepted, PAGES | refused)
        for accepted, refused in (
            ({"kv_layout": "vectorized"}, {}),
            (HDIM_256 | {"dtype": "fp8bf16", "qscale": "pertensor"}, HDIM_256),
            ({"hdim_q": 64, "hdim_v": 64} | TOKENS_2D, {"hdim_q": 192} | TOKENS_2D),
            ({"hdim_q": 192, "page_size": 16, "kv_table": "vllm"}, {"hdim_q": 192, "kv_table": "vllm"}),
        )
    ),
    ("serving_has_no_sink_tokens", {"sink": False}, {"sink": True}),
    ("serving_has_the_models_soft_caps", {"hdim_q": 256, "logits": True}, {"hdim_q": 64, "logits": True}),
    (
        "serving_has_lse_where_callers_merge",
        {"hdim_q": 128, "hdim_v": 128, "page_size": 1, "kv_layout": "linear", "kv_table": "sglang", "lse": False},
        {"hdim_q": 128, "hdim_v": 128, "page_size": 1, "kv_layout": "linear", "kv_table": "sglang", "lse": True},
    ),
    (
        "serving_has_lse_where_callers_merge",
        {"hdim_q": 576, "hdim_v": 512, "page_size": 1, "kv_layout": "linear", "kv_table": "sglang", "lse": True},
        {"hdim_q": 512, "hdim_v": 512, "page_size": 1, "kv_layout": "linear", "kv_table": "sglang", "lse": True},
    ),
    (
        "serving_has_lse_where_callers_merge",
        {"hdim_q": 64, "hdim_v": 64, "page_size": 64, "kv_layout": "vectorized", "kv_table": "vllm", "lse": True},
        {"hdim_q": 64, "hdim_v": 64, "page_size": 64, "kv_layout": "vectorized", "kv_table": "sglang", "lse": True},
    ),
    (
        "serving_has_no_mask_for_merged_chunks",
        {"mask": "no", "lse": True, "page_size": 16, "kv_table": "vllm"},
        {"mask": "no", "lse": False, "page_size": 16, "kv_table": "vllm"},
    ),
    (
        "serving_has_no_mask_for_merged_chunks",
        {"mask": "no", "lse": False, "page_size": 16, "kv_table": "sglang"},
        {"mask": "no", "lse": False, "page_size": 1, "kv_table": "sglang"},
    ),
]


@pytest.mark.parametrize(("name", "accepted", "refused"), CASES)
def test_rule_accepts_and_refuses(name: str, accepted: dict[str, Any], refused: dict[str, Any]) -> None:
    rule = RULES[name]
    assert set(accepted) == set(refused) == set(rule.fields)
    assert broken((rule,), accepted) == []
    assert broken((rule,), refused) == [rule]


def test_every_rule_is_tested_and_used_by_dialect() -> None:
    assert {name for name, _, _ in CASES} == set(RULES)
    families = [family for name in dialect_names() for family in dialect(name).families.values()]
    used = {rule.name for family in families for rule in family.rules}
    assert used == set(RULES)


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda rule: rule.name)
def test_every_rule_gives_reason_and_source(rule: Rule) -> None:
    assert rule.reason
    assert "\n" not in rule.reason
    assert "codegen" in rule.source
