"""V3 in ckpm-extended: LSE, windows, pages, layouts, head dims beyond pull request 6054, and V2 beside it as it was."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from ckpm.matrix import explain
from ckpm.matrix.dialects import dialect
from ckpm.matrix.enumeration import enumerate_keys
from ckpm.matrix.keys import is_v3
from ckpm.matrix.problems.case import SuiteCase
from ckpm.matrix.problems.serving import missing_kernel, serving_kernels
from ckpm.matrix.problems.tables import problems
from ckpm.matrix.selection import Selection
from tests.unit.enumerated import names_of
from tests.unit.matrix.matrix_samples import reasons_against

NAME = "ckpm-extended"
EXTENDED = dialect(NAME).family("batch_prefill")
V3 = (
    "fmha_batch_prefill_d128_fp8bf16_group_ps64_bload_b256x64x128x128x64x128_r8x1x1_r8x1x1_w32x32x32_w32x32x32_"
    "qr_async_trload_v3_vr_pssk_nlogits_nbias_mc_nlse_ndropout_pertensor_nsink_linear_vllm_gfx950"
)


@pytest.mark.parametrize("masks", ["simplified", "generic"])
def test_v3_comes_first_and_v2_as_on_gfx942(masks: str) -> None:
    listed = names_of(NAME, "batch_prefill", "gfx950", mask_impl=masks)
    v3 = [name for name in listed if "_v3_" in name]
    assert listed == v3 + names_of(NAME, "batch_prefill", "gfx942", mask_impl=masks)


def test_why_of_pull_request_kernels_and_larger_pages() -> None:
    assert not reasons_against(NAME, V3)
    for page, rule in {16: "v3_beyond_pull_request_6054", 2048: "v3_takes_pages_up_to_1024"}.items():
        assert reasons_against(NAME, V3.replace("_ps64_", f"_ps{page}_")) == [rule]
    capped = V3.replace("_d128_", "_d256_").replace("128x128x64x128", "256x256x64x256").replace("_nlogits_", "_logits_")
    assert reasons_against("ckpm-serving", capped) == ["serving_has_v3_of_head_dim_256_without_soft_caps"]


def fp8(**changes: Any) -> SuiteCase:
    first = next(p for p in problems("dispatch") if p.name == "dispatch/chosen_2026.fp8")
    return dataclasses.replace(first, **changes)


BF16 = {"dtype": "bf16", "qscale": "no", "seqlens_q": (129,)}


@pytest.mark.parametrize(
    ("changes", "count"),
    [
        ({}, 1),
        ({"pool_pages": 400_000}, 1),  # over 2 GB: a page has a descriptor, wherever it is
        ({"page_size": 16, "pool_pages": 1_600_000, "kv_layout": "vectorized"}, 1),
        ({"hdim_q": 112}, 0),
        ({"hdim_q": 64}, 0),  # beside a V of 128
        ({"hdim_q": 64, "hdim_v": 64}, 1),
        (
            {"hdim_q": 64, "hdim_v": 64, "page_size": 1, "mask": "bottom_right", "window_left": 127, "window_right": 0},
            1,
        ),
        ({"hdim_q": 256, "hdim_v": 256}, 1),
        ({"kv_layout": "vectorized"}, 1),
        ({"hdim_q": 192}, 1),
        ({"hdim_q": 192, "page_size": 1, "pool_pages": 25_600_000}, 1),  # over 4 GB: pages of one token have addresses
        ({"hdim_q": 192, "kv_layout": "vectorized", "qscale": "kv_blockscale"}, 1),
        ({"lse": True}, 1),
        ({"lse": True, "page_size": 1}, 1),
        ({"mask": "bottom_right", "window_right": 0}, 2),  # the causal kernel, then the one of any bounds
        ({"mask": "bottom_right", "window_left": 20, "window_right": 0}, 1),
        ({"mask": "top_left", "window_right": 20, "page_size": 1}, 1),
        ({"mask": "bottom_right", "window_right": 0, "sink_logits": True}, 1),
        ({"sink_logits": True}, 0),
        ({"mask": "bottom_right", "window_left": 20, "window_right": 0, "sink_size": 4}, 0),
        (BF16, 1),
        ({**BF16, "seqlens_q": (128,)}, 0),  # a tile of V2 has all queries
        ({**BF16, "batch_invariant": True}, 0),  # the longest sequence of a batch must not decide
        ({**BF16, "hdim_q": 64, "hdim_v": 64, "mask": "window", "window_left": 20}, 1),
        ({**BF16, "mask": "window", "window_left": 20}, 1),
        ({**BF16, "mask": "bottom_right", "window_right": 0, "sink_logits": True}, 1),
        ({**BF16, "hdim_q": 256, "hdim_v": 256}, 0),
        ({**BF16, "kv_layout": "vectorized", "page_size": 1024, "lse": True}, 1),
    ],
)
def test_v3_serves_requests_within_its_limits(changes: dict[str, Any], count: int) -> None:
    able = serving_kernels(enumerate_keys(EXTENDED, arch="gfx950"), fp8(**{"page_size": 64, "hdim_v": 128, **changes}))
    assert ["_v3_" in key.name for key in able].count(True) == count
    assert count == 0 or "_v3_" in able[0].name


@pytest.mark.parametrize("change", [{"seqlens_q": (128,)}, {"batch_invariant": True}])
def test_missing_kernel_of_short_bf16_launch_names_limit_of_v3(change: dict[str, Any]) -> None:
    keys = [key for key in enumerate_keys(EXTENDED, arch="gfx950") if "_v3_" in key.name]
    launch = fp8(**BF16, page_size=64, hdim_v=128)
    assert missing_kernel(keys, launch) == ""
    assert missing_kernel(keys, dataclasses.replace(launch, **change)) == (
        "V3 takes bf16 for more than 128 queries, and never with batch_invariant"
    )


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"seqlens_q": (40,)}, "V3 takes bf16 for more than 128 queries, and never with batch_invariant"),
        ({"seqlens_q": (40,), "v3": "on"}, "V3 takes bf16 for more than 128 queries, and never with batch_invariant"),
        ({"seqlens_q": (40,), "v3": "off", "lse": True}, "no kernel with lse True among"),
        ({"hdim_q": 576, "hdim_v": 576}, "no head dims from 576x576 on"),
        ({"hdim_q": 96, "hdim_v": 96, "v3": "on"}, "V3 pads no head dim, and has none of 96"),
        ({"seqlens_q": (40,), "bias": "alibi"}, "no kernel with lse True among"),  # V3 has no bias
    ],
)
def test_refusal_has_the_reason_that_decides(change: dict[str, Any], reason: str) -> None:
    """V3 serves the long launch with LSE, V2 the short launch without: neither serves a short launch with LSE."""
    keys = [
        key
        for key in enumerate_keys(EXTENDED, arch="gfx950")
        if key.dtype == "bf16" and (is_v3(key.pipeline) or not (key.lse or key.logits))
    ]
    launch = fp8(**BF16, page_size=64, hdim_v=128, lse=True)
    assert missing_kernel(keys, launch) == ""
    assert missing_kernel(keys, dataclasses.replace(launch, seqlens_q=(40,), lse=False)) == ""
    assert missing_kernel(keys, dataclasses.replace(launch, **change)).startswith(reason)


def test_head_dim_without_tiles_of_v3_is_told_for_its_arch() -> None:
    """V2 has tiles for bf16 at head dim 512, V3 has 256 in fp8 alone."""
    name = V3.replace("_fp8bf16_", "_bf16_").replace("w32x32x32", "w32x32x16").replace("_pertensor_", "_nqscale_")
    name = name.replace("_d128_", "_d256_").replace("128x128x64x128", "256x256x64x256").replace("_nlse_", "_lse_")
    assert reasons_against(NAME, name) == ["v3_takes_head_dim_256_in_fp8"]
    name = name.replace("_d256_", "_d512_").replace("256x256x64x256", "512x512x64x512")
    (reason,) = explain.why(dialect(NAME), Selection(archs=("gfx950",), families=("batch_prefill",)), name).reasons
    assert (reason.kind, reason.text.rpartition(" is not ")[2]) == (
        "tile",
        "in the table for bf16 d512, which has none for gfx950",
    )
