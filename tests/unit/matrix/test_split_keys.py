"""Kernels that split the keys: what ckpm-extended has of them, and the problems that they serve."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from ckpm.kernels.families.table import FAMILIES
from ckpm.matrix.dialects import dialect
from ckpm.matrix.enumeration import enumerate_keys
from ckpm.matrix.names import parse
from ckpm.matrix.problems.case import SuiteCase
from ckpm.matrix.problems.serving import serving_kernels
from ckpm.matrix.problems.tables import find

EXTENDED = dialect("ckpm-extended").family("batch_prefill")
NAME = (
    "fmha_batch_prefill_d128_fp16_group_ps1024_bload_b64x128x64x128x64x128_r4x1x1_r4x1x1_w16x16x16_w16x16x16_"
    "qr_async_split_vr_psskddv_logits_nbias_mask_nlse_ndropout_nqscale_sink_vectorized_vllm"
)


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
    split, v2 = parse(EXTENDED, NAME), parse(EXTENDED, NAME.replace("_split", ""))
    family = FAMILIES["batch_prefill"]
    assert [bool(family.symbol(split).search(symbol)) for symbol in symbols] == [True, True, False]
    assert [bool(family.symbol(v2).search(symbol)) for symbol in symbols] == [False, False, True]
    assert (family.variants(split, "gfx950"), family.variants(v2, "gfx950")) == (2, 1)
