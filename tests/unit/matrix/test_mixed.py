"""fp8 K and V beside a Q of 16 bits in ckpm-extended: which kernels there are, and the problems that they serve."""

from __future__ import annotations

import dataclasses
import functools
import itertools

import pytest

from ckpm.matrix.dialects import dialect
from ckpm.matrix.enumeration import enumerate_keys
from ckpm.matrix.keys import MIXED_DTYPES
from ckpm.matrix.problems.case import CHECKS, complaint
from ckpm.matrix.problems.problem import loads
from ckpm.matrix.problems.serving import missing_load, serving_kernels
from ckpm.matrix.problems.tables import problems
from ckpm.matrix.selection import Selection, select
from tests.unit.attention.fakes import make_case

NAME = "ckpm-extended"
EXTENDED = dialect(NAME).family("batch_prefill")


make = functools.partial(make_case, suite="batch-prefill", dtype="bf16kvfp8", qscale="perhead")


def test_perhead_is_served_by_kernels_of_pertensor() -> None:
    """The kernel takes a stride from head to head, 0 for one scale."""
    keys = select(dialect(NAME), Selection(archs=("gfx950",), tier="full"))
    heads, tensor = (serving_kernels(keys, make(qscale=scale)) for scale in ("perhead", "pertensor"))
    assert heads == tensor != ()
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
