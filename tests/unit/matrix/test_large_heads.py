"""Head dims 512 and 576/512: which kernels there are, and the problems they serve."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from typing import Any

import pytest

from ckpm.kernels.families.render import instance_text
from ckpm.kernels.families.spellings import features
from ckpm.matrix.dialects import dialect, dialect_names
from ckpm.matrix.enumeration import enumerate_keys
from ckpm.matrix.keys import Key, has_large_head
from ckpm.matrix.problems.case import complaint
from ckpm.matrix.problems.problem import loads
from ckpm.matrix.problems.serving import missing_load, serving_kernels
from ckpm.matrix.selection import Selection, select
from tests.unit.attention.fakes import make_case

EXTENDED, SERVING = (dialect(name).family("batch_prefill") for name in ("ckpm-extended", "ckpm-serving"))
LATENT: dict[str, Any] = {"hdim_q": 576, "hdim_v": 512}


def large(family: Any, arch: str = "gfx950") -> list[Key]:
    return [key for key in enumerate_keys(family, arch=arch) if has_large_head(key.hdim_q)]


case = functools.partial(make_case, pool_pages=100, hdim_q=512, hdim_v=512)


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_large_heads_have_what_models_call(arch: str) -> None:
    keys = large(EXTENDED, arch)
    assert len(keys) == 2 * len([key for key in keys if key.pipeline == "qr_async_split"]) == 1792
    assert {key.kv_layout for key in keys} == {"linear"}
    assert not any(key.logits or key.sink or key.dropout or key.bias != "no" for key in keys)


def test_no_other_dialect_has_large_heads() -> None:
    for name in set(dialect_names()) - {"ckpm-extended", "ckpm-serving"}:
        assert large(dialect(name).family("batch_prefill")) == []


def test_serving_has_pages_of_gemma_and_of_latent_caches() -> None:
    page_features = {(key.hdim_q, key.kv_table, key.page_size, key.lse) for key in large(SERVING)}
    both = (False, True)
    assert page_features == {
        *itertools.product((512,), ("sglang",), (1,), (False,)),
        *itertools.product((512,), ("sglang",), (16, 1024), both),
        *itertools.product((512,), ("vllm",), (16, 64, 0), both),
        (512, "vllm", 1, False),
        *itertools.product((576,), ("sglang",), (1, 16), both),
        *itertools.product((576,), ("vllm",), (16,), both),
    }


@pytest.mark.parametrize(("name", "count"), [("ckpm-extended", 5 + 3), ("ckpm-serving", 4 + 3)])
def test_smoke_tier_has_each_way_to_load(name: str, count: int) -> None:
    smoke = [
        key for key in select(dialect(name), Selection(archs=("gfx942",), tier="smoke")) if has_large_head(key.hdim_q)
    ]
    assert len(smoke) == count
    assert {key.hdim_q for key in smoke} == {512, 576}
    assert {key.page_size for key in smoke} >= {0, 1}


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
