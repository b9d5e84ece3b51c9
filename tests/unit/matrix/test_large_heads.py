"""Head dims 512 and 576/512: which kernels there are, and the problems they serve."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import pytest

from ckpm.kernels.families.render import instance_text
from ckpm.kernels.families.spellings import features
from ckpm.matrix.dialects import dialect
from ckpm.matrix.enumeration import enumerate_keys
from ckpm.matrix.keys import Key, has_large_head
from ckpm.matrix.problems.case import complaint
from ckpm.matrix.problems.problem import loads
from ckpm.matrix.problems.serving import missing_load, serving_kernels
from tests.unit.attention.fakes import make_case

EXTENDED, SERVING = (dialect(name).family("batch_prefill") for name in ("ckpm-extended", "ckpm-serving"))
LATENT: dict[str, Any] = {"hdim_q": 576, "hdim_v": 512}


def large(family: Any, arch: str = "gfx950") -> list[Key]:
    return [key for key in enumerate_keys(family, arch=arch) if has_large_head(key.hdim_q)]


case = functools.partial(make_case, pool_pages=100, hdim_q=512, hdim_v=512)


@pytest.mark.parametrize(
    ("dims", "served"),
    [
        ((512, 512), {512, 576}),
        ((264, 264), {512, 576}),
        ((256, 264), {512, 576}),
        ((576, 512), {576}),
        ((520, 128), {576}),
        ((584, 512), set()),
        ((576, 520), set()),
        ((256, 256), {256}),
    ],
)
def test_head_dims_are_padded_to_the_next_kernel(dims: tuple[int, int], served: set[int]) -> None:
    able = serving_kernels(enumerate_keys(EXTENDED, arch="gfx950"), case(hdim_q=dims[0], hdim_v=dims[1], page_size=64))
    assert {key.hdim_q for key in able} == served


@pytest.mark.parametrize("page", [1, 16, 48, 64, 128, 528, 2048])
@pytest.mark.parametrize("dims", [{}, LATENT])
def test_every_linear_page_has_kernel_for_any_pool(dims: dict[str, Any], page: int) -> None:
    keys = large(EXTENDED)
    for pool in (100, 2**24):
        posed = case(page_size=page, pool_pages=pool, **dims)
        assert serving_kernels(keys, posed)
        assert missing_load(keys, posed) is None
    assert loads(case(**dims)) == ("gload",)


def test_latent_storage_has_v_within_k() -> None:
    latent = case(storage="latent", page_size=16, **LATENT)
    assert complaint(latent) is None
    assert latent.page_elements("v") == latent.page_elements("k") == 16 * 576
    for changes in ({"hdim_v": 584}, {"values": "page_number"}, {"kv_layout": "vectorized"}):
        assert complaint(dataclasses.replace(latent, **changes)) is not None


def test_instance_adds_head_dim_576_to_ck_s_list() -> None:
    """CK refuses head dims that its list of tile lengths has not."""
    texts = {key.hdim_q: instance_text(key, features("ckpm-extended")) for key in large(EXTENDED)}
    assert "ceil_to_qualified_tile_length<576>" in texts[576]
    assert "ceil_to_qualified_tile_length" not in texts[512]
