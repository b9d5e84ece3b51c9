"""Pages of 32 and 256 tokens and of any multiple of 16: names, and a kernel for each size that callers have."""

from __future__ import annotations

import functools

import pytest

from ckpm.base.errors import NameSyntaxError
from ckpm.matrix.dialects import dialect
from ckpm.matrix.enumeration import enumerate_keys
from ckpm.matrix.explain import find
from ckpm.matrix.keys import ANY_PAGE, takes_pages
from ckpm.matrix.problems.case import complaint
from ckpm.matrix.problems.serving import missing_load, serving_kernels
from tests.unit.attention.fakes import make_case

EXTENDED, SERVING = (dialect(name).family("batch_prefill") for name in ("ckpm-extended", "ckpm-serving"))
NAME = (
    "fmha_batch_prefill_d128_bf16_group_psx16_gload_b128x128x32x128x32x128_r4x1x1_r4x1x1_w32x32x16_w32x32x16_qr_async_vr_"
    "psskddv_nlogits_nbias_mask_nlse_ndropout_nqscale_nsink_linear_vllm"
)


case = functools.partial(make_case, pool_pages=100, mask="bottom_right", window_right=0, kv_table="vllm", tile_rows=128)


@pytest.mark.parametrize(("page", "taken"), [(16, True), (48, True), (4112, True), (0, False), (24, False)])
def test_multiples_of_16_are_pages_of_any_size(page: int, taken: bool) -> None:
    assert takes_pages(ANY_PAGE, page) == taken
    assert (complaint(case(page_size=page)) is None) == taken


@pytest.mark.parametrize("table", ["vllm", "sglang"])
@pytest.mark.parametrize("layout", ["linear", "vectorized"])
def test_every_multiple_of_16_has_kernel_for_any_pool(layout: str, table: str) -> None:
    keys = [key for key in enumerate_keys(EXTENDED, arch="gfx950") if key.dtype == "bf16" and key.hdim_q == 128]
    for page in (*range(16, 1100, 16), 2048, 4096):
        for pool in (100, 2**24):
            posed = case(page_size=page, kv_layout=layout, kv_table=table, pool_pages=pool)
            able = serving_kernels(keys, posed)
            assert {key.page_size for key in able} - {page} == {ANY_PAGE}
            assert missing_load([key for key in keys if key.page_size == ANY_PAGE], posed) is None


@pytest.mark.parametrize("layout", ["linear", "vectorized"])
def test_serving_has_vllm_s_pages_at_each_head_dim(layout: str) -> None:
    keys = enumerate_keys(SERVING, arch="gfx942")
    for hdim in (64, 128, 256):
        for page in (16, 32, 48, 64, 256, 528, 1024):
            for lse in (False, True):
                posed = case(page_size=page, kv_layout=layout, lse=lse, hdim_q=hdim, hdim_v=hdim)
                assert serving_kernels(keys, posed), (hdim, page, lse)


def test_page_scales_need_kernel_of_their_page() -> None:
    """A tile has one scale of K, so pages hold whole tiles."""
    keys = enumerate_keys(EXTENDED, arch="gfx950")
    scaled = {"dtype": "fp8bf16", "qscale": "kv_blockscale"}
    assert {key.page_size for key in serving_kernels(keys, case(page_size=256, **scaled))} == {256}
    assert not serving_kernels(keys, case(page_size=528, **scaled))


MIXED = NAME.replace("_bf16_", "_bf16kvfp8_").replace("_nqscale_", "_pertensor_")


@pytest.mark.parametrize(
    ("name", "general"),
    [
        (NAME.replace("psx16", "ps48"), NAME),
        (NAME.replace("psx16_gload", "ps48_bload"), NAME),
        (MIXED.replace("_pertensor_", "_perhead_"), MIXED),
        (MIXED.replace("psx16", "ps16").replace("_pertensor_", "_perhead_"), MIXED.replace("psx16", "ps16")),
        (MIXED.replace("psx16", "ps528").replace("_pertensor_", "_perhead_"), MIXED),
    ],
)
def test_name_without_own_kernel_is_told_the_general_one(name: str, general: str) -> None:
    with pytest.raises(NameSyntaxError, match=f"has no kernel of its own: such calls take {general}. Ask for that"):
        find(dialect("ckpm-extended"), name, "simplified")


@pytest.mark.parametrize("name", [NAME.replace("psx16", "ps40"), NAME.replace("_nqscale_", "_perhead_")])
def test_name_that_no_general_kernel_serves_is_told_none(name: str) -> None:
    with pytest.raises(NameSyntaxError) as caught:
        find(dialect("ckpm-extended"), name, "simplified")
    assert "such calls take" not in str(caught.value)
