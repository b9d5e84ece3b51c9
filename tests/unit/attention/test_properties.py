"""Random problems of every family: a plan whose kernels have what the problem asks for, or an error of ours."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ckpm.attention.dispatcher import Dispatcher
from ckpm.attention.launch.arguments import outputs
from ckpm.attention.problems.validation import validate
from ckpm.attention.registry import Registry
from ckpm.attention.selection import BATCH_INVARIANT, KNOWN, MEASURED
from ckpm.base.errors import CkPrefillError, NoKernelError
from ckpm.matrix.problems.problem import CHOICES, Problem, Strides
from tests.unit.attention.fakes import FakeDevice, built

FAMILIES = ("fwd", "fwd_splitkv", "fwd_pagedkv", "batch_prefill")
INTEGERS = st.one_of(st.integers(-2, 300), st.sampled_from([2**31 - 1, 2**31, 2**40, -(2**31)]))
STRIDES = st.builds(Strides, INTEGERS, INTEGERS, INTEGERS)
_HOSTILE: dict[str, st.SearchStrategy[Any]] = {
    **{name: st.sampled_from([*choices, "else"]) for name, choices in CHOICES.items()},
    **dict.fromkeys(("lse", "sink_logits", "alibi_per_batch", "store_randval", "ragged", "cu_seqlens"), st.booleans()),
    **dict.fromkeys(("batch", "seqlen_q", "seqlen_k", "total_q", "total_k", "nhead_q", "nhead_k", "hdim_q"), INTEGERS),
    **dict.fromkeys(("hdim_v", "page_size", "pool_pages", "table_width", "splits", "window_left"), INTEGERS),
    **dict.fromkeys(("p_drop", "logits_soft_cap", "scale"), st.floats()),
    "arch": st.sampled_from(["gfx950", "gfx942", "gfx1", ""]),
    "strides": st.lists(st.tuples(st.sampled_from(["q", "k", "v", "o", "x"]), STRIDES), max_size=2).map(tuple),
}
HOSTILE = st.fixed_dictionaries({}, optional=_HOSTILE).map(lambda fields: Problem(**fields))


@cache
def registry() -> Registry:
    """Bf16 kernels of head dims 128 that aiter has for these families, without column-major V."""
    families = (*FAMILIES, "fwd_splitkv_combine")
    kernels = [kernel for family in families for kernel in built(family, hdim_q=128, dtype="bf16")]
    return Registry(kernel for kernel in kernels if kernel.key.vlayout != "col" and kernel.key.qscale in ("", "no"))


@st.composite
def sensible(draw: st.DrawFn) -> Problem:
    """Problems that contradict themselves in nothing."""
    family = draw(st.sampled_from(FAMILIES))
    mode = draw(st.sampled_from(["batch", "group"]))
    batch, seqlen_q, seqlen_k = draw(st.integers(1, 4)), draw(st.integers(1, 300)), draw(st.integers(1, 600))
    mask = draw(st.sampled_from(["no", "top_left", "bottom_right"]))
    page = {"fwd_pagedkv": 128, "batch_prefill": 1}.get(family, 0)
    pages = -(-seqlen_k // page) if page else 0
    group = draw(st.integers(1, 4))
    capped = draw(st.booleans())
    return Problem(
        family=family, mode=mode, batch=batch, seqlen_q=seqlen_q, seqlen_k=seqlen_k,
        total_q=batch * seqlen_q if mode == "group" else 0,
        total_k=batch * seqlen_k if mode == "group" and not page else 0,
        nhead_q=group * 2, nhead_k=2, hdim_q=8 * draw(st.integers(1, 17)), hdim_v=8 * draw(st.integers(1, 17)),
        dtype=draw(st.sampled_from(["bf16", "bf16", "bf16", "fp16"])), mask=mask,
        window_right=0 if mask != "no" else -1, lse=draw(st.booleans()), page_size=page, pool_pages=batch * pages,
        table_width=pages if page > 1 else 0, kv_table="vllm" if page > 1 else "sglang",
        splits=draw(st.integers(1, 8)) if family == "fwd_splitkv" else 0, logits_soft_cap=30.0 if capped else 0.0,
        bias="no" if capped else draw(st.sampled_from(["no", "bias", "alibi"])),
        p_drop=draw(st.sampled_from([0.0, 0.0, 0.2])),
    )  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(HOSTILE)
def test_any_problem_is_posed_or_refused_by_error_of_ours(problem: Problem) -> None:
    message = ""
    try:
        assert validate(problem) is problem
    except CkPrefillError as error:
        message = str(error)
    assert len(message) < 5000


@settings(max_examples=80, deadline=None)
@given(sensible(), st.sampled_from([order for order in KNOWN if order != MEASURED]))
def test_plan_has_kernels_that_problem_asks_for(problem: Problem, order: str) -> None:
    assume(order != BATCH_INVARIANT or (problem.family == "batch_prefill" and not problem.p_drop))  # else it is refused
    dispatcher = Dispatcher(registry(), FakeDevice(), order=order)
    validate(problem)
    try:
        plan = dispatcher.plan(problem)
    except NoKernelError:
        assert dispatcher.why(problem).choice is None
        return
    key = plan.stages[0].key
    p = problem
    assert (key.family, key.dtype, key.mode, key.bias) == (p.family, p.dtype, p.mode, p.bias)
    assert (key.logits, key.mask != "no") == (p.logits_soft_cap > 0, p.mask != "no")
    assert key.hdim_q >= p.hdim_q
    assert key.hdim_v >= p.hdim_v
    if p.family != "fwd_splitkv":  # whose LSE is its combine stage's
        assert key.lse == p.lse
        assert key.dropout == (p.p_drop > 0)
    assert {stage.library for stage in plan.stages} == {plan.library.path}
    pointers = dict.fromkeys((*plan.inputs, *plan.outputs, *plan.workspaces), 4096)
    filled: Any = plan.arguments(pointers)
    assert (filled.seqlen_q, filled.nhead_k, filled.hdim_v) == (p.seqlen_q, p.nhead_k, p.hdim_v)
    assert outputs(p)["o"] == np.zeros((p.batch * p.seqlen_q, p.nhead_q, p.hdim_v), np.uint16).nbytes


@settings(max_examples=25, deadline=None)
@given(sensible())
def test_why_has_kernels_of_plan(problem: Problem) -> None:
    dispatcher = Dispatcher(registry(), FakeDevice(), order="first-fit")
    choice = dispatcher.why(problem).choice
    if choice is not None:
        assert dispatcher.plan(problem).stages == choice.stages
