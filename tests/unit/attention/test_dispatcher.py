"""The kernel that a problem gets, by each order, and the reasons against the others."""

from __future__ import annotations

import argparse
import dataclasses
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import ckpm
from ckpm.attention import call
from ckpm.attention.jit import on_demand
from ckpm.attention.jit.command import add_options as add_jit_options
from ckpm.attention.jit.orders import Place, order_for
from ckpm.attention.kernel_sets import kernel_set
from ckpm.attention.launch.hip_api import Memory
from ckpm.attention.launch.workspaces import Workspaces
from ckpm.attention.registry import Instance, Registry, key_of
from ckpm.attention.selection import refusal, stages
from ckpm.attention.tuning import Measurement, TuningDatabase
from ckpm.base import paths, rocm_places
from ckpm.base.errors import DeviceError, HipError, LibraryError, NoKernelError, ProblemError, UsageError
from ckpm.kernels.library import building, command
from ckpm.matrix.dialects import upstreams
from ckpm.matrix.problems.problem import Problem, Strides
from tests.unit import manifests
from tests.unit.attention.fakes import ARCH, POINTERS, PREFILL, FakeDevice, built, make_dispatcher, prefill


def rows_of(plan: Any) -> int:
    return int(plan.stages[0].key.tile.bm0)


def test_call_without_lse_takes_built_kernel_with_lse() -> None:
    dispatcher, device = make_dispatcher(prefill(lse=True))
    plan = dispatcher.plan(PREFILL)
    assert (plan.stages[0].key.lse, list(plan.outputs)) == (True, ["o"])
    plan.run(POINTERS)
    assert device.launched[0].lse in device.hip.memory  # type: ignore[attr-defined]
    assert "its LSE is dropped: no kernel without LSE serves" in str(dispatcher.why(PREFILL))
    assert "no kernel with lse" not in str(dispatcher.why(PREFILL))
    assert not make_dispatcher(prefill())[0].plan(PREFILL).stages[0].key.lse
    split = [built(name, dtype="bf16", hdim_q=128) for name in ("fwd_splitkv", "fwd_splitkv_combine")]
    kept = Registry(kernel for kernels in split for kernel in kernels if kernel.key.lse is not False)
    assert make_dispatcher(kept)[0].plan(Problem(family="fwd_splitkv", splits=3)).stages[1].key.lse


def test_upstream_s_order_leaves_choice_to_library() -> None:
    dispatcher, device = make_dispatcher(prefill())
    plan = dispatcher.plan(PREFILL)
    assert not plan.named
    device.chosen = ("whatever",)
    assert plan.run(POINTERS).kernels == ("whatever",)
    assert device.names == [None]


def test_refusal_is_kept_until_the_registry_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    searches: list[Problem] = []

    def find_none(problem: Problem, preferred: object) -> str:
        searches.append(problem)
        return ""

    monkeypatch.setattr("ckpm.attention.dispatcher.find_missing", find_none)
    dispatcher, _ = make_dispatcher(prefill(lse=False))
    wanted = replace(PREFILL, lse=True)
    messages = set()
    for _ in range(2):
        with pytest.raises(NoKernelError) as raised:
            dispatcher.plan(wanted)
        messages.add(str(raised.value))
    assert (len(searches), len(messages)) == (1, 1)
    dispatcher.registry.add(prefill(lse=True).instances())
    assert dispatcher.plan(wanted).stages[0].key.lse


def test_library_without_load_mode_gets_kernel_by_name() -> None:
    """The newest selector asks for 64-bit loads for pages of one token: a library of 32-bit ones finds nothing."""
    fields: dict[str, Any] = {"upstream": "ckpm", "page_size": 1, "kv_table": "sglang", "kv_layout": "linear"}
    for loads, named in ((("bload",), True), (("bload", "gload"), False)):
        dispatcher, device = make_dispatcher(prefill(**fields, load=loads))
        plan = dispatcher.plan(PREFILL)
        assert plan.named is named
        device.chosen = (plan.stages[0].name,)
        plan.run(POINTERS)
        assert device.names == [plan.stages[0].name if named else None]


def test_library_of_tiles_for_few_blocks_is_named() -> None:
    """Dispatch takes aiter's tile of 64 rows for few blocks alone: a library of it refuses more."""
    dispatcher, _ = make_dispatcher(prefill(tile={"bm0": 64}))
    assert dispatcher.plan(PREFILL).named
    assert "chosen by name, order upstream" in str(dispatcher.why(PREFILL))


@pytest.mark.parametrize(("seqlen_k", "pad"), [(256, "psddv"), (300, "psskddv")])
def test_fwd_kernel_is_one_that_dispatch_takes(seqlen_k: int, pad: str) -> None:
    """CK's codegen (fmha_fwd.py, skcheck of qr_async) gives whole tiles of 128 keys to the kernel without padding."""
    fields: dict[str, Any] = {"dtype": "bf16", "hdim_q": 128, "mode": "batch", "pipeline": "qr_async"}
    problem = Problem(family="fwd", seqlen_k=seqlen_k)
    for order in ("upstream", "first-fit"):
        dispatcher, _ = make_dispatcher(Registry(built("fwd", **fields)), order=order)
        assert dispatcher.plan(problem).stages[0].key.pad == pad
    other = "psskddv" if pad == "psddv" else "psddv"
    with pytest.raises(NoKernelError, match=f"seqlen_k {seqlen_k}|at a seqlen_k of {seqlen_k}"):
        make_dispatcher(Registry(built("fwd", **fields, pad=other)))[0].plan(problem)


