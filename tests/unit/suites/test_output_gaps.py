"""Gaps between the rows of outputs: where they lie, and that a number written into one is seen."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import pytest

from ckpm.attention.launch.buffers import GAP, POISON, prepare
from ckpm.attention.launch.c_abi import Launch
from ckpm.attention.launch.launching import LaunchOutcome, check
from ckpm.kernels.abi import Status
from ckpm.matrix.problems.case import SuiteCase
from tests.unit.attention.fakes import make_case

make = functools.partial(
    make_case, lse=True, p_drop=0.2, nhead_q=2, seqlens_q=(3, 3), seqlens_k=(5, 4), hdim_q=16, hdim_v=8,
    checks=("output_gaps",),
)  # fmt: skip


def written(problem: SuiteCase) -> LaunchOutcome:
    """The outcome of a kernel that writes every element by strides, each with its own number."""
    prepared = prepare(problem)
    check(prepared)
    p, f = problem, {name: int(value) for name, value in prepared.fields.items() if isinstance(value, int)}
    outputs = {name: np.full(prepared.buffers[name].size, POISON, np.uint8) for name in ("o", "lse", "rand_val")}
    o, lse = outputs["o"].view(np.uint16), outputs["lse"].view(np.float32)
    rows = max(p.seqlens_q) if p.mode == "batch" else sum(p.seqlens_q)
    for token in range(sum(p.seqlens_q)):
        batch, row = divmod(token, rows)
        for head in range(p.nhead_q):
            at = batch * f.get("batch_stride_o", 0) + row * f["stride_o"] + head * f["nhead_stride_o"]
            o[at : at + p.hdim_v] = token * 100 + head * 10 + np.arange(p.hdim_v)
            lse[batch * f["batch_stride_lse"] + head * f["nhead_stride_lse"] + row] = token * 10 + head
            at = batch * f["batch_stride_randval"] + head * f["nhead_stride_randval"] + row * f["stride_randval"]
            outputs["rand_val"][at : at + p.seqlens_k[token // 3]] = token * 10 + head
    launch = Launch(status=Status.OK, message="", kernels=("k",), milliseconds=0)
    return LaunchOutcome(prepared=prepared, launch=launch, fault=None, seconds=0, outputs=outputs)


@pytest.mark.parametrize("mode", ["group", "batch"])
@pytest.mark.parametrize("checks", [(), ("output_gaps",)])
def test_outputs_are_read_by_their_strides(mode: str, checks: tuple[str, ...]) -> None:
    outcome = written(make(mode=mode, checks=checks))
    assert outcome.o_bits().shape == (6, 2, 8)
    assert outcome.o_bits()[4, 1].tolist() == [410 + dim for dim in range(8)]
    assert outcome.lse().tolist() == [[token * 10 + head for token in range(6)] for head in range(2)]
    assert outcome.random_values()[1][1].tolist() == [[token * 10 + 1] * 4 for token in (3, 4, 5)]
    assert outcome.written_gaps() == {}


@pytest.mark.parametrize(
    ("spoil", "gaps"),
    [
        (lambda out: out["o"].view(np.uint16)[8 : 8 + GAP].fill(0), {"o": GAP}),
        (lambda out: out["o"].view(np.uint16)[-1:].fill(7), {"o": 1}),
        (lambda out: out["lse"].view(np.float32)[6:7].fill(0), {"lse": 1}),
        (lambda out: out["rand_val"][5:7].fill(0), {"rand_val": 2}),
        (lambda out: out["rand_val"][-GAP - 1 : -GAP].fill(0), {"rand_val": 1}),  # after the shorter sequence's keys
        (lambda out: out["o"].view(np.uint16)[0:8].fill(0), {}),
    ],
)
def test_what_is_written_between_rows_is_counted(
    spoil: Callable[[dict[str, np.ndarray]], None], gaps: dict[str, int]
) -> None:
    outcome = written(make())
    spoil(dict(outcome.outputs))
    assert outcome.written_gaps() == gaps
