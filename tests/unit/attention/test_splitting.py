"""Splits over the keys: the dispatcher's choice and its reason, and the workspaces of a plan."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ckpm.attention.dispatcher import ChoiceExplanation
from ckpm.attention.problems.validation import validate
from ckpm.attention.registry import Registry
from ckpm.attention.splitting import LEAST_KEYS, best_split
from ckpm.base.errors import NoKernelError, ProblemError
from ckpm.matrix.problems.problem import Problem, Strides
from tests.unit.attention.fakes import built, make_dispatcher

UNITS = 256
VERIFY = Problem(
    family="batch_prefill", mode="group", batch=1, seqlen_q=4, total_q=4, seqlen_k=65536, nhead_q=128, nhead_k=8,
    page_size=64, pool_pages=2000, mask="bottom_right", window_right=0, lse=True,
)  # fmt: skip


def both() -> Registry:
    """Kernels of 64-token pages that split the keys, and those that don't."""
    fields: dict[str, Any] = {"dtype": "bf16", "hdim_q": 128, "page_size": 64, "load": ("bload", "gload")}
    return Registry(built("batch_prefill", "ckpm-extended", **fields))


def splits(keys: int, problem: Problem = VERIFY) -> int:
    return -(-problem.seqlen_k // keys)


def test_few_queries_of_long_keys_are_split_over_gpu() -> None:
    """8 KV heads have 8 workgroups without a split: 256 compute units need 32 of each at least."""
    split = best_split(VERIFY, UNITS)
    assert split
    assert splits(split.keys) * 8 >= UNITS
    assert splits(split.keys) <= 128
    assert "for 256 compute units" in split.why


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"batch": 512, "total_q": 2048, "nhead_k": 128}, "a workgroup of each head fills the GPU"),
        ({"seqlen_k": 256}, "two steps of keys are shorter than a second launch"),
        ({"window_left": 127}, "a window leaves two steps of keys"),
    ],
)
def test_full_gpu_short_keys_and_windows_are_not_split(changes: dict[str, Any], why: str) -> None:
    split = best_split(replace(VERIFY, **changes), UNITS)
    assert split
    assert not split.keys, why
    assert split.why.startswith("keys are not split")


