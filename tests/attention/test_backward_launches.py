"""Backward passes on the emulated gfx950 through the dispatcher, each compared with the float64 gradients."""

from __future__ import annotations

import contextlib
import itertools
from random import Random
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ckpm.attention import reference
from ckpm.attention.backward.call import BackwardResult, fmha_backward
from ckpm.attention.backward.reference import gradients
from ckpm.attention.dispatcher import Dispatcher
from ckpm.attention.launch.device import Device
from ckpm.attention.launch.plan import Timing
from ckpm.attention.philox import drawn
from ckpm.attention.registry import Registry
from ckpm.base.errors import NoKernelError
from ckpm.matrix.problems.case import SuiteCase
from ckpm.matrix.problems.problem import Problem
from tests.attention.calls import Call, Floats, contiguous, numbers

CAUSAL: dict[str, Any] = {"mask": "bottom_right"}
DIMS = (64, 64)


def join(call: Call, parts: list[Floats]) -> Floats:
    """The parts of the sequences, [token, head, dim] each, in the layout of the call's arrays."""
    if "cu_seqlens_q" in call.options:
        return np.concatenate(parts)
    return np.stack(parts) if call.options["layout"] == "BSHD" else np.stack(parts).swapaxes(1, 2)


def check(call: Call, dispatcher: Dispatcher, problem: Problem, **options: Any) -> BackwardResult:
    """O and LSE of the forward reference to the kernels, whose gradients must agree. ``problem`` for the reference.

    Random bytes of dropout are those of CK's generator, by the seed (ckpm/attention/philox.py).
    """
    random, more = np.random.default_rng(9), dict(call.more)
    lengths = [(len(q), len(k)) for q, k in zip(call.q, call.k, strict=True)]
    do = [numbers(random, sq, problem.nhead_q, problem.hdim_v) for sq, _ in lengths]
    if problem.p_drop:
        more["random_values"] = bytes_of(problem, lengths)
    o, lse = reference.attention(problem, call.q, call.k, call.v, **more)
    starts = np.cumsum([0, *(sq for sq, _ in lengths)])
    rows = [slice(*pair) for pair in itertools.pairwise(starts)]
    group = "cu_seqlens_q" in call.options
    lse_argument = lse if group else np.stack([lse[:, row] for row in rows])
    arrays = join(call, do), *call.arrays, join(call, [o[row] for row in rows]), lse_argument.astype(np.float32)
    done = fmha_backward(*arrays, dispatcher=dispatcher, dtype="bf16", **{**call.options, **options})
    want = gradients(problem, do, call.q, call.k, call.v, **more)
    for name in ("dq", "dk", "dv"):
        got = getattr(done, name)
        if not group:
            got = np.concatenate(list(got if call.options["layout"] == "BSHD" else got.swapaxes(1, 2)))
        verdict = reference.agreement(got, getattr(want, name), "bf16 gradient")
        assert verdict.passed, f"{name} of {done.ran.kernels}: {verdict}\n{done.problem}"
    if done.dbias is not None:
        for dbias, at, (_, keys) in zip(want.dbias, rows, lengths, strict=True):
            verdict = reference.agreement(done.dbias[:, at, :keys], dbias, "bf16 gradient")
            assert verdict.passed, f"dbias: {verdict}"
    if problem.store_randval:
        assert done.random_values is not None
        for bytes_, at, (_, keys) in zip(more["random_values"], rows, lengths, strict=True):
            assert (done.random_values[:, at, :keys] == bytes_).all()
    return done


def bytes_of(problem: Problem, lengths: list[tuple[int, int]]) -> list[NDArray[np.uint8]]:
    case = SuiteCase(
        name="", suite="", tier="", group="", seqlens_q=tuple(sq for sq, _ in lengths), mode=problem.mode,
        seqlens_k=tuple(sk for _, sk in lengths), nhead_q=problem.nhead_q, nhead_k=problem.nhead_k,
        p_drop=problem.p_drop, seed=problem.dropout_seed, dropout_offset=problem.dropout_offset,
    )  # fmt: skip
    return list(drawn(case))