def test_first_fit_and_seqtune_name_kernel() -> None:
    """aiter has tiles of 64 and 128 rows: the small one holds up to 64 queries, longer ones get the largest."""
    first, device = make_dispatcher(prefill(), order="first-fit")
    plan = first.plan(PREFILL)
    assert (plan.named, plan.stages[0].name) == (True, first.why(PREFILL).choice.stages[0].name)  # type: ignore[union-attr]
    device.chosen = (plan.stages[0].name,)
    plan.run(POINTERS)
    assert device.names == [plan.stages[0].name]
    tuned, _ = make_dispatcher(prefill(), order="seqtune")
    assert {rows_of(tuned.plan(replace(PREFILL, seqlen_q=rows))) for rows in (1, 40, 64)} == {64}
    assert {rows_of(tuned.plan(replace(PREFILL, seqlen_q=rows, total_q=900))) for rows in (65, 128, 500)} == {128}


BATCHES: tuple[dict[str, Any], ...] = (
    {},
    {"batch": 1, "total_q": 1, "seqlen_q": 1, "seqlen_k": 1},
    {"batch": 500, "total_q": 9000, "seqlen_q": 700, "seqlen_k": 70000},
)


@pytest.mark.parametrize("order", ["upstream", "first-fit", "seqtune", lambda problem, able: able[::-1]])
def test_batch_invariant_problem_has_same_kernel_in_every_batch(order: Any) -> None:
    dispatcher, device = make_dispatcher(prefill(), order=order)
    plans = [dispatcher.plan(replace(PREFILL, batch_invariant=True, **changes)) for changes in BATCHES]
    assert {(plan.named, plan.kernels) for plan in plans} == {(True, plans[0].kernels)}
    device.chosen = plans[0].kernels
    assert rows_of(plans[0]) == 128  # dispatch takes the tile of 64 rows for few blocks alone
    for plan in plans:
        plan.run(POINTERS)
    assert device.names == [*plans[0].kernels] * 3
    explanation = str(dispatcher.why(replace(PREFILL, batch_invariant=True)))
    assert "chosen by name, order batch-invariant" in explanation
    assert "the same for every batch, number of blocks and of compute units" in explanation


@pytest.mark.parametrize("order", ["batch-invariant", "first-fit", lambda problem, able: able[::-1]])
def test_kernel_by_name_has_loads_that_reach_every_pool(order: Any) -> None:
    """No selector compares the pool's address with what 32-bit loads reach."""
    fields: dict[str, Any] = {"dtype": "bf16", "hdim_q": 128, "page_size": 16, "kv_table": "sglang"}
    kernels = built("batch_prefill", "ckpm", kv_layout="linear", **fields)
    problem = replace(PREFILL, page_size=16)
    assert make_dispatcher(Registry(kernels), order=order)[0].plan(problem).stages[0].key.load == "gload"
    short = tuple(kernel for kernel in kernels if kernel.key.load == "bload")
    assert make_dispatcher(Registry(short), order=order)[0].plan(problem).stages[0].key.load == "bload"
    assert not make_dispatcher(Registry(kernels))[0].plan(problem).named  # the library chooses among both
    alone = (
        replace(kernel, library=Path("/nowhere", kernel.name, "batch_prefill", "libckpm.so")) for kernel in kernels
    )  # as ckpm jit makes them
    assert make_dispatcher(Registry(alone), order=order)[0].plan(problem).stages[0].key.load == "gload"
    declared = Registry(replace(kernel, library=None) for kernel in kernels)
    compiled: list[Instance] = []

    def compile_kernels(wanted: Sequence[Instance]) -> tuple[Path, ...]:
        compiled.extend(wanted)
        return ()

    with pytest.raises(NoKernelError):
        make_dispatcher(declared, compile=compile_kernels)[0].plan(problem)
    assert [kernel.key.load for kernel in compiled] == ["gload"]


@pytest.mark.parametrize(("batch", "rows"), [(2, 64), (200, 128)])
def test_heads_that_lie_apart_have_64_bit_loads_by_name(batch: int, rows: int) -> None:
    """A tile for few blocks is taken for few blocks alone, as the library's dispatch takes it."""
    kernels = built("batch_prefill", "ckpm", dtype="bf16", hdim_q=128, page_size=16, kv_layout="linear")
    strides = tuple((name, Strides(2048, 2048 * 100, 128)) for name in "kv")
    problem = replace(PREFILL, page_size=16, batch=batch, total_q=batch * 30)
    plan = make_dispatcher(Registry(kernels))[0].plan(replace(problem, strides=strides))
    assert (plan.named, plan.stages[0].key.load, rows_of(plan)) == (True, "gload", rows)
    assert not make_dispatcher(Registry(kernels))[0].plan(problem).named


def test_measured_kernel_of_32_bit_loads_gives_its_64_bit_twin(tmp_path: Path) -> None:
    kernels = built("batch_prefill", "ckpm", dtype="bf16", hdim_q=128, page_size=16, kv_layout="linear")
    problem, base = replace(PREFILL, page_size=16), TuningDatabase(tmp_path / "t.db")
    dispatcher, _ = make_dispatcher(Registry(kernels), order="measured", tuning=base)
    chosen = dispatcher.plan(problem).stages[0]
    assert (chosen.key.load, dispatcher.plan(problem).named) == ("bload", False)  # without a measurement as upstream
    small = next(kernel.name for kernel in kernels if kernel.name == chosen.name.replace("_gload_", "_bload_"))
    base.add(problem, "emulator", [Measurement(kernel=small, value=1.0)])
    plan = make_dispatcher(Registry(kernels), order="measured", tuning=base)[0].plan(problem)
    assert (plan.named, plan.stages[0].name) == (True, small.replace("_bload_", "_gload_"))


def test_without_batch_invariance_tile_follows_batch() -> None:
    dispatcher, _ = make_dispatcher(prefill(), order="seqtune")
    assert len({rows_of(dispatcher.plan(replace(PREFILL, **changes))) for changes in BATCHES}) == 2


