"""Arguments of a plan to its library: the C ABI's fields and pointers, workspaces, repeats; failed launches."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpm.attention.launch.arguments import fwd_fields, prefill_fields
from ckpm.attention.launch.buffers import prepare
from ckpm.attention.launch.device import Fault
from ckpm.attention.launch.fwd_launching import pose
from ckpm.attention.launch.plan import LaunchPlan, Timing
from ckpm.attention.registry import Registry
from ckpm.base.errors import ArgumentError, LaunchError, ProblemError
from ckpm.kernels.abi import LaunchArguments, Status
from ckpm.matrix.problems.case import SuiteCase as TableProblem
from ckpm.matrix.problems.problem import Problem, Strides
from tests.unit.attention.fakes import POINTERS, PREFILL, FakeDevice, built, make_dispatcher, prefill

SPLIT = Problem(family="fwd_splitkv", splits=3, seqlen_k=300, lse=True, nhead_q=4, nhead_k=2)


def split() -> tuple[LaunchPlan, FakeDevice]:
    dispatcher, device = make_dispatcher(
        Registry((*built("fwd_splitkv", dtype="bf16"), *built("fwd_splitkv_combine", dtype="bf16")))
    )
    return dispatcher.plan(SPLIT), device


SPLIT_POINTERS = dict.fromkeys(("q", "k", "v", "o", "lse"), 4096)
TABLE = TableProblem(
    name="t", suite="", tier="", group="", seqlens_q=(40, 20), seqlens_k=(70, 25), nhead_q=4, nhead_k=2, pool_pages=100
)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"mask": "bottom_right", "window_left": 9, "window_right": 3, "lse": True},
        {"bias": "alibi", "lse": True},
        {"logits_soft_cap": 5.0, "mask": "top_left", "window_right": 0},
        {"page_size": 16, "kv_layout": "vectorized", "dtype": "fp16"},
        {"page_size": 16, "kv_table": "vllm", "hdim_q": 256, "hdim_v": 256},
        {"page_size": 16, "sink_size": 4, "mask": "bottom_right", "window_left": 9, "window_right": 0},
        {"dtype": "fp8bf16", "qscale": "kv_blockscale", "page_size": 1024},
    ],
)
def test_prefill_s_fields_are_those_of_suites(changes: dict[str, Any]) -> None:
    """suites launches by fields that ckpm/attention/launch/buffers.py fills; a random one is left to each of them."""
    table = replace(TABLE, **changes)
    prepared = prepare(table)
    paged = {"table_width": prepared.table.width} if table.kv_table == "vllm" else {}
    problem = replace(PREFILL, **{**changes, **paged})
    dispatcher, device = make_dispatcher(
        Registry(built("batch_prefill", "ckpm", dtype=problem.dtype, hdim_q=problem.hdim_q))
    )
    pointers = dict.fromkeys(dispatcher.plan(problem).inputs, 4096) | dict.fromkeys(
        dispatcher.plan(problem).outputs, 4096
    )
    dispatcher.plan(problem).run(pointers)
    launched, wanted = device.launched[0].values(), LaunchArguments(**prepared.fields).values()
    assert {name for name in launched if launched[name] != wanted[name]} <= set(pointers)
    assert {name: launched[name] for name in pointers} == pointers
    assert set(prepared.pointers) == set(pointers)


@pytest.mark.parametrize("mode", ["batch", "group"])
@pytest.mark.parametrize("splits", [0, 3])
def test_fwd_s_fields_are_those_of_suites(mode: str, splits: int) -> None:
    lengths = (40, 40) if mode == "batch" else (40, 20)
    changes: dict[str, Any] = {"mode": mode, "lse": True, "mask": "bottom_right", "window_right": 0, "hdim_v": 64}
    table = replace(TABLE, **{**changes, "seqlens_q": lengths, "seqlens_k": (70, 70), "pool_pages": 0})
    family = "fwd_splitkv" if splits else "fwd"
    sizes = {"total_q": 60, "total_k": 140} if mode == "group" else {"total_q": 0}
    problem = replace(PREFILL, family=family, page_size=0, pool_pages=0, splits=splits, **{**changes, **sizes})
    assert fwd_fields(problem) == fwd_fields(pose(replace(table, splits=splits), family, "gfx950"))


def test_strides_that_are_given_reach_library() -> None:
    dispatcher, device = make_dispatcher(prefill())
    dispatcher.plan(replace(PREFILL, strides=(("k", Strides(1024, 512, 700)), ("q", Strides(0, 128, 600))))).run(
        POINTERS
    )
    launch = device.launched[0]
    assert (launch.nhead_stride_q, launch.stride_q) == (128, 600)
    assert (launch.batch_stride_k, launch.nhead_stride_k, launch.stride_k) == (1024, 512, 1024)  # a page is a token
    assert (launch.batch_stride_v, launch.nhead_stride_v, launch.stride_v) == (256, 128, 256)


@given(
    mask=st.sampled_from(["top_left", "bottom_right"]),
    window=st.tuples(*[st.sampled_from([-1, 0, 3, 100, 2**31 - 200, 2**31 - 1])] * 2),
    lengths=st.tuples(st.integers(1, 70), st.integers(1, 70)),
)
def test_window_of_launch_shows_the_same_keys_in_32_bits(
    mask: str, window: tuple[int, int], lengths: tuple[int, int]
) -> None:
    queries, keys = lengths
    posed = replace(PREFILL, mask=mask, window_left=window[0], window_right=window[1], total_q=0, total_k=0)
    fields = prefill_fields(replace(posed, seqlen_q=queries, seqlen_k=keys))
    launched = int(fields["window_left"]), int(fields["window_right"])
    shift = keys - queries if mask == "bottom_right" else 0

    def seen(left: int, right: int) -> set[tuple[int, int]]:
        return {
            (row, key)
            for row in range(queries)
            for key in range(keys)
            if (left < 0 or row + shift - key <= left) and (right < 0 or key - row - shift <= right)
        }

    assert seen(*launched) == seen(*window)
    assert 2 * (queries + keys) + max(launched) < 2**31


def test_missing_pointer_is_named() -> None:
    dispatcher, device = make_dispatcher(prefill())
    plan = dispatcher.plan(PREFILL)
    for name in POINTERS:
        for gone in ({**POINTERS, name: 0}, {other: at for other, at in POINTERS.items() if other != name}):
            with pytest.raises(ArgumentError, match=f"{name} is null, and batch_prefill needs it"):
                plan.run(gone)
    with pytest.raises(ArgumentError, match="a launch of batch_prefill has no pointer 'kw'"):
        plan.run({**POINTERS, "kw": 1})
    assert not device.launched


def test_pointer_that_is_not_needed_may_be_none() -> None:
    dispatcher, device = make_dispatcher(prefill())
    dispatcher.plan(PREFILL).run({**POINTERS, "lse": None})  # type: ignore[dict-item]
    assert device.launched[0].lse is None


def test_queued_addresses_give_struct_of_run() -> None:
    dispatcher, device = make_dispatcher(prefill())
    plan = dispatcher.plan(PREFILL)
    names = *plan.inputs, *plan.outputs
    addresses = [4096 * at for at in range(1, len(names) + 1)]
    plan.run(dict(zip(names, addresses, strict=True)), stream=7)
    plan.queue(addresses, 7)
    first, second = (launch.values() for launch in device.launched)
    assert first == second
    for stream in (2**64, -1, "x"):
        with pytest.raises(ArgumentError, match="stream is"):
            plan.queue(addresses, stream)  # type: ignore[arg-type]
    for at, name in enumerate(names):
        with pytest.raises(ArgumentError, match=f"{name} is null"):
            plan.queue([0 if at == index else 4096 for index in range(len(names))], 7)


def test_queued_addresses_with_workspaces_give_struct_of_run() -> None:
    plan, device = split()
    plan.run(SPLIT_POINTERS, stream=7)
    plan.queue([4096] * len(SPLIT_POINTERS), 7)
    first, second = (launch.values() for launch in device.launched)
    assert first == second
    assert first["o_acc"]


def test_plan_field_that_family_lacks_is_refused() -> None:
    dispatcher, _ = make_dispatcher(Registry(built("fwd", dtype="bf16", hdim_q=128)))
    with pytest.raises(ProblemError, match="fwd has no field for sinks"):
        dispatcher.plan(Problem(sink_logits=True))


def test_workspaces_are_sized_kept_and_each_stream_s_own() -> None:
    planned, device = split()
    plan = LaunchPlan(planned.problem, planned.device, planned.library, stages=planned.stages)
    rows = 3 * 4 * 128
    assert plan.workspaces == {"o_acc": rows * 128 * 4, "lse_acc": rows * 4}
    for stream in (0, 0, 7, 0, 7):
        plan.run(SPLIT_POINTERS, stream=stream)
    accs = [(launch.stream or 0, launch.o_acc, launch.lse_acc) for launch in device.launched]
    assert accs[0] == accs[1] == accs[3]
    assert accs[2] == accs[4]
    assert {accs[0][1], accs[0][2]}.isdisjoint((accs[2][1], accs[2][2]))
    assert sorted(block.size for block in device.hip.memory.values()) == sorted(2 * [*plan.workspaces.values()])  # type: ignore[attr-defined]
    plan.close()
    assert sorted(device.hip.freed) == sorted(device.hip.memory)  # type: ignore[attr-defined]


def test_timing_is_mean_of_library_or_of_cold_launches() -> None:
    dispatcher, device = make_dispatcher(prefill())
    plan = dispatcher.plan(PREFILL)
    assert plan.run(POINTERS).milliseconds == ()
    with pytest.raises(ValueError, match="not timed"):
        assert plan.run(POINTERS).median
    warm = plan.run(POINTERS, timing=Timing(warmups=3, repeats=20))
    assert (warm.milliseconds, warm.median) == ((1.5,), 1.5)
    assert (device.launched[-1].warmup, device.launched[-1].repeat) == (3, 20)
    device.launched.clear()
    cold = plan.run(POINTERS, timing=Timing(warmups=2, repeats=4, cold_bytes=64))
    assert cold.milliseconds == (1.5,) * 4
    assert [(launch.warmup, launch.repeat) for launch in device.launched] == [(1, 1), *[(0, 1)] * 4]
    assert len(device.hip.freed) == len(device.hip.memory) == 1  # type: ignore[attr-defined]


def test_refusal_and_fault_are_one_error() -> None:
    dispatcher, device = make_dispatcher(prefill(), FakeDevice(answer=lambda arguments: Status.BAD_PROBLEM))
    with pytest.raises(LaunchError, match="bad_problem: said by the library"):
        dispatcher.plan(PREFILL).run(POINTERS)
    device.failure = Fault(kind="page", message="load outside the allocations", error=700)
    with pytest.raises(LaunchError, match="load outside the allocations"):
        dispatcher.plan(PREFILL).run(POINTERS)
    assert device.failure is None  # recovered
    device.failure = Fault(kind="page", message="late fault", error=700)
    with pytest.raises(LaunchError, match="faulted: late fault"):
        dispatcher.plan(PREFILL).finish()


def test_another_kernel_than_chosen_is_error() -> None:
    """Libraries of fwd's families dispatch by themselves: what an order chose must be what ran."""
    dispatcher, device = make_dispatcher(Registry(built("fwd", dtype="bf16", hdim_q=128)), order="seqtune")
    plan = dispatcher.plan(Problem())
    device.chosen = ("fmha_fwd_another",)
    with pytest.raises(LaunchError, match="it ran fmha_fwd_another and not fmha_fwd_d128"):
        plan.run(dict.fromkeys(("q", "k", "v", "o"), 4096))
    device.chosen = (plan.stages[0].name,)
    assert plan.run(dict.fromkeys(("q", "k", "v", "o"), 4096)).kernels == device.chosen


def test_overlapping_launches_have_their_own_switch_of_v3(monkeypatch: pytest.MonkeyPatch) -> None:
    """The switch is the process's: a launch without V3 must not turn it off for others, nor leave it off."""
    monkeypatch.setenv("CKPM_V3", "1")
    seen: list[tuple[int, str | None, str | None]] = []

    def answer(arguments: Any) -> int:
        begin = os.environ.get("CKPM_V3")
        time.sleep(0.005)
        seen.append((arguments.warmup, begin, os.environ.get("CKPM_V3")))
        return Status.OK

    dispatcher, _ = make_dispatcher(prefill(), FakeDevice(answer=answer))
    plans = [dispatcher.plan(PREFILL), dispatcher.plan(replace(PREFILL, v3="off"))]

    def launch(off: int) -> None:
        for _ in range(5):
            plans[off].launch(POINTERS, warmups=off)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(launch, (0, 1, 0, 1)))
    assert sorted(seen) == [(0, "1", "1")] * 10 + [(1, "0", "0")] * 10
    assert os.environ["CKPM_V3"] == "1"
