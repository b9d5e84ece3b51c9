"""The float64 gradients against finite differences of the float64 attention, and what a wrong kernel's would be."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckpm.attention.backward.reference import BackwardInputs, BoundedGradients, comparisons, exact_gradients, gradients
from ckpm.attention.launch.buffers import LaunchInputs
from ckpm.attention.philox import drawn
from ckpm.attention.reference import Floats, exact
from ckpm.matrix.problems.case import SuiteCase
from ckpm.suites import fwd_cases
from tests.unit.attention.fakes import make_case

STEP = 1e-5


make = functools.partial(
    make_case, name="kernels/x", suite="kernels", tier="full", mode="group", dtype="bf16", seqlens_q=(5, 3),
    seqlens_k=(7, 4), nhead_q=2, nhead_k=1, hdim_q=8, hdim_v=16, seed=3,
)  # fmt: skip


MASKS: dict[str, dict[str, Any]] = {
    "no": {},
    "causal": {"mask": "bottom_right", "window_right": 0},
    "top": {"mask": "top_left", "window_right": 0},
    "window": {"mask": "window", "window_left": 2, "window_right": 1},
}


class Pass:
    """A forward pass in float64 and the gradient of what ``dout`` weighs of O."""

    def __init__(self, problem: SuiteCase) -> None:
        self.problem = problem
        self.random = drawn(problem) if problem.p_drop else None
        self.inputs = fwd_cases.inputs(problem, fwd_cases.tensors(problem), "gfx950")
        shape = sum(problem.seqlens_q), problem.nhead_q, problem.hdim_v
        self.dout = np.random.default_rng(1).uniform(-1, 1, shape)

    def weigh(self, inputs: LaunchInputs) -> float:
        return float((exact(inputs, self.random).o * self.dout).sum())

    def backward(self) -> BackwardInputs:
        forward = exact(self.inputs, self.random)
        return BackwardInputs(inputs=self.inputs, o=forward.o, dout=self.dout, lse=forward.lse)

    def gradients(self) -> BoundedGradients:
        return exact_gradients(self.backward(), self.random)

    def slope(self, name: str, sequence: int, index: tuple[int, ...]) -> float:
        """The slope of the weighed O in one number of q, k, v or bias of a sequence."""
        ends = []
        for step in (STEP, -STEP):
            parts = list(getattr(self.inputs, name))
            parts[sequence] = parts[sequence].copy()
            parts[sequence][index] += step
            changed: dict[str, Any] = {name: tuple(parts)}
            ends.append(self.weigh(dataclasses.replace(self.inputs, **changed)))
        return (ends[0] - ends[1]) / (2 * STEP)


def of_call(attention_pass: Pass) -> dict[str, tuple[Floats, ...]]:
    """The gradients that a call is compared with, of each sequence."""
    inputs = attention_pass.inputs
    p, ends = inputs.problem, {"q": np.cumsum(inputs.problem.seqlens_q)[:-1]}
    done = gradients(
        p, np.split(attention_pass.dout, ends["q"]), inputs.q, inputs.k, inputs.v, bias=inputs.bias,
        slopes=inputs.slopes, random_values=attention_pass.random,
    )  # fmt: skip
    ends |= dict.fromkeys("kv", np.cumsum(p.seqlens_k)[:-1])
    return {name: tuple(np.split(getattr(done, f"d{name}"), ends[name])) for name in "qkv"} | {"bias": done.dbias}


@pytest.mark.parametrize("p_drop", [0.0, 0.25])
@pytest.mark.parametrize("bias", ["no", "bias", "alibi"])
@pytest.mark.parametrize("mask", MASKS)
def test_gradients_are_slopes_of_attention(mask: str, bias: str, p_drop: float) -> None:
    if (mask, bias) == ("window", "alibi"):
        mask = "causal"
    attention_pass = Pass(make(bias=bias, p_drop=p_drop, **MASKS[mask]))
    gradients_of = of_call(attention_pass)
    random = np.random.default_rng(5)
    for name in ("q", "k", "v", *(("bias",) if bias == "bias" else ())):
        for sequence in range(attention_pass.problem.batch):
            gradient = gradients_of[name][sequence]
            assert np.abs(gradient).max() > 0.05
            for _ in range(6):
                index = tuple(int(random.integers(size)) for size in gradient.shape)
                assert attention_pass.slope(name, sequence, index) == pytest.approx(gradient[index], rel=1e-5, abs=1e-7)


def test_d_is_what_dot_do_o_stores() -> None:
    attention_pass = Pass(make(p_drop=0.25))
    backward = attention_pass.backward()
    by_hand = [
        [0.75 * sum(x * y for x, y in zip(backward.o[token, head], attention_pass.dout[token, head], strict=True))
         for token in range(8)]
        for head in range(2)
    ]  # fmt: skip
    assert np.allclose(attention_pass.gradients().values["d"], by_hand, rtol=1e-12)


def test_rows_that_see_no_key_have_no_gradient() -> None:
    """Three queries of which the first two are to the left of all keys: LSE is -inf there."""
    attention_pass = Pass(make(seqlens_q=(3,), seqlens_k=(1,), **MASKS["causal"]))
    gradients = attention_pass.gradients()
    assert np.isneginf(attention_pass.backward().lse[:, :2]).all()
    assert not gradients.values["dq"][:2].any()
    assert not gradients.tolerances["dq"][:2].any()


@given(seqlen_q=st.integers(1, 40), seqlen_k=st.integers(1, 60), seed=st.integers(0, 9))
@settings(max_examples=20, deadline=None)
def test_gradients_of_softmax_sum_to_nothing(seqlen_q: int, seqlen_k: int, seed: int) -> None:
    """A number added to all scores of a row changes nothing, so the slopes of a row's scores cancel."""
    p = make(seqlens_q=(seqlen_q,), seqlens_k=(seqlen_k,), bias="bias", seed=seed)
    dbias = Pass(p).gradients().values["dbias"]
    assert np.abs(dbias.sum(axis=2)).max() < 1e-12