def problem_of(call: Call, **changes: Any) -> Problem:
    """The problem that the reference computes for a call."""
    heads, dims = (call.q[0].shape[1], call.k[0].shape[1]), (call.q[0].shape[2], call.v[0].shape[2])
    causal = {"window_right": 0} if call.options.get("mask", "no") in ("top_left", "bottom_right") else {}
    return Problem(
        family="bwd_dq_dk_dv", batch=len(call.q), seqlen_q=max(map(len, call.q)), seqlen_k=max(map(len, call.k)),
        nhead_q=heads[0], nhead_k=heads[1], hdim_q=dims[0], hdim_v=dims[1], mask=call.options.get("mask", "no"),
        **{**causal, **changes},
    )  # fmt: skip


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("layout", ["BSHD", "BHSD"])
def test_gradients_agree_with_reference(deterministic: bool, layout: str, dispatcher: Dispatcher) -> None:
    call = contiguous(1, ((75, 171),) * 2, (4, 2), (56, 48), layout, **CAUSAL)
    done = check(call, dispatcher, problem_of(call), deterministic=deterministic)
    word = "_deterministic_" if deterministic else "_ndeterministic_"
    assert [word in name for name in done.ran.kernels] == [False, True, True]


def test_timed_pass_and_orders_give_same_bits(registry: Registry, device: Device, dispatcher: Dispatcher) -> None:
    call = contiguous(2, ((70, 140),), (2, 1), DIMS, **CAUSAL)
    problem = problem_of(call)
    once = check(call, dispatcher, problem, deterministic=True)
    timed = check(call, dispatcher, problem, deterministic=True, timing=Timing(warmups=1, repeats=2))
    first = check(call, Dispatcher(registry, device, order="first-fit"), problem, deterministic=True)
    assert len(timed.ran.milliseconds) == 1
    for other in (timed, first):
        for name in ("dq", "dk", "dv"):
            assert (getattr(other, name) == getattr(once, name)).all()


def test_group_mode_with_bias_its_gradient_and_dropout(dispatcher: Dispatcher) -> None:
    random = np.random.default_rng(3)
    bias = numbers(random, 4, 75, 171)
    plain = contiguous(3, ((45, 171), (30, 25)), (4, 2), DIMS, layout="")
    call = Call(**{**vars(plain), "more": {"bias": [bias[:, :45], bias[:, 45:, :25]]}})
    problem = problem_of(
        call, mode="group", total_q=75, total_k=196, bias="bias", p_drop=0.25, dropout_seed=7, store_randval=True
    )
    done = check(call, dispatcher, problem, bias=bias, dbias=True, dropout=0.25, seed=7, random_values=True)
    assert done.dbias is not None
    assert (done.dbias[:, 45:, 25:] == 0).all()


@pytest.mark.parametrize(
    "lengths",
    [
        ((0, 40), (45, 171)),
        ((45, 171), (0, 25), (30, 25)),
        ((45, 171), (0, 25)),
        ((45, 0), (30, 25)),
        ((0, 40), (0, 25)),
    ],
)
def test_sequences_without_queries_or_keys_have_zero_gradients(
    lengths: tuple[tuple[int, int], ...], dispatcher: Dispatcher
) -> None:
    random = np.random.default_rng(4)
    plain = contiguous(5, lengths, (4, 2), DIMS, layout="")
    bias = [numbers(random, 4, queries, keys) for queries, keys in lengths]
    whole = np.zeros((4, sum(queries for queries, _ in lengths), max(keys for _, keys in lengths)))
    for own, row in zip(bias, np.cumsum([0, *(queries for queries, _ in lengths)]), strict=False):
        whole[:, row : row + own.shape[1], : own.shape[2]] = own
    call = Call(**{**vars(plain), "more": {"bias": bias}})
    sizes = {"total_q": sum(map(len, call.q)), "total_k": sum(map(len, call.k))}
    problem = problem_of(call, mode="group", **sizes, bias="bias", p_drop=0.25, dropout_seed=7, store_randval=True)
    check(call, dispatcher, problem, bias=whole, dbias=True, dropout=0.25, seed=7, random_values=True)


def test_random_backward_problems_agree_or_nothing_serves_them(dispatcher: Dispatcher) -> None:
    """A refusal by a library, a fault or other numbers are failures: only selection may say no."""
    random, ran = Random("backward 1"), 0
    for _ in range(100):
        mask = random.choice(["no", "top_left", "bottom_right", "bottom_right"])
        length = random.randint(1, 100), random.randint(1, 150)
        heads, dims = (2 * random.randint(1, 2), 2), random.choice([(64, 64), (64, 64), (56, 40), (72, 64)])
        layout = random.choice(["", "BSHD", "BHSD", "BHSD"])
        call = contiguous(random.randrange(1000), (length,) * random.randint(1, 2), heads, dims, layout, mask=mask)
        group = {"mode": "group", "total_q": sum(map(len, call.q)), "total_k": sum(map(len, call.k))}
        with contextlib.suppress(NoKernelError):
            check(call, dispatcher, problem_of(call, **({} if layout else group)), deterministic=random.random() < 0.5)
            ran += 1
    assert ran >= 20, f"{ran} of 100 ran: too few to say anything"
