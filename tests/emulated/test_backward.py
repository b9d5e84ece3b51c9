"""Backward passes as the default upstream's templates give them, chosen by our dispatch and run on the emulator.

Three kernels, one after the other, against float64 gradients; then defects of a pass, each planted where it would be.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ckpm.kernels.abi import BwdArguments, Status
from ckpm.matrix.problems.case import SuiteCase
from ckpm.suites.backward_cases import BwdOutcome, Given, compare_gradients, given, run_backward
from ckpm_emulator.device import EmulatedGpu
from emulator_child import on_device
from tests.emulated.emulator_fwd import CHECKS, build, check_refusals, open_device

pytestmark = pytest.mark.nightly  # compiles for a minute or two

# bf16 with head dim 64 in batch mode: dQ added to by atomic additions and in order, both with what stands beside them
WHERE = (
    "key.dtype == 'bf16' and key.hdim_q == 64 and key.mode == 'batch' and (key.pad in ('psd', 'psdv') "
    "or key.trload and not key.tile.max_seq_q and not key.dropout)"
)
ORDER = {**CHECKS, "lds_races": False, "wave_order": 1}  # waves store the same rows of LSE and D: see the family's host


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five kernels: a minute or two of compiling."""
    return build(tmp_path_factory, "bwd", ("bwd_dot_do_o", "bwd_dq_dk_dv", "bwd_convert_dq"), WHERE)


def request(seqlen_q: int, seqlen_k: int, *, deterministic: bool, **changes: Any) -> SuiteCase:
    fields: dict[str, Any] = {
        "name": "kernels/x", "suite": "kernels", "tier": "full", "group": "x", "mode": "batch", "hdim_q": 56,
        "hdim_v": 48, "nhead_q": 4, "nhead_k": 2, "seqlens_q": (seqlen_q,) * 2, "seqlens_k": (seqlen_k,) * 2,
        "mask": "bottom_right", "window_right": 0,
    }  # fmt: skip
    return SuiteCase(**{**fields, **changes}, deterministic=deterministic)


def ran(device: EmulatedGpu, library: Path, problem: SuiteCase, data: Given) -> BwdOutcome:
    hip, opened = open_device(device, library, BwdArguments)
    outcome = run_backward(hip, opened, problem, data.tensors)
    assert outcome.launch.status == Status.OK, outcome.launch
    return outcome


@pytest.mark.parametrize(
    ("deterministic", "changes"),
    [
        (True, {}),
        (False, {}),
        (True, {"mask": "top_left", "window_left": 20, "window_right": 5}),
        (False, {"mask": "window", "window_left": 9, "window_right": 30, "nhead_k": 1}),
    ],
)
@on_device("gfx950")
def test_gradients_are_those_of_float64(
    device: EmulatedGpu, library: Path, deterministic: bool, changes: dict[str, Any]
) -> None:
    """Two tiles of keys and three of queries, the last not whole."""
    problem = request(75, 171, deterministic=deterministic, **changes)
    data = given(problem)
    first = ran(device, library, problem, data)
    word = "deterministic" if deterministic else "ndeterministic"
    assert [name.partition("_d64_bf16_")[0] for name in first.launch.kernels] == [
        "fmha_bwd_dot_do_o", "fmha_bwd", "fmha_bwd_convert_dq"
    ]  # fmt: skip
    assert [f"_{word}_" in name for name in first.launch.kernels] == [False, True, True]
    gradients = compare_gradients(data, first)
    assert [gradient.name for gradient in gradients] == ["dq", "dk", "dv", "d"]
    assert all(gradient.passed for gradient in gradients), "; ".join(map(str, gradients))
    assert min(gradient.worst for gradient in gradients[:3]) > 0.05  # the bounds aren't so wide that they say nothing
    device.configure(**ORDER)
    again = ran(device, library, problem, data)
    for name in ("dk", "dv", "d", *(("dq",) if deterministic else ())):
        assert np.array_equal(getattr(first, name), getattr(again, name)), name


@on_device("gfx950")
def test_what_goes_wrong_in_pass_is_noticed(device: EmulatedGpu, library: Path) -> None:
    """Each defect is one of what the kernels get, while the reference gets what it should have been."""
    problem = request(75, 171, deterministic=True)
    data = given(problem)
    t = data.tensors
    planted: dict[str, tuple[dict[str, Any], str]] = {
        "D left out": ({"o": np.zeros_like(t["o"])}, "dq dk d"),
        "O of the row before": ({"o": np.roll(t["o"], 1, axis=0)}, "dq dk d"),
        "LSE of the head before": ({"lse": np.roll(t["lse"], 1, axis=0)}, "dq dk dv"),
        "the other KV head": ({"v": t["v"][:, ::-1].copy()}, "dq dk"),
        "dO of another sign": ({"dout": t["dout"] ^ 0x8000}, "dq dk dv d"),
    }
    for error, (changes, where) in planted.items():
        wrong = dataclasses.replace(data, tensors={**t, **changes})
        gradients = compare_gradients(data, ran(device, library, problem, wrong))
        assert [gradient.name for gradient in gradients if not gradient.passed] == where.split(), error
    unscaled = dataclasses.replace(problem, scale=1.0)
    assert [gradient.passed for gradient in compare_gradients(data, ran(device, library, unscaled, data))] == [
        False,
        False,
        False,
        True,
    ]
    late = dataclasses.replace(problem, mask="top_left")
    assert [gradient.passed for gradient in compare_gradients(data, ran(device, library, late, data))] == [
        False,
        False,
        False,
        True,
    ]


