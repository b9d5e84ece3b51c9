"""The float64 reference of a call without keys, and its agreement. test_reference.py compares its numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ckpm.attention import reference
from ckpm.matrix.problems.problem import Problem

MINE = Problem(
    family="batch_prefill", mode="group", batch=2, total_q=60, seqlen_q=40, seqlen_k=70, nhead_q=4, nhead_k=2,
    hdim_q=32, hdim_v=16, page_size=1, pool_pages=95,
)  # fmt: skip


def drawn(seed: int, *shapes: tuple[int, ...]) -> list[Any]:
    random = np.random.default_rng(seed)
    return [random.uniform(-2, 2, shape) for shape in shapes]


def test_no_key_gives_zero_and_minus_infinity() -> None:
    q, k, v = drawn(1, (2, 4, 32), (0, 2, 32), (0, 2, 16))
    o, lse = reference.attention(replace(MINE, batch=1, total_q=2, seqlen_q=2, seqlen_k=0), [q], [k], [v])
    assert (o == 0).all()
    assert np.isneginf(lse).all()


def test_agreement_beyond_tolerance_fails() -> None:
    want = np.array([[1.0, -2.0], [0.0, 4.0]])
    assert reference.agreement(want, want, "bf16").passed
    assert reference.agreement(want + 0.0099, want, "bf16").passed
    off = want.copy()
    off[1, 0] += 0.011
    agreement = reference.agreement(off, want, "bf16")
    assert (agreement.passed, agreement.where) == (False, (1, 0))
    assert str(agreement) == "differs: largest error 1.10 of its tolerance at [1, 0]"
    for bad in (np.nan, np.inf):
        off[1, 0] = bad
        assert not reference.agreement(off, want, "bf16").passed
    empty = np.full((1, 2), -np.inf)
    assert reference.agreement(empty, empty, "lse").passed
    with pytest.raises(ValueError, match="differ"):
        reference.agreement(want[0], want, "bf16")