def test_batch_invariant_order_holds_for_every_problem() -> None:
    dispatcher, _ = make_dispatcher(prefill(), order="batch-invariant")
    assert {
        (plan.named, rows_of(plan)) for plan in (dispatcher.plan(replace(PREFILL, **changes)) for changes in BATCHES)
    } == {(True, 128)}
    assert dispatcher.why(PREFILL).problem.batch_invariant
    plan = dispatcher.plan(replace(PREFILL, tile_rows=64))
    assert (plan.named, rows_of(plan)) == (True, 64)


def test_batch_invariant_kernel_with_defect_is_not_replaced() -> None:
    """ALiBi of aiter is wrong beyond 65,536 keys (alibi-beyond-65535-keys), which depends on the longest sequence."""
    other = prefill(upstream="ckpm", page_size=1, kv_table="sglang", kv_layout="linear")
    both = Registry((*prefill().instances(), *other.instances()))
    short = replace(PREFILL, bias="alibi", lse=True)
    long = replace(short, seqlen_k=70000)
    dispatcher, _ = make_dispatcher(both)
    assert [dispatcher.plan(problem).stages[0].upstream for problem in (short, long)] == ["aiter", "ckpm"]
    assert dispatcher.plan(replace(short, batch_invariant=True)).stages[0].upstream == "aiter"
    with pytest.raises(NoKernelError, match=r"alibi-beyond-65535-keys.*batch_invariant takes no other kernel"):
        dispatcher.plan(replace(long, batch_invariant=True))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"family": "fwd", "page_size": 0, "pool_pages": 0}, "a launch of fwd names no kernel"),
        ({"p_drop": 0.1}, "dropout draws its bytes by a sequence's place in the batch"),
    ],
)
def test_batch_invariance_that_no_launch_holds_is_refused(changes: dict[str, Any], reason: str) -> None:
    dispatcher, _ = make_dispatcher(prefill())
    with pytest.raises(ProblemError, match=f"batch_invariant: {reason}"):
        dispatcher.plan(replace(PREFILL, batch_invariant=True, **changes))


def test_batch_invariant_kernel_pads_keys_of_whole_tiles_too() -> None:
    """Take no kernel without key padding, which serves batches of whole tiles alone."""
    dispatcher, _ = make_dispatcher(prefill(mode="batch"))
    whole = replace(PREFILL, mode="batch", total_q=0, seqlen_k=256)
    assert dispatcher.plan(whole).stages[0].key.pad == "psddv"
    plans = [dispatcher.plan(replace(whole, batch_invariant=True, seqlen_k=keys)) for keys in (256, 300)]
    assert [plan.stages[0].key.pad for plan in plans] == ["psskddv"] * 2
    assert plans[0].kernels == plans[1].kernels


def test_user_s_heuristic_decides() -> None:
    def widest(problem: Problem, able: Sequence[Instance]) -> Sequence[Instance]:
        return sorted(able, key=lambda kernel: -kernel.key.tile.bm0)

    dispatcher, _ = make_dispatcher(prefill(), order=widest)
    assert rows_of(dispatcher.plan(PREFILL)) == 128
    assert "order widest" in str(dispatcher.why(PREFILL))


@pytest.mark.parametrize(
    ("heuristic", "message"),
    [
        (lambda problem, able: 1 / 0, "the heuristic failed: ZeroDivisionError: division by zero."),
        (lambda problem, able: [], "must return at least one of the 2 kernels"),
        (lambda problem, able: ["a kernel"], "must return at least one of the 2 kernels"),
        (lambda problem, able: None, "the heuristic failed: TypeError"),
    ],
)
def test_heuristic_that_fails_is_named(heuristic: Any, message: str) -> None:
    dispatcher, _ = make_dispatcher(prefill(), order=heuristic)
    with pytest.raises(UsageError) as raised:
        dispatcher.plan(PREFILL)
    assert message in str(raised.value)


def test_orders_that_don_t_exist_are_refused() -> None:
    with pytest.raises(UsageError, match="unknown order 'first'; did you mean 'first-fit'"):
        make_dispatcher(prefill(), order="first")
    with pytest.raises(UsageError, match="needs a tuning database"):
        make_dispatcher(prefill(), order="measured")


def test_best_measured_is_taken_and_missing_measurement_is_noted(tmp_path: Path) -> None:
    base = TuningDatabase(tmp_path / "t.db")
    dispatcher, _ = make_dispatcher(prefill(), order="measured", tuning=base)
    choice = dispatcher.why(PREFILL).choice
    assert choice is not None
    assert (choice.order, choice.named) == ("upstream", False)
    assert "nothing was measured" in choice.note
    explained = dispatcher.why(PREFILL)
    able = {choice.stages[0].key.tile.bm0: choice.stages[0].name}
    able |= {
        kernel.key.tile.bm0: kernel.name for kernel, why in explained.refused.items() if why.startswith("it serves")
    }
    base.add(PREFILL, "emulator", [Measurement(kernel=able[128], value=1.0), Measurement(kernel=able[64], value=2.0)])
    fresh, _ = make_dispatcher(prefill(), order="measured", tuning=base)
    assert rows_of(fresh.plan(PREFILL)) == 128
    assert "1 ms, the least of 2 measured" in str(fresh.why(PREFILL))