def test_dropout_needs_its_random_values() -> None:
    attention_pass = Pass(make(p_drop=0.25))
    with pytest.raises(ValueError, match="need its random values"):
        exact_gradients(attention_pass.backward())


Change = Callable[[dict[str, Floats], SuiteCase], dict[str, Floats]]
# what a kernel may get wrong, and which gradients show it
PLANTED: dict[str, tuple[str, Change]] = {
    "the scale left out": ("dq dk", lambda v, p: {n: v[n] / p.softmax_scale for n in ("dq", "dk")}),
    "the neighbour's head": ("dq dk dv", lambda v, p: {n: v[n][:, ::-1] for n in ("dq", "dk", "dv")}),
    "the last key left out": ("dk dv", lambda v, p: {n: np.r_[v[n][:-1], v[n][-1:] * 0] for n in ("dk", "dv")}),
    "not a number": ("dq", lambda v, p: {"dq": v["dq"] * np.nan}),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_wrong_gradient_is_noticed(planted: str) -> None:
    attention_pass = Pass(make(seqlens_q=(70, 33), seqlens_k=(90, 41), hdim_q=64, hdim_v=64))
    gradients = attention_pass.gradients()
    assert all(row.passed for row in comparisons(gradients, gradients.values))
    names, change = PLANTED[planted]
    rows = comparisons(gradients, {**gradients.values, **change(gradients.values, attention_pass.problem)})
    assert [row.name for row in rows if not row.passed] == names.split()


def test_d_left_out_is_noticed() -> None:
    """dS without D is dS of an O that is zero."""
    attention_pass = Pass(make(seqlens_q=(70, 33), seqlens_k=(90, 41), hdim_q=64, hdim_v=64))
    backward = attention_pass.backward()
    wrong = exact_gradients(dataclasses.replace(backward, o=np.zeros_like(backward.o))).values
    rows = comparisons(attention_pass.gradients(), wrong)
    assert [row.name for row in rows if not row.passed] == ["dq", "dk", "dbias", "d"]


def test_tolerances_hold_what_storing_p_and_ds_costs() -> None:
    """A model of the kernel: bf16 cuts P, dS and the gradients down, and nothing else is rounded."""
    attention_pass = Pass(make(seqlens_q=(70, 33), seqlens_k=(90, 41), hdim_q=64, hdim_v=64))
    gradients, inputs = attention_pass.gradients(), attention_pass.inputs

    def cut(numbers: Floats) -> Floats:
        bits = numbers.astype(np.float32).view(np.uint32) & np.uint32(0xFFFF0000)
        return bits.view(np.float32).astype(np.float64)

    forward = exact(inputs)
    scale, wrong = (
        attention_pass.problem.softmax_scale,
        {name: value.copy() for name, value in gradients.values.items()},
    )
    q, k, v, dout = inputs.q[0], inputs.k[0][:, 0], inputs.v[0][:, 0], attention_pass.dout[:70]
    for head in range(2):
        p = np.exp(q[:, head] @ k.T * scale - forward.lse[head, :70, None])
        ds = p * (dout[:, head] @ v.T - (dout[:, head] * forward.o[:70, head]).sum(axis=1)[:, None])
        wrong["dv"][:90, head] = cut(cut(p).T @ dout[:, head])
        wrong["dk"][:90, head] = cut(scale * cut(ds).T @ q[:, head])
        wrong["dq"][:70, head] = cut(scale * cut(ds) @ k)
    rows = comparisons(gradients, wrong)
    assert all(row.passed for row in rows)
    assert min(row.worst for row in rows if row.name in ("dq", "dk", "dv")) > 0.2  # and not much more
