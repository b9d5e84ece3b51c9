"""Kernels that split the keys: what ckpm-extended has of them, and the problems that they serve."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import pytest

from ckpm.kernels.families.table import FAMILIES
from ckpm.matrix.dialects import dialect
from ckpm.matrix.enumeration import enumerate_keys, enumerate_names
from ckpm.matrix.keys import MIXED_DTYPES
from ckpm.matrix.names import parse
from ckpm.matrix.problems.case import SuiteCase
from ckpm.matrix.problems.problem import serving_kernels
from ckpm.matrix.problems.tables import find
from ckpm.matrix.selection import Selection, select

EXTENDED = dialect("ckpm-extended").family("batch_prefill")
TILES = {
    (64, 64): "b64x128x32x64x32x64_r4x1x1_r4x1x1_w16x16x32_w16x16x16",
    (128, 128): "b64x128x64x128x64x128_r4x1x1_r4x1x1_w16x16x16_w16x16x16",
    (192, 128): "b64x128x32x128x32x192_r4x1x1_r4x1x1_w16x16x32_w16x16x16",
    (256, 256): "b64x128x32x256x32x256_r4x1x1_r4x1x1_w16x16x32_w16x16x16",
    (512, 512): "b64x128x32x512x16x512_r4x1x1_r4x1x1_w16x16x32_w16x16x16",
    (576, 512): "b64x128x32x512x16x576_r4x1x1_r4x1x1_w16x16x32_w16x16x16",
}
TILE = TILES[128, 128]
NAME = (
    "fmha_batch_prefill_d{hdim}_{dtype}_group_ps{page}_{load}_{tile}_qr_async_split_vr_psskddv_{cap}_nbias_{mask}_{lse}_"
    "ndropout_{scale}_{sink}_{layout}_{table}"
)


SMALL, WHOLE = ("16", "32", "64"), ("128", "256", "1024", "2048")  # pages of less than a tile of keys, and of tiles


def own_names() -> set[str]:
    """Names of every head dim, page and load of our selector, without bias and dropout, and with a sink under a mask.

    Head dims above 256 have linear pages, no soft cap and no sink. fp8 K and V have scales.
    """
    places = {
        ("linear", "1", "gload"),
        *itertools.product(("linear", "vectorized"), (*SMALL, *WHOLE), ("bload",)),
        *itertools.product(("linear", "vectorized"), (*SMALL, "x16"), ("gload",)),
    }
    scales = {
        "fp16": ["nqscale"],
        "bf16": ["nqscale"],
        **{dtype: ["pertensor", "kv_blockscale"] for dtype in MIXED_DTYPES},
    }
    masks = (("nmask", "nsink"), ("mask", "nsink"), ("mask", "sink"))
    return {
        NAME.format(
            hdim=hdim, dtype=dtype, page=page, load=load, tile=tile, cap=cap, mask=mask, lse=lse, scale=scale,
            sink=sink, layout=layout, table=table,
        )
        for (hdim, _), tile in TILES.items()
        for dtype, cap, lse, table in itertools.product(
            scales, ("logits", "nlogits"), ("lse", "nlse"), ("vllm", "sglang")
        )
        for scale in scales[dtype]
        for layout, page, load in places
        for mask, sink in masks
        if hdim <= 256 or (layout, cap, sink) == ("linear", "nlogits", "nsink")
        if scale != "kv_blockscale" or page in WHOLE
    }  # fmt: skip


def test_dialect_has_splits_of_each_head_dim_page_and_feature() -> None:
    names = [name for name in enumerate_names(EXTENDED, arch="gfx942") if "_split_" in name]
    assert len(names) == 11264
    assert set(names) == own_names()


def test_smoke_tier_has_each_value_of_split_kernels() -> None:
    smoke = [
        key
        for key in select(dialect("ckpm-extended"), Selection(archs=("gfx950",), tier="smoke"))
        if "_split_" in key.name
    ]
    assert len(smoke) == 12
    for field, values in {
        "dtype": {"bf16", "fp16", "bf16kvfp8"}, "hdim_q": {64, 128, 192, 256, 512, 576},
        "mask": {"no", "mask"}, "lse": {True, False}, "logits": {True, False},
        "sink": {True, False}, "kv_layout": {"linear", "vectorized"}, "kv_table": {"sglang", "vllm"},
        "load": {"bload", "gload"}, "page_size": {0, 1, 16, 128, 1024},
    }.items():  # fmt: skip
        assert {getattr(key, field) for key in smoke} == values, field


def case(**changes: Any) -> SuiteCase:
    return dataclasses.replace(find("batch-prefill/split.one"), **changes)


@pytest.mark.parametrize(
    ("changes", "pipelines"),
    [
        ({}, {"qr_async_split"}),
        ({"split_keys": 0, "page_size": 64}, {"qr_async"}),
        ({"page_size": 64}, {"qr_async_split"}),
        ({"hdim_q": 192}, {"qr_async_split"}),
        ({"dtype": "bf16kvfp8", "qscale": "perhead"}, {"qr_async_split"}),
        ({"bias": "alibi"}, set()),
        ({"p_drop": 0.1}, set()),
        ({"dtype": "fp8bf16", "qscale": "pertensor", "lse": False}, set()),
    ],
)
def test_problem_with_split_keys_is_served_by_split_alone(changes: dict[str, Any], pipelines: set[str]) -> None:
    able = serving_kernels(enumerate_keys(EXTENDED, arch="gfx950"), case(**changes))
    assert {key.pipeline for key in able} == pipelines


def test_other_dialects_serve_no_split() -> None:
    for name in ("rocm-libraries-2026", "prefill-v3", "ck-2025-06"):
        assert not serving_kernels(enumerate_keys(dialect(name).family("batch_prefill"), arch="gfx950"), case())


SYMBOL = (  # of clang 22, from a library's code object; V2's has no SplitProblem around the problem
    "_ZN7ck_tile6kentryILi2ENS_{kernel}INS_36BlockFmhaBatchPrefillPipelineProblemIDF16_DF16_DF16_ffDF16_hfDF16_fDF16_NS_"
    "13TileFmhaShapeINS_8sequenceIJLi64ELi128ELi64ELi128ELi64ELi128EEEENS6_IJLi4ELi1ELi1EEEENS6_IJLi16ELi16ELi16EEEES8_S9_"
    "Lb1EEELb1ENS_17ComposedAttentionILj4ELb1EEENS_30SimplifiedGenericAttentionMaskILb1EEELb0ELi1024ENS_26TileFmhaBatchPrefill"
    "TraitsILb1ELb1ELb1ELb1ELb1ELNS_22BlockAttentionBiasEnumE0ELb0ELb0ELb0ELNS_28BlockAttentionQuantScaleEnumE0ELin1ELb0ELb1E"
    "Li1024ELNS_37BlockAttentionKVCacheMemoryLayoutEnumE0ELNS_36BlockAttentionKVCacheLookupTableEnumE0E"
    "LNS_33BlockAttentionKVCacheLoadModeEnumE0EEEEEEEEEEEJNS_26FmhaBatchPrefillSplitKargsEEEEvDpT1_"
)
PIPELINE = "40BlockFmhaBatchPrefillPipelineQRKSVSAsync"


def test_symbols_of_split_and_v2_are_told_apart() -> None:
    """A kernel of splits is two symbols, with the same problem in both. V2's is a third."""
    symbols = [
        SYMBOL.format(kernel=f"27FmhaBatchPrefillSplitKernelINS_{PIPELINE}INS_28FmhaBatchPrefillSplitProblem"),
        SYMBOL.format(kernel="28FmhaBatchPrefillSplitCombineINS_28FmhaBatchPrefillSplitProblem"),
        SYMBOL.format(kernel=f"37FmhaBatchPrefillWithPagedKVCacheKernelINS_{PIPELINE}"),
    ]
    name = NAME.format(
        hdim=128, dtype="fp16", page=1024, load="bload", tile=TILE, cap="logits", mask="mask", lse="nlse",
        scale="nqscale", sink="sink", layout="vectorized", table="vllm",
    )  # fmt: skip
    split, v2 = parse(EXTENDED, name), parse(EXTENDED, name.replace("_split", ""))
    family = FAMILIES["batch_prefill"]
    assert [bool(family.symbol(split).search(symbol)) for symbol in symbols] == [True, True, False]
    assert [bool(family.symbol(v2).search(symbol)) for symbol in symbols] == [False, False, True]
    assert (family.variants(split, "gfx950"), family.variants(v2, "gfx950")) == (2, 1)
