"""The float64 reference against the independent one, which is another program with the same conventions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ckpm.attention import reference
from ckpm.attention.launch.buffers import Inputs
from ckpm.attention.reference import exact
from ckpm.matrix.problems.case import SuiteCase as TableProblem
from ckpm.matrix.problems.problem import Problem
from tests.unit.attention import independent

TABLE = TableProblem(
    name="t", suite="", tier="", group="", seqlens_q=(40, 20), seqlens_k=(70, 25), nhead_q=4, nhead_k=2, hdim_q=32,
    hdim_v=16,
)  # fmt: skip
MINE = Problem(
    family="batch_prefill", mode="group", batch=2, total_q=60, seqlen_q=40, seqlen_k=70, nhead_q=4, nhead_k=2,
    hdim_q=32, hdim_v=16, page_size=1, pool_pages=95,
)  # fmt: skip


def drawn(seed: int, *shapes: tuple[int, ...]) -> list[Any]:
    random = np.random.default_rng(seed)
    return [random.uniform(-2, 2, shape) for shape in shapes]


@pytest.mark.parametrize(
    "changes",
    [
        {"mask": "bottom_right", "window_right": 0, "bias": "alibi"},
        {"mask": "bottom_right", "window_left": 9, "window_right": 0, "sink_size": 3},
        {"logits_soft_cap": 2.0, "scale": 0.3},
        {"bias": "alibi"},
    ],
)
def test_reference_agrees_with_independent_one(changes: dict[str, Any]) -> None:
    lengths = list(zip(TABLE.seqlens_q, TABLE.seqlens_k, strict=True))
    q = drawn(1, *((sq, 4, 32) for sq, _ in lengths))
    k = drawn(2, *((sk, 2, 32) for _, sk in lengths))
    v = drawn(3, *((sk, 2, 16) for _, sk in lengths))
    slopes = np.abs(drawn(5, (2, 4))[0]) / 9 if changes.get("bias") == "alibi" else None
    table = replace(TABLE, **changes)
    wanted = exact(Inputs(problem=table, q=tuple(q), k=tuple(k), v=tuple(v), slopes=slopes))
    o, lse = independent.attention(replace(MINE, **changes), q, k, v, slopes=slopes)
    np.testing.assert_allclose(o, wanted.o, rtol=0, atol=1e-12)
    np.testing.assert_allclose(lse, wanted.lse, rtol=0, atol=1e-12)


def test_dropout_by_kernel_s_bytes_agrees() -> None:
    q, k, v = drawn(1, (8, 4, 32), (30, 2, 32), (30, 2, 16))
    random = np.random.default_rng(9).integers(0, 256, (4, 8, 30)).astype(np.uint8)
    table = replace(TABLE, seqlens_q=(8,), seqlens_k=(30,), p_drop=0.3)
    wanted = exact(Inputs(problem=table, q=(q,), k=(k,), v=(v,)), [random])
    mine = replace(MINE, batch=1, total_q=8, seqlen_q=8, seqlen_k=30, p_drop=0.3)
    o, lse = independent.attention(mine, [q], [k], [v], random_values=[random])
    np.testing.assert_allclose(o, wanted.o, rtol=0, atol=1e-12)
    np.testing.assert_allclose(lse, wanted.lse, rtol=0, atol=1e-12)


def test_no_key_gives_zero_and_minus_infinity() -> None:
    q, k, v = drawn(1, (2, 4, 32), (0, 2, 32), (0, 2, 16))
    o, lse = reference.attention(replace(MINE, batch=1, total_q=2, seqlen_q=2, seqlen_k=0), [q], [k], [v])
    assert (o == 0).all()
    assert np.isneginf(lse).all()


def test_agreement_sees_what_is_outside_its_tolerance() -> None:
    want = np.array([[1.0, -2.0], [0.0, 4.0]])
    assert reference.agreement(want, want, "bf16").passed
    assert reference.agreement(want + 0.0099, want, "bf16").passed
    off = want.copy()
    off[1, 0] += 0.011
    found = reference.agreement(off, want, "bf16")
    assert (found.passed, found.where) == (False, (1, 0))
    assert str(found) == "differs: largest error 1.10 of its tolerance at [1, 0]"
    for bad in (np.nan, np.inf):
        off[1, 0] = bad
        assert not reference.agreement(off, want, "bf16").passed
    empty = np.full((1, 2), -np.inf)
    assert reference.agreement(empty, empty, "lse").passed
    with pytest.raises(ValueError, match="differ"):
        reference.agreement(want[0], want, "bf16")
