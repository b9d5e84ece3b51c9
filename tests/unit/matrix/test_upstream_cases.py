"""The cases that upstreams publish are in our tables: counts and values as their documents and test files give them.

aiter: op_tests/test_batch_prefill.py of 2026-07-28 (ROCm/aiter, 044f906a), nine functions whose parameters make 41,144
cases. CK: rocm-libraries pull request 6653, whose functional matrix names seven axes and 96 cases.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import Counter
from typing import Any

import pytest
import yaml

from ckpm.matrix.problems.case import SUITES, SuiteCase
from ckpm.matrix.problems.tables import FOLDER, problems

# function -> our suite, how many cases its parameters make, and how many are launches of their own that CK can do
AITER = {
    "test_batch_prefill_page_size_1_linear_sglang": ("batch-prefill", 3072, 960),
    "test_batch_prefill": ("batch-prefill", 36864, 17280),
    "test_batch_prefill_linear_vs_vectorized": ("batch-prefill", 512, 512),
    "test_batch_prefill_large_kvcache": ("large-kv", 384, 192),
    "test_batch_prefill_4gb_boundary_targeted": ("large-kv", 16, 12),
    "test_batch_prefill_kv_blockscale_pytest": ("batch-prefill", 96, 96),
    "test_batch_prefill_aick1171_oob_page_table_read": ("page-fault", 6, 6),
    "test_batch_prefill_aick1171_hard_fault_via_guard_page": ("page-fault", 2, 2),
    "test_batch_prefill_sink": ("batch-prefill", 192, 128),
}
BOTH = {"no", "bottom_right"}
CAPS = {0.0, 30.0}

# function -> field -> every value that it has; ragged batches draw their lengths, so that those are of batch 1
VALUES: dict[str, dict[str, set[Any]]] = {
    "test_batch_prefill_page_size_1_linear_sglang": {
        **{"dtype": {"bf16", "fp16", "fp8bf16"}, "batch": {1, 3, 7}, "heads": {(6, 1), (3, 1)}, "hdim_q": {128}},
        **{"lengths": {(1024, 1024), (1023, 1024), (1024, 1023), (2048, 2048)}, "mask": BOTH, "logits_soft_cap": CAPS},
        **{"page_size": {1}, "kv_table": {"sglang"}, "storage": {"separate", "gaps"}, "lse": {False, True}},
    },
    "test_batch_prefill": {
        **{"dtype": {"bf16", "fp16", "fp8bf16"}, "batch": {1, 3, 7}, "heads": {(8, 1), (16, 1)}, "hdim_q": {128, 256}},
        "lengths": {(128, 128), (1024, 1024), (1023, 1024), (1024, 1023), (2048, 2048), (8192, 8192)},
        **{"page_size": {16, 1024}, "kv_layout": {"linear", "vectorized"}, "kv_table": {"sglang", "vllm"}},
        **{"mask": BOTH, "logits_soft_cap": CAPS, "storage": {"separate", "gaps"}, "lse": {False, True}},
    },
    "test_batch_prefill_linear_vs_vectorized": {
        **{"dtype": {"bf16", "fp8bf16"}, "batch": {1, 3}, "heads": {(8, 1), (16, 1)}, "hdim_q": {128, 256}},
        **{"lengths": {(128, 128), (1024, 1024), (2048, 2048), (4096, 4096)}, "page_size": {1024}, "mask": BOTH},
        **{"kv_table": {"sglang", "vllm"}, "logits_soft_cap": CAPS},
    },
    "test_batch_prefill_large_kvcache": {
        **{"dtype": {"bf16", "fp8bf16"}, "batch": {1, 4}, "heads": {(8, 8), (16, 8)}, "hdim_q": {128}, "mask": BOTH},
        **{"page_size": {1, 16, 1024}, "kv_layout": {"linear", "vectorized"}, "page_order": {"high", "scrambled"}},
        "qscale": {"no", "pertensor", "kv_blockscale"},
    },
    "test_batch_prefill_4gb_boundary_targeted": {
        **{"dtype": {"bf16", "fp8bf16"}, "batch": {1}, "heads": {(8, 8)}, "lengths": {(128, 2048)}, "mask": BOTH},
        **{"page_size": {1024}, "qscale": {"no", "pertensor", "kv_blockscale"}},
    },
    "test_batch_prefill_kv_blockscale_pytest": {
        **{"dtype": {"fp8bf16"}, "qscale": {"kv_blockscale"}, "batch": {1, 4}, "heads": {(32, 8), (16, 16)}},
        **{"lengths": {(128, 1024), (512, 2048), (1024, 4096)}, "page_size": {1024}, "mask": BOTH},
        **{"kv_table": {"sglang", "vllm"}, "logits_soft_cap": CAPS, "kv_layout": {"linear"}},
    },
    "test_batch_prefill_aick1171_oob_page_table_read": {
        **{"pool_pages": {160, 164, 168, 176, 208, 256}, "lengths": {(2042, 2042)}, "heads": {(10, 1)}},
        **{"page_size": {16}, "dtype": {"bf16"}, "mask": {"bottom_right"}, "table_end": {"exact"}},
    },
    "test_batch_prefill_aick1171_hard_fault_via_guard_page": {
        **{"pool_pages": {160, 192}, "lengths": {(2042, 2042)}, "heads": {(10, 1)}, "page_size": {16}},
        **{"dtype": {"bf16"}, "mask": {"bottom_right"}, "table_end": {"exact"}},
    },
    "test_batch_prefill_sink": {
        **{"dtype": {"bf16", "fp16"}, "sink_size": {4, 16}, "sink_logits": {False, True}, "window_left": {128, 1024}},
        **{"lengths": {(32, 512), (128, 512), (32, 2048), (128, 2048)}, "heads": {(8, 1), (4, 4)}, "batch": {1, 2}},
        **{"page_size": {16}, "hdim_q": {128}, "kv_layout": {"vectorized"}},
    },
}


def group_of(function: str) -> str:
    """The group is named after the function."""
    return "aiter_" + (function.removeprefix("test_batch_prefill_").removeprefix("test_"))


def cases_of(suite: str, group: str) -> list[SuiteCase]:
    return [problem for problem in problems(suite, "nightly") if problem.group == group]


def value_of(problem: SuiteCase, field: str) -> Any:
    if field == "heads":
        return problem.nhead_q, problem.nhead_k
    if field == "lengths":
        return problem.seqlens_q[0], problem.seqlens_k[0]
    return getattr(problem, field)


def nominal(suite: str, group: str) -> int:
    """The product of the axes' lengths, from the file itself."""
    table = yaml.safe_load((FOLDER / f"{suite}.yaml").read_text())
    return math.prod(len(axis) for axis in table["groups"][group]["axes"].values())