@on_device("gfx950")
def test_accumulator_that_is_not_zero_shows_in_dq(device: EmulatedGpu, library: Path) -> None:
    """Kernels add to it, or leave out rows that a tile of keys doesn't see."""
    from ckpm.attention.launch.arguments import workspaces
    from ckpm.suites import backward_cases

    for deterministic in (False, True):
        problem = request(75, 171, deterministic=deterministic)
        data, laid_out = given(problem), backward_cases.laid_out

        def lay_out_ones(*arguments: Any, original: Any = laid_out) -> dict[str, Any]:
            arrays: dict[str, Any] = original(*arguments)
            size = workspaces(arguments[0])["dq_acc"] // 4
            return {**arrays, "dq_acc": np.ones(size, np.float32)}

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(backward_cases, "laid_out", lay_out_ones)
            gradients = compare_gradients(data, ran(device, library, problem, data))
        assert [gradient.name for gradient in gradients if not gradient.passed] == ["dq"]


@on_device("gfx950")
def test_what_no_kernel_serves_is_refused(device: EmulatedGpu, library: Path) -> None:
    problem = request(75, 171, deterministic=True, mask="no", window_right=-1)
    hip, opened = open_device(device, library, BwdArguments)
    outcome = run_backward(hip, opened, problem, given(problem).tensors)
    assert (outcome.launch.status, outcome.launch.kernels) == (Status.UNSUPPORTED, ())


POINTERS = ("q", "k", "v", "o", "lse", "dout", "d", "dq", "dk", "dv", "dq_acc")
SIZES = ("batch", "nhead_q", "nhead_k", "hdim_q", "hdim_v", "seqlen_q", "seqlen_k", "max_seqlen_q", "max_seqlen_k")
REFUSED: dict[str, dict[str, Any]] = {
    "max_seqlen_k must be positive": {"max_seqlen_k": 0},
    "repeat must not be negative": {"repeat": -1},
    "nhead_q must be a multiple of nhead_k": {"nhead_k": 2},
    "mask_type must be 0 to 3": {"mask_type": 4},
    "bias_type must be 0 to 2": {"bias_type": 3},
    "dq_acc must not be null": {"dq_acc": None},
    "bias must be null without a bias_type, and only then": {"bias": 1},
    "has_dbias must be 0 without an elementwise bias": {"has_dbias": 1, "bias_type": 2, "bias": 1, "dbias": 1},
    "dbias must be null without has_dbias, and only then": {"has_dbias": 1, "bias_type": 1, "bias": 1},
    "seqstart_q must be null in batch mode, and only then": {"is_group_mode": 1},
    "seqstart_k must be null in batch mode, and only then": {"seqstart_k": 1},
    "cu_seqlen_q must be null in batch mode, whose kernels don't read it": {"cu_seqlen_q": 1},
    "cu_seqlen_k must be null with seqlen_k_ptr": {
        "is_group_mode": 1, "seqstart_q": 1, "seqstart_k": 1, "seqlen_k_ptr": 1, "cu_seqlen_k": 1,
    },
    "p_drop must lie between 0 and 1 with has_dropout": {"has_dropout": 1, "p_drop": 1.0},
    "p_drop must be 0 without has_dropout": {"p_drop": 0.5},
    "dropout_seed and dropout_offset must be 0 without has_dropout": {"dropout_seed": 1},
    "store_randval must be 0 without has_dropout": {"store_randval": 1},
    "rand_val must be null without store_randval, and only then": {"rand_val": 1},
    "split_stride_dq_acc must be 0 without is_deterministic": {"split_stride_dq_acc": 1},
    "the caller's ckpm_bwd_problem is of another version: use this library's ckpm_bwd.h": {"abi_version": 2},
}  # fmt: skip


@on_device("gfx950")
def test_problem_that_contradicts_itself_is_refused(device: EmulatedGpu, library: Path) -> None:
    _, opened = open_device(device, library, BwdArguments)
    sound = dict.fromkeys((*POINTERS, *SIZES), 1)
    check_refusals(opened, sound, REFUSED)