@pytest.mark.parametrize("changes", [{"seqlen_q": 65}, {"bias": "alibi"}, {"p_drop": 0.5}, {"family": "fwd_pagedkv"}])
def test_problems_that_no_kernel_splits_have_no_split(changes: dict[str, Any]) -> None:
    assert best_split(replace(VERIFY, **changes), UNITS) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"hdim_q": 576, "hdim_v": 512, "nhead_k": 1, "page_size": 1},
        {"hdim_q": 576, "hdim_v": 512, "nhead_k": 1, "page_size": 1, "dtype": "bf16kvfp8", "qscale": "pertensor"},
        {"hdim_q": 64, "hdim_v": 64},
        {"hdim_q": 256, "hdim_v": 256, "dtype": "bf16kvfp8", "qscale": "pertensor"},
    ],
)
def test_each_head_dim_is_split_over_gpu(changes: dict[str, Any]) -> None:
    """128 heads on one have two tiles of 64 rows: 256 compute units need 128 splits, or each tile as long."""
    posed = replace(VERIFY, seqlen_q=1, total_q=1, **changes)
    split = best_split(posed, UNITS)
    assert split
    assert splits(split.keys, posed) * posed.nhead_k * -(-posed.nhead_q // posed.nhead_k // 64) >= UNITS / 2
    assert not best_split(replace(posed, hdim_q=1024, hdim_v=1024), UNITS)


def test_split_that_kernels_cannot_view_is_not_chosen() -> None:
    """Q of 128 heads 140,000 rows apart spans more than 32 bits, which the kernel has for all heads of a KV head."""
    dispatcher, _ = make_dispatcher(both())
    apart = Strides(0, 140_000 * 128, 128)
    wide = replace(VERIFY, nhead_k=1, strides=(("q", apart),))
    assert dispatcher.plan(wide).problem.split_keys == 0
    assert "spans" in str(dispatcher.why(wide))


@pytest.mark.parametrize("longest", [2**17, 2**21, 2**24])
def test_longest_that_no_sequence_has_still_splits_over_gpu(longest: int) -> None:
    """A captured graph, or a list on the GPU, gives far more keys than there are. Its splits divide what there is."""
    split = best_split(replace(VERIFY, seqlen_k=longest), UNITS)
    assert split
    assert 128 >= split.splits >= UNITS / 8
    posed = split.pose(replace(VERIFY, seqlen_k=longest))
    assert (posed.split_keys, posed.key_splits) == (LEAST_KEYS, split.splits)


def test_plan_splits_and_has_workspaces() -> None:
    dispatcher, device = make_dispatcher(both())
    plan = dispatcher.plan(VERIFY)
    assert plan.stages[0].key.pipeline == "qr_async_split"
    split = best_split(VERIFY, UNITS)
    assert split
    assert (plan.problem.split_keys, plan.problem.splits) == (LEAST_KEYS, splits(split.keys))
    rows = plan.problem.splits * 128 * 4
    assert plan.workspaces == {"o_acc": rows * 128 * 4, "lse_acc": rows * 4}
    device.chosen = plan.kernels
    plan.run(dict.fromkeys((*plan.inputs, *plan.outputs), 4096))
    (launched,) = device.launched
    assert (launched.split_keys, launched.seqlen_k) == (LEAST_KEYS, (plan.problem.splits - 1) * LEAST_KEYS + 1)
    assert launched.o_acc
    assert launched.lse_acc
    explanation = str(dispatcher.why(VERIFY))
    assert f"keys are split into ranges of {split.keys}" in explanation
    assert "it serves, but ranks lower" in explanation


def test_plan_without_split_says_why() -> None:
    dispatcher, _ = make_dispatcher(both())
    short = replace(VERIFY, seqlen_k=200)
    plan = dispatcher.plan(short)
    assert (plan.stages[0].key.pipeline, plan.problem.split_keys, plan.workspaces) == ("qr_async", 0, {})
    assert "keys are not split: 128 workgroups without splits for 256 compute units" in str(dispatcher.why(short))


def against_splits(explained: ChoiceExplanation) -> set[str]:
    return {why for kernel, why in explained.refused.items() if kernel.key.pipeline == "qr_async_split"}


def test_why_of_chosen_split_judges_other_split_kernels_by_it() -> None:
    dispatcher, _ = make_dispatcher(both())
    reasons = against_splits(dispatcher.why(VERIFY))
    assert {"no kernel with lse True", "it serves, but ranks lower"} <= reasons
    assert not [reason for reason in reasons if "pipeline" in reason]


def test_split_without_kernel_is_reported_in_note() -> None:
    fields: dict[str, Any] = {
        "dtype": "bf16kvfp8", "hdim_q": 128, "page_size": 64, "lse": False, "pipeline": "qr_async",
    }  # fmt: skip
    dispatcher, _ = make_dispatcher(Registry((*both().instances(), *built("batch_prefill", "ckpm-extended", **fields))))
    explained = dispatcher.why(replace(VERIFY, dtype="bf16kvfp8", qscale="pertensor", lse=False))
    assert explained.choice
    assert (explained.choice.problem.split_keys, explained.choice.stages[0].key.pipeline) == (0, "qr_async")
    assert "keys are not split: no kernel with " in explained.choice.note
    assert against_splits(explained) == {"no kernel with dtype bf16kvfp8"}


def test_why_of_problem_that_asks_for_no_split_says_so() -> None:
    dispatcher, _ = make_dispatcher(both())
    explained = dispatcher.why(replace(VERIFY, batch_invariant=True))
    assert against_splits(explained) == {"keys are not split: the problem has no split_keys"}


def test_registry_without_split_kernels_takes_v2() -> None:
    fields: dict[str, Any] = {"dtype": "bf16", "hdim_q": 128, "page_size": 64, "pipeline": "qr_async"}
    dispatcher, _ = make_dispatcher(Registry(built("batch_prefill", "ckpm-extended", **fields)))
    assert dispatcher.plan(VERIFY).stages[0].key.pipeline == "qr_async"
    with pytest.raises(NoKernelError, match="pipeline qr_async_split"):
        dispatcher.plan(replace(VERIFY, split_keys=1024))


def test_batch_invariant_problem_is_split_as_it_asks_alone() -> None:
    """A split that pays depends on the batch. A split that the problem names begins at the sequence's own keys."""
    dispatcher, _ = make_dispatcher(both())
    problem = replace(VERIFY, batch_invariant=True)
    assert dispatcher.plan(problem).problem.split_keys == 0
    batches = replace(problem, split_keys=1024), replace(problem, split_keys=1024, batch=9, total_q=20)
    plans = [dispatcher.plan(problem) for problem in batches]
    assert {(plan.problem.split_keys, plan.named, plan.kernels) for plan in plans} == {(1024, True, plans[0].kernels)}
    longer = dispatcher.plan(replace(problem, split_keys=1024, seqlen_k=3000))
    assert longer.kernels == plans[0].kernels


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"split_keys": 100}, "split_keys 100 is not a multiple of 128"),
        (
            {"split_keys": 384},
            "171 splits of 384 keys, and at most 128 are combined: give a split_keys of at least 512",
        ),
        (
            {"split_keys": 1024, "family": "fwd_pagedkv", "kv_table": "vllm", "table_width": 1024},
            "belongs to batch_prefill",
        ),
        ({"split_keys": 1024, "bias": "alibi"}, "have no bias and no dropout"),
        ({"split_keys": -1}, "split_keys is -1"),
    ],
)
def test_impossible_split_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ProblemError, match=message):
        validate(replace(VERIFY, **changes))
