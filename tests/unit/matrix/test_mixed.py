"""fp8 K and V beside a Q of 16 bits in ckpm-extended: which kernels there are, and the problems that they serve."""

from __future__ import annotations

import dataclasses
import functools
import itertools

import pytest

from ckpm.matrix.dialects import dialect, dialect_names
from ckpm.matrix.enumeration import enumerate_keys, enumerate_names
from ckpm.matrix.keys import MIXED_DTYPES
from ckpm.matrix.problems.case import CHECKS, complaint
from ckpm.matrix.problems.problem import loads, missing_load, serving_kernels
from ckpm.matrix.problems.tables import problems
from ckpm.matrix.selection import Selection, select
from tests.unit.attention.fakes import make_case

NAME = "ckpm-extended"
EXTENDED = dialect(NAME).family("batch_prefill")
# head dim -> tiles, those of fp16 and bf16
TILES = {
    64: ("b128x128x32x64x32x64_r4x1x1_r4x1x1_w32x32x16_w32x32x16",),
    128: (
        "b64x128x64x128x64x128_r4x1x1_r4x1x1_w16x16x16_w16x16x16",
        "b128x128x32x128x32x128_r4x1x1_r4x1x1_w32x32x16_w32x32x16",
    ),
    192: ("b128x128x32x128x32x192_r4x1x1_r4x1x1_w32x32x16_w32x32x16",),
    256: ("b128x128x32x256x32x256_r4x1x1_r4x1x1_w32x32x16_w32x32x16",),
    512: ("b64x128x32x512x16x512_r4x1x1_r4x1x1_w16x16x32_w16x16x16",),
    576: ("b64x128x32x512x16x576_r4x1x1_r4x1x1_w16x16x32_w16x16x16",),
}
LOADS = {
    "1": ("gload",),
    **dict.fromkeys(("16", "32", "64"), ("bload", "gload")),
    **dict.fromkeys(("128", "256", "1024", "2048"), ("bload",)),
    "x16": ("gload",),
}
MASKS = {
    "simplified": (
        "nmask_{lse}_ndropout_{scale}_nsink",
        "mask_{lse}_ndropout_{scale}_nsink",
        "mask_{lse}_ndropout_{scale}_sink",
    ),
    "generic": (
        "nmask_{lse}_ndropout_{scale}_nsink",
        *(f"{mask}_{{lse}}_ndropout_{{scale}}_{sink}" for mask in ("mc", "mg") for sink in ("nsink", "sink")),
    ),
}


def expected_names(masks: str) -> set[str]:
    """Issue 30, part 1: every page size, both layouts and tables, scales of tensors and of pages of a whole tile.

    Head dims above 256 have linear pages, no soft cap and no sink tokens.
    """
    names = set()
    for dtype, hdim, (page, modes) in itertools.product(MIXED_DTYPES, TILES, LOADS.items()):
        layouts = ("linear",) if page == "1" else ("linear", "vectorized")
        scales = ("pertensor", "kv_blockscale") if modes == ("bload",) else ("pertensor",)
        others = itertools.product(
            modes,
            TILES[hdim],
            ("logits", "nlogits"),
            MASKS[masks],
            ("lse", "nlse"),
            scales,
            layouts,
            ("vllm", "sglang"),
        )
        for load, tile, cap, rest, lse, scale, layout, table in others:
            if hdim > 256 and ((cap, layout) != ("nlogits", "linear") or rest.endswith("_sink")):
                continue
            names.add(
                f"fmha_batch_prefill_d{hdim}_{dtype}_group_ps{page}_{load}_{tile}_qr_async_vr_psskddv_{cap}_nbias_"
                f"{rest.format(lse=lse, scale=scale)}_{layout}_{table}"
            )
    return names


@pytest.mark.parametrize("masks", ["simplified", "generic"])
@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_dialect_names_equal_issue_list(arch: str, masks: str) -> None:
    listed = [name for name in enumerate_names(EXTENDED, arch=arch, mask_impl=masks) if "kvfp8" in name]
    listed = [name for name in listed if "_split_" not in name]  # of which test_split_keys.py has the names
    assert len(listed) == len(set(listed)) == {"simplified": 7440 + 512, "generic": 12400 + 768}[masks]
    assert set(listed) == expected_names(masks)


def test_serving_has_mixed_dtypes_of_its_callers() -> None:
    keys = enumerate_keys(dialect("ckpm-serving").family("batch_prefill"), arch="gfx950")
    mixed = [key for key in keys if key.dtype in MIXED_DTYPES]
    assert {key.dtype for key in mixed} == {"bf16kvfp8"}
    assert {(key.hdim_q, key.page_size, key.kv_layout, key.kv_table, key.lse) for key in mixed} == {
        *itertools.product((64, 128, 256), (16, 64, 0), ("linear", "vectorized"), ("vllm",), (False,)),
        *itertools.product((64, 128, 256, 512), (1,), ("linear",), ("sglang", "vllm"), (False,)),
        *itertools.product((512,), (16, 64, 0), ("linear",), ("vllm",), (False,)),
        *itertools.product((576,), (1,), ("linear",), ("sglang",), (False, True)),
    }