def test_why_has_reason_for_each_other_kernel() -> None:
    registry = prefill()
    registry.add(kernel_set("batch_prefill", ARCH, dtype="fp16", hdim_q=128, mode="group", vlayout="row"))
    registry.add(built("fwd", dtype="bf16", hdim_q=128, mode="group", tile={"bm0": 128}))
    registry.add(replace(kernel, arch="gfx942") for kernel in prefill().instances())
    dispatcher, _ = make_dispatcher(registry)
    explained = dispatcher.why(PREFILL)
    assert explained.choice is not None
    assert len(explained.refused) > 50
    by_text = {
        reason: [kernel.key for kernel, why in explained.refused.items() if why == reason]
        for reason in set(explained.refused.values())
    }
    assert all(key.lse for key in by_text["no kernel with lse False"])
    assert all(key.dtype == "fp16" for key in by_text["no kernel with dtype bf16"])
    assert all(kernel.arch == "gfx942" for kernel, why in explained.refused.items() if "not for gfx950" in why)
    assert "it is for gfx942, not for gfx950" in by_text
    assert "it is of fwd, which no call of batch_prefill runs" in by_text
    assert "it serves, but ranks lower" in by_text


LARGE = replace(PREFILL, pool_pages=2**32 // (2 * 2 * 128))  # pages of 2 heads of 128 bf16: 4 GiB exactly


def test_pool_over_4_gb_is_refused_with_known_defect() -> None:
    """CK of 2025 has 32-bit offsets into pools (pull request 6653)."""
    dispatcher, device = make_dispatcher(prefill())
    dispatcher.plan(replace(LARGE, pool_pages=LARGE.pool_pages - 1))
    with pytest.raises(NoKernelError, match="known defect kv-pool-over-4-gb of aiter: offsets into a KV pool"):
        dispatcher.plan(LARGE)
    assert "rocm-libraries/pull/6653" in str(dispatcher.why(LARGE))
    assert len(device.loaded) == 1


FWD = Problem(mode="group", nhead_q=64, nhead_k=64)
BWD = Problem(family="bwd_dq_dk_dv", mode="group", hdim_q=64, hdim_v=64, seqlen_k=2048, total_k=2048)


@pytest.mark.parametrize(
    ("problem", "beyond"),
    [
        # 2^18 rows of 64 heads of 128 elements of 2 bytes: 4 GiB, of which the first head reaches all but 63 heads
        (replace(FWD, seqlen_q=2**18), {"seqlen_q": 2**18 + 1}),
        (replace(FWD, batch=2, seqlen_k=2**18, total_k=2**18), {"seqlen_k": 2**19, "total_k": 2**19}),
        # rows of a tensor that lie 2^24 bytes apart
        (Problem(seqlen_k=256, strides=(("v", Strides(0, 128, 2**23)),)), {"seqlen_k": 257}),
        # float32: 21 heads of 4 splits, of which the first head of the last one ends after 64 heads, and dQ's rows
        (Problem(family="fwd_splitkv", splits=4, nhead_q=21, seqlen_q=2**17 - 1), {"seqlen_q": 2**17}),
        (replace(BWD, nhead_q=64, seqlen_q=2**18, total_q=2**18), {"seqlen_q": 2**18 + 1, "total_q": 2**18 + 1}),
        # a split of dQ for each 128 keys
        (
            replace(BWD, deterministic=True, nhead_q=4, seqlen_q=2**18, total_q=2**18),
            {"seqlen_k": 2049, "total_k": 2049},
        ),
    ],
)
def test_rows_that_span_4_gb_are_refused_with_known_defect(problem: Problem, beyond: dict[str, Any]) -> None:
    families = stages(problem.family)
    registry = Registry(
        kernel
        for family in families
        for kernel in built(family, dtype=problem.dtype, hdim_q=problem.hdim_q, mode=problem.mode)
    )
    dispatcher, _ = make_dispatcher(registry)
    assert dispatcher.plan(problem).kernels
    with pytest.raises(NoKernelError, match="known defect rows-over-4-gb of aiter: a sequence's rows"):
        dispatcher.plan(replace(problem, **beyond))


def test_rows_of_q_that_span_4_gb_take_own_kernels_of_pages() -> None:
    registry = prefill()
    registry.add(built("batch_prefill", "ckpm", dtype="bf16", hdim_q=128, mode="group", page_size=1, kv_table="sglang"))
    dispatcher, _ = make_dispatcher(registry)
    apart = replace(PREFILL, batch=1, seqlen_q=256, total_q=256, strides=(("q", Strides(0, 128, 2**23)),))
    assert dispatcher.plan(apart).stages[0].upstream == "aiter"
    assert dispatcher.plan(replace(apart, seqlen_q=257, total_q=257)).stages[0].upstream == "ckpm"


@pytest.mark.parametrize(
    ("changes", "defect"),
    [
        # one query at key 300 sees keys from 149 on, which are in the second tile
        ({"seqlen_k": 300, "window_left": 150, "mask": "bottom_right"}, "window-start-ignored-in-page-table"),
        # one query beside 100 keys has ALiBi's distances from the bottom right
        ({"seqlen_k": 100, "window_left": 99, "mask": "window", "bias": "alibi"}, "alibi-of-a-general-window"),
    ],
)
def test_defect_of_fewer_queries_than_the_bound_is_refused(changes: dict[str, Any], defect: str) -> None:
    """A sequence on the device may have one of Q's 100 rows, because seqlen_q is a bound there."""
    dispatcher, _ = make_dispatcher(prefill(bias=changes.get("bias", "no")))
    problem = replace(PREFILL, batch=1, total_q=100, seqlen_q=100, window_right=0, **changes)
    with pytest.raises(NoKernelError, match=f"known defect {defect} of aiter"):
        dispatcher.plan(problem)


def test_plan_and_why_have_conditions_of_caller() -> None:
    dispatcher, _ = make_dispatcher(prefill())
    kept = dispatcher.plan(PREFILL).keep
    assert any("table-read-past-end of aiter" in condition for condition in kept)
    assert not any("head-dim-below-128" in condition for condition in kept)
    narrow = replace(PREFILL, hdim_q=64, hdim_v=64)
    assert any("head-dim-below-128" in condition for condition in dispatcher.plan(narrow).keep)
    assert all(condition in str(dispatcher.why(narrow)) for condition in dispatcher.plan(narrow).keep)


def test_remedy_of_moved_registers_is_a_problem_with_its_tile() -> None:
    dispatcher, _ = make_dispatcher(prefill(bias="alibi"))
    problem = replace(PREFILL, mask="bottom_right", window_right=0, bias="alibi", tile_rows=128)
    moved = [condition for condition in dispatcher.plan(problem).keep if "moved registers of Q" in condition]
    assert len(moved) == 1
    assert "a Problem with tile_rows=64 (Dispatcher.plan)" in moved[0]
    assert not any("moved registers" in text for text in dispatcher.plan(replace(problem, tile_rows=64)).keep)


def test_kernel_without_defect_is_taken_instead() -> None:
    registry = prefill()
    registry.add(built("batch_prefill", "ckpm", dtype="bf16", hdim_q=128, mode="group", page_size=1, kv_table="sglang"))
    dispatcher, _ = make_dispatcher(registry)
    assert dispatcher.plan(PREFILL).stages[0].upstream == "aiter"
    assert dispatcher.plan(LARGE).stages[0].upstream == "ckpm"
    assert dispatcher.plan(LARGE).keep == ()


def test_defect_in_one_tile_names_other_tile() -> None:
    """The 64-row tile of flash-attn's CK stores random tiles past its LDS: its dispatch must not choose."""
    dispatcher, _ = make_dispatcher(
        Registry(built("batch_prefill", "flash-attn", dtype="bf16", hdim_q=128, mode="group", vlayout="row"))
    )
    assert not dispatcher.plan(PREFILL).named
    plan = dispatcher.plan(replace(PREFILL, p_drop=0.1))
    assert (rows_of(plan), plan.named) == (128, True)


def test_problem_without_a_mask_takes_an_open_one() -> None:
    masks = {mask: built("batch_prefill", dtype="bf16", hdim_q=128, mode="group", mask=mask) for mask in ("no", "mask")}
    for registered, mask in ((("mask",), "bottom_right"), (("no", "mask"), "no")):
        dispatcher, _ = make_dispatcher(Registry(sum((masks[name] for name in registered), ())))
        explained = dispatcher.why(PREFILL)
        assert explained.choice
        problem = explained.choice.problem
        assert (problem.mask, problem.window_left, problem.window_right) == (mask, -1, -1)
        assert ("its mask is open" in str(explained)) is (mask != "no")
        able = [kernel for kernel, why in explained.refused.items() if why == "it serves, but ranks lower"]
        assert {kernel.key.mask for kernel in able} == {"mask" if mask != "no" else "no"}


def test_sink_logits_without_a_mask_take_v3_under_an_open_one() -> None:
    dispatcher, _ = make_dispatcher(
        Registry(built("batch_prefill", "ckpm-serving", dtype="bf16", hdim_q=128, page_size=16))
    )
    problem = replace(PREFILL, page_size=16, kv_table="vllm", table_width=9, seqlen_q=4096, total_q=5000, lse=True)
    for sinks, mask in ((True, "bottom_right"), (False, "no")):
        choice = dispatcher.why(replace(problem, sink_logits=sinks)).choice
        assert choice
        assert (choice.stages[0].key.pipeline, choice.problem.mask) == ("qr_async_trload_v3", mask)


def test_why_without_any_kernel_reports_it() -> None:
    dispatcher, _ = make_dispatcher(prefill())
    explained = dispatcher.why(replace(PREFILL, hdim_q=512, hdim_v=512))
    assert explained.choice is None
    assert str(explained).startswith("no registered kernel serves the problem")


@pytest.mark.parametrize(
    ("changes", "message", "left"),
    [
        ({"dtype": "fp16"}, "no kernel with dtype fp16", ""),
        ({"hdim_q": 512, "hdim_v": 512}, "no kernel with hdim_q 512", ""),
        ({"arch": "gfx942"}, "none of the 0 registered for gfx942 is of batch_prefill", ""),
        ({"page_size": 16}, "no kernel with page_size 16", ""),
        ({"hdim_q": 584, "hdim_v": 584}, r"No kernel of aiter, .* serves it either: change the problem", "ckpm jit"),
        ({"dtype": "fp32"}, r"serves it either: change the problem, or give dtype='bf16' to round Q", "ckpm jit"),
        ({"sink_logits": True}, r"no kernel with sink logits among 2 .* has no sink_ptr", "page_size 1 "),
    ],
)
def test_unserved_problem_reports_missing_kernel(changes: dict[str, Any], message: str, left: str) -> None:
    """The message is without what is ``left``: a command for a problem beyond every CK, a field that is served."""
    dispatcher, device = make_dispatcher(prefill())
    with pytest.raises(NoKernelError, match=message) as raised:
        dispatcher.plan(replace(PREFILL, **changes))
    assert not left or left not in str(raised.value)
    assert not device.loaded


def test_refusal_has_no_command_of_kernel_with_known_defect() -> None:
    """CK of November 2025 has a race in dense kernels of head dim 192 (rocm-libraries pull request 4742)."""
    dispatcher, _ = make_dispatcher(prefill())
    latent = Problem(family="fwd", mode="group", dtype="bf16", hdim_q=192, hdim_v=128, total_q=60, total_k=60, batch=2)
    with pytest.raises(NoKernelError, match=r"either.*known defect v-overwrites-the-last-slice-of-k") as raised:
        dispatcher.plan(latent)
    assert "ckpm jit" not in str(raised.value)


@pytest.mark.parametrize(
    ("changes", "upstream"),
    [
        ({"dtype": "fp16"}, "aiter"),
        ({"page_size": 16}, "ckpm"),
        ({"arch": "gfx942"}, "aiter"),
        ({"splits": 2, "family": "fwd_splitkv", "page_size": 0, "pool_pages": 0}, "aiter"),
    ],
)
def test_refusal_has_command_of_kernel_that_serves(changes: dict[str, Any], upstream: str) -> None:
    dispatcher, _ = make_dispatcher(prefill())
    problem = replace(PREFILL, **changes)
    with pytest.raises(NoKernelError) as raised:
        dispatcher.plan(problem)
    command = str(raised.value).partition("Compile one: ckpm jit ")[2].partition(",")[0]
    parser = argparse.ArgumentParser()
    add_jit_options(parser)
    args = parser.parse_args(command.split())
    assert (args.arch, args.upstream) == (problem.arch, upstream)
    of = upstreams()[upstream].dialect
    order, _ = order_for(args.name[0], Place(upstream=upstream), args.arch, of)
    kernel = Instance(key=key_of(order.names[0], of, "simplified"), arch=args.arch, upstream=upstream, dialect=of)
    assert refusal(kernel, problem) == ""


def test_default_libraries_are_those_of_listed_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Libraries of ckpm.build, CKPM_LIBRARIES, the clone and ckpm_libraries, in this order, and none of ./build."""
    clone, elsewhere = tmp_path / "clone", tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    monkeypatch.setattr(paths, "PROJECT", clone)
    monkeypatch.setattr(paths, "INSTALLED", False)
    monkeypatch.setattr(call, "BUILT", [])
    monkeypatch.setattr(call, "choose", lambda choice, arch: FakeDevice())
    monkeypatch.setattr(call, "_DEVICES", {})
    names: dict[str, Any] = {name: {} for name in (kernel.name for kernel in prefill().instances())}

    def find_libraries(*, again: bool = True) -> set[Path | None]:
        if again:
            monkeypatch.setattr(call, "_DEFAULTS", {})
        return {kernel.library for kernel in call.default().registry.instances()}

    missing = f"no library is in {clone}/build/gfx950. "
    with pytest.raises(NoKernelError, match=f"^{re.escape(missing)}Build one: ckpm build .*CKPM_LIBRARIES={elsewhere}"):
        find_libraries()
    here = manifests.write_library(elsewhere / "build/gfx950/aiter", manifests.document(names))
    with pytest.raises(
        NoKernelError, match=f"^{re.escape(missing)}Libraries are in {elsewhere}/build/gfx950: CKPM_LIBRARIES="
    ):
        find_libraries()
    package = tmp_path / "site/ckpm_libraries"
    monkeypatch.syspath_prepend(package.parent)
    installed = manifests.write_library(package / "gfx950/ckpm-serving", manifests.document(names))
    (package / "__init__.py").touch()
    assert find_libraries() == {installed}
    of_clone = manifests.write_library(clone / "build/gfx950/aiter", manifests.document(names))
    assert find_libraries() == {of_clone}
    monkeypatch.setenv("CKPM_LIBRARIES", "build")
    assert find_libraries() == {here}
    new = manifests.write_library(tmp_path / "work/build/gfx950/aiter", manifests.document(names))
    request = SimpleNamespace(work=tmp_path / "work", folder="build/gfx950/aiter")
    monkeypatch.setattr(command, "read_options", lambda args: SimpleNamespace(request=request, jobs=1))
    monkeypatch.setattr(building, "run", lambda request, jobs: None)
    assert ckpm.build("gfx950", work=tmp_path / "work") == new
    assert find_libraries(again=False) == {new}  # of the same process
    folders = [tmp_path / "work/build", elsewhere / "build", clone / "build", package]
    assert ckpm.library_folders("gfx942") == [folder / "gfx942" for folder in folders]


@pytest.fixture
def searched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder ``build`` whose libraries calls take, in the current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(paths, "INSTALLED", True)
    monkeypatch.setattr(call, "BUILT", [])
    monkeypatch.setattr(call, "choose", lambda choice, arch: FakeDevice())
    monkeypatch.setattr(call, "_DEVICES", {})
    monkeypatch.setattr(call, "_DEFAULTS", {})
    monkeypatch.setenv("CKPM_LIBRARIES", "build")
    return tmp_path / "build"


def test_library_of_other_tables_is_left_out_with_one_warning(searched: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Raises its error if no library is left. Another damage of a library is an error beside any others."""
    name = prefill().instances()[0].name
    stale = manifests.write_library(searched / "gfx950/aiter", manifests.document({f"{name}_of_other_tables": {}}))
    with pytest.raises(LibraryError, match=f"^{stale}: built from other tables: "):
        call.default()
    assert not caplog.records
    fitting = manifests.write_library(searched / "gfx950/ckpm", manifests.document({name: {}}))
    for _ in range(2):
        assert {kernel.library for kernel in call.default().registry.instances()} == {fitting}
    (warning,) = caplog.messages
    assert f"{stale}: built from other tables" in warning
    assert re.search(f"Build it again: ckpm build .*, or delete the folder {stale.parent}\\.$", warning)
    stale.write_bytes(b"of another build than its manifest")
    call._DEFAULTS.clear()
    with pytest.raises(LibraryError, match="it is not the library of the manifest"):
        call.default()


@pytest.mark.parametrize("named", [".", "build/gfx950", "build/gfx950/aiter", "build/gfx950/aiter/libckpm.so"])
def test_folder_near_the_libraries_is_corrected(searched: Path, monkeypatch: pytest.MonkeyPatch, named: str) -> None:
    manifests.write_library(searched / "gfx950/aiter", manifests.document({prefill().instances()[0].name: {}}))
    monkeypatch.chdir("/")
    monkeypatch.setenv("CKPM_LIBRARIES", str(searched.parent / named))
    with pytest.raises(NoKernelError) as raised:
        call.default()
    assert f"Libraries are in {searched}/gfx950: CKPM_LIBRARIES={searched} lets calls use them; or" in str(raised.value)
    assert "ckpm build" not in str(raised.value)


@pytest.mark.parametrize(
    ("gpus", "arch"),
    [((), "gfx950"), (("gfx942", "gfx942"), "gfx942"), (("gfx1100", "gfx942"), "gfx942"), (("gfx1100",), "gfx950")],
)
def test_default_arch_with_rocm_is_that_of_the_gpu(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, gpus: tuple[str, ...], arch: str
) -> None:
    """No library is built for gfx1100."""
    monkeypatch.setattr(call, "_DEFAULTS", {})
    monkeypatch.setattr(call, "_DEVICES", {})
    monkeypatch.setenv("CKPM_ROCM", "1")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(paths, "INSTALLED", True)
    monkeypatch.setattr(rocm_places, "gpu_archs", lambda: gpus)
    monkeypatch.setattr(call, "_arch_here", call._arch_here.__wrapped__)
    monkeypatch.setattr(call, "BUILT", [tmp_path])
    with pytest.raises(NoKernelError, match=rf"no library is in {tmp_path}/{arch}\. Build one: .*{arch}"):
        call.default()


@pytest.mark.parametrize(
    ("variable", "earlier", "on_gpu", "kind"),
    [
        ("", (), False, "emulator"),
        ("1", (), False, "hip"),
        ("", (), True, "hip"),
        ("", ("hip",), False, "hip"),
        ("0", ("emulator",), False, "emulator"),
    ],
)
def test_default_device_is_that_of_environment_or_arrays(
    monkeypatch: pytest.MonkeyPatch, variable: str, earlier: tuple[str, ...], on_gpu: bool, kind: str
) -> None:
    monkeypatch.setenv("CKPM_ROCM", variable)
    monkeypatch.setattr(call, "_DEFAULTS", {})
    monkeypatch.setattr(call, "_DEVICES", {kind: FakeDevice(kind) for kind in earlier})
    monkeypatch.setattr(call, "choose", lambda choice, arch: FakeDevice(choice))
    monkeypatch.setattr(Registry, "add_library", lambda registry, library: None)
    monkeypatch.setattr(Registry, "__len__", lambda registry: 1)
    array = SimpleNamespace(__cuda_array_interface__={}) if on_gpu else None
    assert call.default(beside=array).device.kind == kind


def test_array_of_gpu_after_calls_on_emulator_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call, "_DEVICES", {"gfx950": FakeDevice("emulator")})
    with pytest.raises(DeviceError, match=r"a process has one device\. Set CKPM_ROCM=1 before it starts"):
        call.default(beside=SimpleNamespace(__cuda_array_interface__={}))