def test_nine_functions_make_41144_cases() -> None:
    counts = {function: nominal(suite, group_of(function)) for function, (suite, _, _) in AITER.items()}
    assert counts == {function: published for function, (_, published, _) in AITER.items()}
    assert sum(counts.values()) == 41_144


@pytest.mark.parametrize("function", AITER)
def test_function_has_all_its_values_and_every_case_that_fits(function: str) -> None:
    suite, _, fitting = AITER[function]
    cases = cases_of(suite, group_of(function))
    assert len(cases) == fitting
    for field, values in VALUES[function].items():
        counted = [case for case in cases if field != "lengths" or case.batch == 1]
        assert {value_of(case, field) for case in counted} == values, field
    for case in (
        case for case in cases if case.batch > 1
    ):  # lengths are drawn, and no sequence has fewer keys than queries
        assert all(k >= q >= 1 for q, k in zip(case.seqlens_q, case.seqlens_k, strict=True))


def test_no_two_cases_of_function_are_same_launch() -> None:
    """Only their names and the numbers drawn would differ. Ragged batches may draw the same lengths."""
    for function, (suite, _, _) in AITER.items():
        alike = Counter(
            repr(dataclasses.replace(case, name="", tier="", seed=0))
            for case in cases_of(suite, group_of(function))
            if case.batch == 1
        )
        assert max(alike.values()) == 1, function


def test_two_pages_of_boundary_test_lie_after_line() -> None:
    """The pool ends with them, and its pages in the order `high` are its last: 2 or 1 MiB each, K as V."""
    for case in cases_of("large-kv", "aiter_4gb_boundary_targeted"):
        page = 1024 * case.nhead_k * case.hdim_q * (2 if case.dtype == "bf16" else 1)
        assert (case.pool_pages - 2) * page in (2**31, 2**32)
        assert case.page_order == "high"
        assert case.pages_of(0) == 2


def test_each_function_is_in_full_tier_and_some_in_smoke() -> None:
    tiers = {tier: {case.group for suite in SUITES for case in problems(suite, tier)} for tier in ("smoke", "full")}
    assert {group_of(function) for function in AITER} <= tiers["full"]
    # kernels of a smoke library serve these
    assert tiers["smoke"] >= {"aiter_page_size_1_linear_sglang", "aiter_batch_prefill", "aiter_large_kvcache"}


def test_pull_request_6653() -> None:
    """The pull request names page size, layout, dtype (bf16 and quantised fp8), mask, soft cap, LSE, batch: 96 cases.

    Of the combinations of all seven 136 can be: pages of one token have no vectors, block scales need pages of 1024,
    fp8 has no LSE. Without LSE there are 96. The document doesn't say which it means, so that all 136 are here.
    """
    paged = [(1, "linear"), *itertools.product((16, 1024), ("linear", "vectorized"))]
    kinds = [(page, layout, scale) for page, layout in paged for scale in ("no", "pertensor")]
    kinds += [(1024, layout, "kv_blockscale") for layout in ("linear", "vectorized")]
    others = list(itertools.product(BOTH, CAPS, (1, 4)))
    expected = {(*kind, *other, False) for kind in kinds for other in others}
    assert len(expected) == 96
    with_lse = {(page, layout, "no", *other, True) for page, layout in paged for other in others}
    got = [
        (case.page_size, case.kv_layout, case.qscale, case.mask, case.logits_soft_cap, case.batch, case.lse)
        for group in ("pull_6653", "pull_6653_lse")
        for case in cases_of("batch-prefill", group)
    ]
    assert len(got) == len(set(got)) == 96 + 40
    assert set(got) == expected | with_lse
    assert len(cases_of("batch-prefill", "pull_6653")) == 96
