"""Backward plans and calls: fields, chains, workspaces and zeros. test_bwd_reference.py has the reference."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ckpm.attention.arrays.tensors import OnDevice
from ckpm.attention.backward.call import fmha_backward
from ckpm.attention.dispatcher import Dispatcher
from ckpm.attention.launch.arguments import backward_fields
from ckpm.attention.launch.fwd_launching import pose
from ckpm.attention.launch.plan import Timing
from ckpm.attention.registry import Registry
from ckpm.base.errors import ArgumentError, NoKernelError, ProblemError
from ckpm.matrix.problems.case import SuiteCase as TableProblem
from ckpm.matrix.problems.problem import Problem, Strides
from tests.unit.attention.fakes import FakeDevice, built, make_dispatcher

FAMILIES = ("bwd_dot_do_o", "bwd_dq_dk_dv", "bwd_convert_dq")
TABLE = TableProblem(
    name="t", suite="", tier="", group="", mode="group", seqlens_q=(40, 20), seqlens_k=(70, 25), nhead_q=4, nhead_k=2,
    hdim_q=64, hdim_v=32,
)  # fmt: skip
PROBLEM = Problem(
    family="bwd_dq_dk_dv", mode="group", batch=2, total_q=60, total_k=95, seqlen_q=40, seqlen_k=70, nhead_q=4,
    nhead_k=2, hdim_q=64, hdim_v=32,
)  # fmt: skip
BATCH: dict[str, Any] = {"mode": "batch", "total_q": 0, "total_k": 0}


def make_backward_dispatcher() -> tuple[Dispatcher, FakeDevice]:
    return make_dispatcher(Registry(kernel for family in FAMILIES for kernel in built(family, dtype="bf16", hdim_q=64)))


@pytest.mark.parametrize("mode", ["batch", "group"])
@pytest.mark.parametrize(
    ("changes", "options"),
    [
        ({}, {}),
        ({"mask": "bottom_right", "window_left": 9, "window_right": 3}, {"deterministic": True}),
        ({"bias": "alibi", "alibi_per_batch": True, "scale": 0.5}, {}),
        ({"p_drop": 0.25, "seed": 3, "store_randval": True}, {}),
    ],
)
def test_fields_are_those_of_suites(mode: str, changes: dict[str, Any], options: dict[str, Any]) -> None:
    lengths: dict[str, Any] = {"seqlens_q": (40, 40), "seqlens_k": (70, 70)} if mode == "batch" else {}
    table = replace(TABLE, mode=mode, **lengths, **changes)
    own = {"dropout_seed" if name == "seed" else name: value for name, value in changes.items()}
    problem = replace(PROBLEM, **(BATCH if mode == "batch" else {}), **own, **options)
    assert backward_fields(problem) == backward_fields(pose(replace(table, **options), "bwd_dq_dk_dv", "gfx950"))


def test_bias_and_its_gradient_lie_as_fmha_s_bias_does() -> None:
    batch = backward_fields(replace(PROBLEM, **BATCH, bias="bias", dbias=True))
    group = backward_fields(replace(PROBLEM, bias="bias", dbias=True))
    for name in ("bias", "dbias"):
        assert [batch[f"{step}stride_{name}"] for step in ("batch_", "nhead_", "")] == [4 * 40 * 70, 40 * 70, 70]
        assert [group[f"{step}stride_{name}"] for step in ("batch_", "nhead_", "")] == [0, 60 * 70, 70]


def test_layout_and_strides_of_problem_reach_fields() -> None:
    problem = replace(PROBLEM, **BATCH, layout="BHSD", strides=(("k", Strides(9000, 70, 128)),))
    fields = backward_fields(problem)
    for tensor, wanted in {
        "dout": (4 * 40 * 32, 40 * 32, 32), "dq_acc": (4 * 40 * 64, 40 * 64, 64), "dk": (4 * 70 * 64, 70 * 64, 64),
        "dv": (4 * 70 * 32, 70 * 32, 32), "k": (9000, 70, 128),
    }.items():  # fmt: skip
        assert tuple(fields[f"{step}stride_{tensor}"] for step in ("batch_", "nhead_", "")) == wanted, tensor


def test_plan_has_three_matching_kernels_and_workspaces() -> None:
    causal: dict[str, Any] = {"mask": "bottom_right", "window_right": 0}
    for deterministic, splits in ((True, 5), (False, 1)):
        plan = make_backward_dispatcher()[0].plan(replace(PROBLEM, **BATCH, **causal, deterministic=deterministic))
        first, main, last = (stage.key for stage in plan.stages)
        assert (first.family, main.family, last.family) == FAMILIES
        assert (main.deterministic, last.deterministic) == (deterministic, deterministic)
        assert last.tile.bn0 == (main.tile.bn0 if deterministic else 0)
        assert ("dv" in first.pad) == bool(main.dvpad)
        assert plan.workspaces == {"d": 80 * 4 * 4, "dq_acc": splits * 80 * 4 * 64 * 4}
    whole = make_backward_dispatcher()[0]
    assert str(whole.why(replace(PROBLEM, **BATCH, **causal))).count("chosen as the expected kernel") == 3


def test_tile_for_few_queries_needs_no_conversion() -> None:
    kernels = [kernel for family in FAMILIES for kernel in built(family, dtype="bf16", hdim_q=64, mode="batch")]
    short = Registry(kernel for kernel in kernels if kernel.key.family != "bwd_dq_dk_dv" or kernel.key.tile.max_seq_q)
    problem = replace(PROBLEM, **BATCH, hdim_v=64, seqlen_q=20)
    assert [stage.key.family for stage in make_dispatcher(short)[0].plan(problem).stages] == [*FAMILIES[:2]]
    with pytest.raises(NoKernelError):
        make_dispatcher(short)[0].plan(replace(problem, seqlen_q=40))


def test_accumulator_is_zero_before_each_launch() -> None:
    whole, device = make_backward_dispatcher()
    seen: list[tuple[int, int]] = []

    def record_launch(arguments: Any) -> int:
        block = device.hip.memory[arguments.dq_acc]  # type: ignore[attr-defined]
        seen.append((int(block.max()), arguments.repeat))
        block[:] = 1  # as a kernel adds
        return 0

    device.answer = record_launch
    plan = whole.plan(replace(PROBLEM, mask="bottom_right", window_right=0))
    pointers = dict.fromkeys((*plan.inputs, *plan.outputs), 4096)
    for timing in (Timing(), Timing(), Timing(repeats=3), Timing(repeats=2, cold_bytes=8)):
        plan.run(pointers, timing=timing)
    assert seen == [(0, 0), (0, 0), (0, 3), (0, 0), (0, 1), (0, 1)]  # the result is that of an untimed one, or cold


def call(**changes: Any) -> dict[str, Any]:
    random = np.random.default_rng(1)
    shapes = {"do": (2, 40, 4, 32), "q": (2, 40, 4, 64), "k": (2, 70, 2, 64), "v": (2, 70, 2, 32), "o": (2, 40, 4, 32)}
    arrays: dict[str, Any] = {name: random.uniform(-1, 1, shape) for name, shape in shapes.items()}
    arrays["lse"] = np.zeros((2, 4, 40), np.float32)
    return {**arrays, "dtype": "bf16", "mask": "bottom_right", **changes}


def test_dk_and_dv_of_heads_of_q_are_added_up() -> None:
    """The library writes ones, and twos for the last head of dK."""
    whole, device = make_backward_dispatcher()
    ones = {"dk": 2 * 70 * 4 * 64, "dv": 2 * 70 * 4 * 32, "dq": 2 * 40 * 4 * 64}

    def record_launch(arguments: Any) -> int:
        for name, count in ones.items():
            block = device.hip.memory[getattr(arguments, name)]  # type: ignore[attr-defined]
            numbers = block.view(np.uint16)
            numbers[:count] = 0x3F80  # 1 in bf16
            if name == "dk":
                numbers.reshape(2, 70, 4, 64)[:, :, 3] = 0x4000  # 2
        return 0

    device.answer = record_launch
    done = fmha_backward(**call(), dispatcher=whole)
    assert (done.dq.shape, done.dk.shape, done.dv.shape) == ((2, 40, 4, 64), (2, 70, 2, 64), (2, 70, 2, 32))
    assert (done.dq == 1).all()
    assert (done.dk[:, :, 0] == 2).all()
    assert (done.dk[:, :, 1] == 3).all()
    assert (done.dv == 2).all()
    assert done.dq.dtype == np.float64


def test_gradients_that_no_kernel_writes_are_zero() -> None:
    """CK writes none of a sequence without queries, in any place, or without keys; here the library writes nothing."""
    random = np.random.default_rng(1)
    shapes = {"do": (40, 4, 32), "q": (40, 4, 64), "k": (70, 2, 64), "v": (70, 2, 32), "o": (40, 4, 32)}
    arrays: dict[str, Any] = {name: random.uniform(-1, 1, shape) for name, shape in shapes.items()}
    starts = {name: np.array(sums, np.int32) for name, sums in {"q": (0, 0, 40, 40), "k": (0, 9, 40, 70)}.items()}
    for queries in (40, 0):
        rows = {name: array[:queries] if name in ("do", "q", "o") else array for name, array in arrays.items()}
        done = fmha_backward(
            **rows, lse=np.zeros((4, queries), np.float32), dtype="bf16", dispatcher=make_backward_dispatcher()[0],
            cu_seqlens_q=np.minimum(starts["q"], queries), cu_seqlens_k=starts["k"],
        )  # fmt: skip
        assert (done.dq.shape, done.dk.shape, done.dv.shape) == ((queries, 4, 64), (70, 2, 64), (70, 2, 32))
        assert not any(gradient.any() for gradient in (done.dq, done.dk, done.dv))


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"do": np.zeros((2, 40, 4, 64))}, ArgumentError, r"do is \[2, 40, 4, 64\], not \[2, 40, 4, 32\]"),
        ({"lse": np.zeros((2, 40, 4), np.float32)}, ArgumentError, r"lse is \[2, 40, 4\], not \[2, 4, 40\]"),
        ({"o": np.zeros((2, 40, 4, 32), np.int32)}, ArgumentError, "o is of int32"),
        ({"soft_cap": 5.0}, ProblemError, "has no soft cap"),
        ({"dbias": True}, ProblemError, "dbias needs an elementwise bias"),
        ({"splits": 2}, ProblemError, "fwd_splitkv, or batch_prefill with split_keys"),
        ({"dtype": "fp16"}, NoKernelError, "no kernel with dtype fp16"),
    ],
)
def test_unserved_backward_call_is_one_error(changes: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        fmha_backward(**call(**changes), dispatcher=make_backward_dispatcher()[0])


def test_arrays_on_device_are_refused() -> None:
    arrays = call()
    there = {name: OnDevice(address=4096, shape=arrays[name].shape, dtype="bf16") for name in ("q", "k", "v", "o")}
    for some in (there, {"o": there["o"]}):
        with pytest.raises(ArgumentError, match="host"):
            fmha_backward(**{**arrays, **some}, dispatcher=make_backward_dispatcher()[0])