def test_no_other_dialect_has_mixed_dtypes() -> None:
    for name in {*dialect_names()} - {NAME, "ckpm-serving"}:
        keys = enumerate_names(dialect(name).family("batch_prefill"), arch="gfx950")
        assert not any("kvfp8" in key for key in keys)


make = functools.partial(make_case, suite="batch-prefill", dtype="bf16kvfp8", qscale="perhead")


def test_perhead_is_served_by_kernels_of_pertensor() -> None:
    """The kernel takes a stride from head to head, 0 for one scale."""
    keys = select(dialect(NAME), Selection(archs=("gfx950",), tier="full"))
    heads, tensor = (serving_kernels(keys, make(qscale=scale)) for scale in ("perhead", "pertensor"))
    assert heads == tensor != []
    assert {key.qscale for key in heads} == {"pertensor"}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"qscale": "no"}, "fp8 needs a qscale"),
        ({"dtype": "fp8bf16"}, "perhead scales are for fp16kvfp8 and bf16kvfp8"),
        ({"dtype": "bf16"}, "fp8 needs a qscale, other dtypes have none"),
        ({"hdim_q": 72}, "multiples of 16 for bf16kvfp8"),
        ({"kv_layout": "vectorized", "page_size": 8}, "pages of a multiple of 16 tokens"),
        ({}, None),
        ({"kv_layout": "vectorized", "page_size": 16, "hdim_q": 80}, None),
    ],
)
def test_complaint_names_what_does_not_fit(fields: dict[str, object], message: str | None) -> None:
    why_not = complaint(make(**fields))
    assert (why_not is None) if message is None else message in str(why_not)


def test_bytes_of_tensors_follow_their_dtypes() -> None:
    """K and V have one byte an element, so 16 to a vector; Q and O have two."""
    p = make(pool_pages=10, nhead_k=2, page_size=16)
    assert (p.q_dtype, p.kv_dtype, p.o_dtype) == ("bf16", "fp8", "bf16")
    assert (p.element_bytes, p.vector, p.pool_bytes) == (1, 16, 10 * 16 * 2 * 128)
    fp8 = dataclasses.replace(p, dtype="fp8bf16", qscale="pertensor")
    assert (fp8.q_dtype, fp8.kv_dtype, fp8.o_dtype) == ("fp8bf16", "fp8bf16", "bf16")
    assert (fp8.scales_q, p.scales_q) == (True, False)


def test_pages_of_one_token_have_one_load() -> None:
    assert loads(make()) == ("gload",)
    assert set(loads(make(dtype="bf16", qscale="no"))) == {"bload", "gload"}


def test_suites_ask_mixed_kernels_for_each_feature() -> None:
    """Smoke cases of each suite; every scale, both layouts and tables, both dtypes, and bit-for-bit checks."""
    cases = [p for suite in ("batch-prefill", "page-fault", "large-kv", "dispatch") for p in problems(suite)]
    mixed = [p for p in cases if p.dtype in MIXED_DTYPES]
    assert {p.suite for p in mixed} == {"batch-prefill", "page-fault", "large-kv", "dispatch"}
    keys = select(dialect(NAME), Selection(archs=("gfx950",), tier="smoke"))
    for p in mixed:
        assert serving_kernels(keys, p), p.name
        assert missing_load(keys, p) is None, p.name
    wanted: dict[str, set[object]] = {
        "dtype": {*MIXED_DTYPES}, "qscale": {"pertensor", "perhead", "kv_blockscale"},
        "kv_layout": {"linear", "vectorized"}, "kv_table": {"sglang", "vllm"}, "page_size": {1, 16, 64, 128, 1024},
        "hdim_q": {64, 128, 192, 256, 576},
    }  # fmt: skip
    for field, values in wanted.items():
        assert {getattr(p, field) for p in mixed} >= values, field
    assert {check for p in mixed for check in p.checks} >= set(CHECKS) - {
        *("linear_vs_vectorized", "sglang_vs_vllm", "paged_vs_contiguous", "exact_vs_padded", "v3_off")
    }


def test_full_tier_has_every_page_size_with_every_head_dim() -> None:
    cases = [p for p in problems("batch-prefill", "full") if p.group == "mixed_cross"]
    pairs = {(p.hdim_q, p.page_size, p.dtype) for p in cases}
    assert pairs == set(itertools.product((64, 128, 192, 256), (1, 16, 64, 128, 256, 1024, 2048), MIXED_DTYPES))
    keys = enumerate_keys(EXTENDED, arch="gfx950")
    for p in cases:
        assert serving_kernels(keys, p), p.name