def test_family_without_libraries_is_named() -> None:
    with pytest.raises(NoKernelError, match="no library has kernels of rowwise"):
        stages("rowwise")


def test_plans_are_kept_until_registry_changes() -> None:
    registry = prefill()
    dispatcher, device = make_dispatcher(registry)
    plan = dispatcher.plan(PREFILL)
    assert dispatcher.plan(dataclasses.replace(PREFILL)) is plan
    registry.set_priority([plan.stages[0].name], 1)
    assert dispatcher.plan(PREFILL) is not plan
    assert len(device.loaded) == 1  # the library stays open


def test_plan_in_threads_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel takes minutes to compile: other threads wait for it. Refusals are shared, too."""
    declared = kernel_set("batch_prefill", ARCH, upstream="ckpm", dtype="bf16", hdim_q=128, page_size=1)
    registry, compiled = Registry(declared), list[str]()
    dispatcher, device = make_dispatcher(registry, compile=compiles(registry, compiled))
    searches: list[Problem] = []

    def find_none(problem: Problem, preferred: object) -> str:
        searches.append(problem)
        return ""

    monkeypatch.setattr("ckpm.attention.dispatcher.find_missing", find_none)

    def plan(problem: Problem) -> Any:
        try:
            return dispatcher.plan(problem).kernels
        except NoKernelError as error:
            return str(error)

    with ThreadPoolExecutor(8) as pool:
        for problem in (PREFILL, replace(PREFILL, hdim_q=512, hdim_v=512)):
            assert len(set(pool.map(plan, [problem] * 16))) == 1
    assert (len(compiled), len(device.loaded), len(searches)) == (1, 1, 1)


def test_two_stages_come_from_one_library() -> None:
    first = built("fwd_splitkv", dtype="bf16", hdim_q=128, mode="batch")
    second = built("fwd_splitkv_combine", dtype="bf16", hdim_q=128, mode="batch")
    lonely = [
        replace(kernel, library=Path("/lonely/fwd_splitkv/libckpm.so"), upstream="lonely", priority=9)
        for kernel in first
    ]
    dispatcher, device = make_dispatcher(Registry((*lonely, *first, *second)))
    problem = Problem(family="fwd_splitkv", splits=3, seqlen_k=300, lse=True)
    plan = dispatcher.plan(problem)
    assert [stage.key.family for stage in plan.stages] == ["fwd_splitkv", "fwd_splitkv_combine"]
    assert {stage.library for stage in plan.stages} == {first[0].library}
    assert plan.stages[1].key.lse
    assert device.loaded == [first[0].library]
    dispatcher, _ = make_dispatcher(Registry(lonely))
    with pytest.raises(NoKernelError, match="fwd_splitkv_combine: no kernel of it is there"):
        dispatcher.plan(problem)


def compiles(registry: Registry, compiled: list[str]) -> Callable[[Sequence[Instance]], tuple[Path, ...]]:
    """A compiler that registers each kernel that is demanded, and lists its name."""

    def compile_kernels(stages: Sequence[Instance]) -> tuple[Path, ...]:
        compiled.extend(stage.name for stage in stages)
        registry.add([replace(stage, library=Path("/jit/batch_prefill/libckpm.so")) for stage in stages])
        return ()

    return compile_kernels


@pytest.mark.parametrize("order", ["upstream", "first-fit", "seqtune"])
def test_compiled_kernel_is_launched_in_every_order(order: str) -> None:
    declared = kernel_set("batch_prefill", ARCH, upstream="ckpm", dtype="bf16", hdim_q=128, page_size=1)
    registry = Registry(declared)
    compiled: list[str] = []
    dispatcher, device = make_dispatcher(registry, compile=compiles(registry, compiled), order=order)
    problem = replace(PREFILL, mask="bottom_right", window_right=0)
    assert dispatcher.why(problem).choice.named  # type: ignore[union-attr]
    plan = dispatcher.plan(problem)
    device.chosen = plan.kernels
    plan.run(POINTERS)
    assert device.names == compiled
    assert len(compiled) == 1


def test_declared_kernels_are_compiled_when_no_built_one_serves() -> None:
    declared = kernel_set("batch_prefill", ARCH, dtype="bf16", hdim_q=128, mode="group", vlayout="row")
    compiled: list[str] = []
    registry = Registry(declared)
    plain, _ = make_dispatcher(registry)
    with pytest.raises(NoKernelError, match="no built kernel of batch_prefill serves"):
        plain.plan(PREFILL)
    dispatcher, device = make_dispatcher(registry, compile=compiles(registry, compiled))
    assert "only declared" not in str(dispatcher.why(PREFILL).refused.get(declared[0]))
    plan = dispatcher.plan(PREFILL)
    assert [plan.stages[0].name] == compiled
    assert device.loaded == [Path("/jit/batch_prefill/libckpm.so")]
    dispatcher.plan(replace(PREFILL, seqlen_k=90))  # the same kernel serves it
    assert len(compiled) == 1
    with pytest.raises(NoKernelError, match="no declared kernel of batch_prefill serves"):
        dispatcher.plan(replace(PREFILL, dtype="fp16"))


def test_on_demand_asks_for_stage_that_names_library(monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[tuple[Any, ...]] = []

    def compile_keys(keys: Sequence[Any], arch: str, upstream: str, **options: Any) -> tuple[Path, ...]:
        requests.append((keys, arch, upstream, options))
        return (Path("/jit/entry"),)

    monkeypatch.setattr(on_demand, "compile_keys", compile_keys)
    first = kernel_set("fwd_splitkv", ARCH, dtype="bf16", hdim_q=128)[0]
    second = kernel_set("fwd_splitkv_combine", ARCH, dtype="bf16", hdim_q=128)[0]
    libraries = on_demand.on_demand(jobs=3)((second, first))
    defaults = {"toolchain": "", "ck_root": None, "headers": None}
    assert requests == [([first.key], ARCH, "aiter", {**defaults, "jobs": 3})]
    assert libraries == (Path("/jit/entry/libckpm.so"),)


def test_plans_of_a_stream_share_workspaces_until_closing() -> None:
    """Memory that was outgrown stays, as a captured graph may write to it. All of it is bounded by the largest need."""
    registry = Registry((*built("fwd_splitkv", dtype="bf16"), *built("fwd_splitkv_combine", dtype="bf16")))
    dispatcher, device = make_dispatcher(registry, FakeDevice())
    needs = []
    for splits in range(2, 34):
        plan = dispatcher.plan(Problem(family="fwd_splitkv", splits=splits, lse=True))
        plan.run(dict.fromkeys(("q", "k", "v", "o", "lse"), 4096))
        needs.append(sum(plan.workspaces.values()))
    assert not device.hip.freed  # type: ignore[attr-defined]
    held = sum(block.size for block in device.hip.memory.values())  # type: ignore[attr-defined]
    assert max(needs) <= held <= 4 * max(needs)
    last = device.launched[-1]
    plan.run(dict.fromkeys(("q", "k", "v", "o", "lse"), 4096))
    assert device.launched[-1].o_acc == last.o_acc
    dispatcher.close()
    assert sorted(device.hip.freed) == sorted(device.hip.memory)  # type: ignore[attr-defined]


def test_default_streams_of_two_gpus_have_their_own_workspaces() -> None:
    """The default stream is 0 on every GPU, and a kernel of one must not write to another's memory."""
    hip: Any = FakeDevice().hip
    shared, addresses = Workspaces(hip), []
    for gpu in (0, 1, 0):
        hip.gpu = gpu
        with shared.lend(0, {"o_acc": 10}) as memory:
            addresses.append(memory["o_acc"].address)
    assert addresses[0] == addresses[2] != addresses[1]


def test_workspace_that_cannot_double_has_size_of_need() -> None:
    """Room for 25: 10 are held and 11 needed, and 20 are not there."""
    hip: Any = FakeDevice().hip
    shared = Workspaces(hip)
    allocate: Callable[[int], Memory] = hip.malloc
    with shared.lend(0, {"o_acc": 10}) as first:
        kept = first["o_acc"].address

    def malloc(size: int) -> Memory:
        if size > 15:
            raise HipError("out of memory", 2)
        return allocate(size)

    hip.malloc = malloc
    with shared.lend(0, {"o_acc": 11}) as second:
        assert (second["o_acc"].size, second["o_acc"].address != kept) == (11, True)
    with pytest.raises(HipError, match="out of memory"), shared.lend(0, {"o_acc": 16}):
        pass
