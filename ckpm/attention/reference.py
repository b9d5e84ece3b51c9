"""Attention in float64 on the numbers that a kernel gets: O, LSE, and the sums that bound a kernel's rounding.

The product has this one reference: suites judge kernels by it, sweeps and callers compare with it. A second reference
without its code, tests/unit/attention/independent.py, tests it. Conventions are CK's, taken from its kernels (mask
corners, ALiBi's zero point, LSE in natural logarithms, rows without a key giving 0 and -inf). tolerances.py explains
the sums.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ckpm.attention.alibi import sequence_shifts, shifts_lse
from ckpm.attention.launch.buffers import LaunchInputs
from ckpm.matrix.problems.case import SuiteCase
from ckpm.matrix.problems.problem import Problem, mask_corner

Floats = NDArray[np.float64]
Bytes = NDArray[np.uint8]
_ROWS = 1024  # of scores held at once


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """Numbers of all sequences together. Arrays after ``lse`` have one number an element of O (or a row of it).

    ``o`` [token, head, hdim_v]; ``lse`` [head, token]. With weights w = dropped and scaled softmax: ``magnitude`` is
    sum w|v|, ``energy`` the root of sum (w v)^2, ``floor`` sum |v| over the row's denominator. ``score`` [head, token]
    is the largest sum of |terms| of a row's scaled dot products. ``added`` [head, token] is the largest size of a
    finite bias or of ALiBi's, or the soft cap. ``keys`` [head, token] is the number of keys that a row sees.
    ``sum_energy`` and ``sum_floor`` [head, token] are ``energy`` and ``floor`` for a V of ones.
    """

    o: Floats
    lse: Floats
    magnitude: Floats
    energy: Floats
    floor: Floats
    score: Floats
    added: Floats
    keys: Floats
    sum_energy: Floats
    sum_floor: Floats


def visible(problem: Problem, seqlen_q: int, seqlen_k: int) -> NDArray[np.bool_]:
    """A mask [query, key]: True where a query sees a key.

    Sink tokens are seen besides the window up to the query's right bound. For that CK wants the window to have a left
    bound inside the queries and the query's number below seqlen_k (block_masking.hpp, IsOutOfSinkBound).
    """
    row, column = np.ogrid[:seqlen_q, :seqlen_k]
    if problem.mask == "no":
        return np.ones((seqlen_q, seqlen_k), np.bool_)
    y, x = mask_corner(problem, seqlen_q, seqlen_k)
    seen: NDArray[np.bool_] = (column > row - y) & (column < row + x)
    if problem.sink_size and y < seqlen_q:
        seen = seen | ((column < problem.sink_size) & (column < row + x) & (row < seqlen_k))
    return seen


def alibi(problem: Problem, slope: float, seqlen_q: int, seqlen_k: int) -> Floats:
    """Numbers that ALiBi adds to scaled scores: slope * key under a causal mask, -slope * distance otherwise.

    The causal form differs from the distance by a number for each row, which cancels in O and stays in LSE. Distances
    start from the corner that the mask starts from, from the bottom right without a mask.
    """
    row, column = np.ogrid[:seqlen_q, :seqlen_k]
    if shifts_lse(problem):
        return np.broadcast_to(slope * column, (seqlen_q, seqlen_k)).astype(np.float64)
    shift = 0 if problem.mask == "top_left" else seqlen_k - seqlen_q
    bias: Floats = -slope * np.abs(row + shift - column).astype(np.float64)
    return bias


def exact(inputs: LaunchInputs, random_values: Sequence[Bytes] | None = None) -> Expected:
    """O and LSE of every sequence.

    ``random_values`` are the kernel's stored bytes [head, query, key] of each sequence. A problem with dropout needs
    them.
    """
    p = inputs.problem
    if p.p_drop and random_values is None:
        raise ValueError(f"{p.name}: dropout is checked through the kernel's random values, and none are given")
    parts = [
        _head(inputs, sequence, head, begin, random_values[sequence][head] if p.p_drop and random_values else None)
        for sequence in range(p.batch)
        for head in range(p.nhead_q)
        for begin in range(0, p.seqlens_q[sequence], _ROWS)
    ]
    total = sum(p.seqlens_q)
    o_like: dict[str, Floats] = {
        name: np.zeros((total, p.nhead_q, p.hdim_v)) for name in ("o", "magnitude", "energy", "floor")
    }
    row_like: dict[str, Floats] = {
        name: np.zeros((p.nhead_q, total)) for name in ("lse", "score", "added", "keys", "sum_energy", "sum_floor")
    }
    for head, rows, values in parts:
        for name in o_like:
            o_like[name][rows, head] = values[name]
        for name in row_like:
            row_like[name][head, rows] = values[name]
    return Expected(**o_like, **row_like)


def _head(
    inputs: LaunchInputs, sequence: int, head: int, begin: int, random: Bytes | None
) -> tuple[int, slice, dict[str, Floats]]:
    """Results of up to _ROWS queries of one head of one sequence, after the head and the slice of rows."""
    p = inputs.problem
    end = min(begin + _ROWS, p.seqlens_q[sequence])
    start = sum(p.seqlens_q[:sequence])
    kv_head = head // (p.nhead_q // p.nhead_k)
    q = inputs.q[sequence][begin:end, head]
    k, v = inputs.k[sequence][:, kv_head], inputs.v[sequence][:, kv_head]
    seen = visible(p, p.seqlens_q[sequence], p.seqlens_k[sequence])[begin:end]
    scores, sizes, added = scaled_scores(inputs, sequence, head, slice(begin, end), q, k)
    sink = -np.inf if inputs.sink_logits is None else float(inputs.sink_logits[head])
    kept = None if random is None else random[begin:end] <= keep_threshold(p.p_drop)
    values = _softmax(p, np.where(seen, scores, -np.inf), v, sink, kept)
    values["score"] = np.where(seen, sizes, 0.0).max(axis=1, initial=0.0)
    values["added"] = np.where(seen, added, 0.0).max(axis=1, initial=0.0)
    values["keys"] = seen.sum(axis=1).astype(np.float64)
    return head, slice(start + begin, start + end), values


def scaled_scores(
    inputs: LaunchInputs, sequence: int, head: int, rows: slice, q: Floats, k: Floats
) -> tuple[Floats, Floats, Floats]:
    """Scaled, capped and biased scores, the sum of sizes of each dot product's terms, and the size of the bias."""
    p = inputs.problem
    scores = q @ k.T * p.softmax_scale
    sizes = np.abs(q) @ np.abs(k).T * p.softmax_scale
    if p.logits_soft_cap > 0:
        scores = p.logits_soft_cap * np.tanh(scores / p.logits_soft_cap)
    added: Floats | None = None
    if inputs.bias is not None:
        added = inputs.bias[sequence][head, rows]
    elif inputs.slopes is not None:
        slope = float(inputs.slopes[sequence, head])
        added = alibi(p, slope, p.seqlens_q[sequence], p.seqlens_k[sequence])[rows]
    if added is None:
        return scores, sizes, np.full_like(sizes, p.logits_soft_cap)
    return scores + added, sizes, np.where(np.isinf(added), 0.0, np.abs(added))


def keep_threshold(p_drop: float) -> int:
    """The largest random byte of a kept score: floor((1 - p_drop) * 255), in CK's float32 arithmetic."""
    return int(np.floor(np.float32(1.0 - np.float32(p_drop)) * np.float32(255)))


def _softmax(p: SuiteCase, scores: Floats, v: Floats, sink: float, kept: NDArray[np.bool_] | None) -> dict[str, Floats]:
    """The row's softmax applied to V. A row without a key (all scores -inf, no sink) gives 0 and LSE -inf."""
    highest = np.maximum(scores.max(axis=1, initial=-np.inf), sink)
    reference = np.where(np.isneginf(highest), 0.0, highest)
    weights = np.exp(scores - reference[:, None])
    denominator = weights.sum(axis=1) + np.exp(sink - reference)
    empty = denominator == 0
    safe = np.where(empty, 1.0, denominator)
    seen = weights > 0
    with np.errstate(divide="ignore"):
        lse = reference + np.log(denominator)
    if kept is not None:
        scale = 1.0 / float(np.float32(1.0 - np.float32(p.p_drop)))
        weights, seen = np.where(kept, weights * scale, 0.0), seen & kept
    weights = weights / safe[:, None]
    size = np.abs(v)
    return {
        "o": weights @ v,
        "lse": lse,
        "magnitude": weights @ size,
        "energy": np.sqrt((weights * weights) @ (v * v)),
        "floor": (seen / safe[:, None]) @ size,
        "sum_energy": np.sqrt((weights * weights).sum(axis=1)),
        "sum_floor": seen.sum(axis=1) / safe,
    }


# Comparison for callers


# dtype: (relative, absolute), as aiter's op_tests compare (op_tests/test_batch_prefill.py); LSE is compared absolutely.
TOLERANCES: Mapping[str, tuple[float, float]] = {
    "fp32": (1e-4, 1e-4),
    "fp16": (1e-3, 1e-3),
    "bf16": (2e-2, 1e-2),
    "fp8bf16": (0.0, 0.055),
    "lse": (0.0, 1e-3),
    "fp16 gradient": (1e-2, 1e-2),  # of the backward pass: get_elimit of CK's fmha_bwd_runner.hpp
    "bf16 gradient": (1e-2, 1e-2),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """``worst`` is the largest error in units of its tolerance, at ``where``; NaN never agrees."""

    passed: bool
    worst: float
    where: tuple[int, ...]

    def __str__(self) -> str:
        verdict = "agrees" if self.passed else "differs"
        return f"{verdict}: largest error {self.worst:.2f} of its tolerance at {list(self.where)}"


def attention(
    problem: Problem,
    q: Sequence[Floats],
    k: Sequence[Floats],
    v: Sequence[Floats],
    *,
    bias: Sequence[Floats] | None = None,
    slopes: Floats | None = None,
    sink_logits: Floats | None = None,
    random_values: Sequence[Bytes] | None = None,
) -> tuple[Floats, Floats]:
    """O [token, head, hdim_v] and natural LSE [head, token] of all sequences, one array of q, k, v for each.

    ``q`` [query, nhead_q, hdim_q], ``k`` and ``v`` [key, nhead_k, dim], ``bias`` [nhead_q, query, key], ``slopes`` of
    ALiBi [sequence, nhead_q], ``sink_logits`` [nhead_q]; ``random_values`` of dropout [nhead_q, query, key], as the
    kernel stored them. A row without a key gives 0 and -inf. LSE is softmax's, without the shift of kernels under a
    causal mask with ALiBi.
    """
    inputs = inputs_of(problem, q, k, v, bias=bias, slopes=slopes, sink_logits=sink_logits)
    expected = exact(inputs, random_values)
    if slopes is None:
        return expected.o, expected.lse
    lengths = list(zip(map(len, q), map(len, k), strict=True))
    return expected.o, expected.lse - np.concatenate(sequence_shifts(problem, slopes, lengths), axis=1)


def inputs_of(
    problem: Problem,
    q: Sequence[Floats],
    k: Sequence[Floats],
    v: Sequence[Floats],
    *,
    bias: Sequence[Floats] | None = None,
    slopes: Floats | None = None,
    sink_logits: Floats | None = None,
) -> LaunchInputs:
    """The numbers of a call as :func:`exact` takes them."""
    fields = {field.name: getattr(problem, field.name) for field in dataclasses.fields(Problem)}
    lengths: dict[str, Any] = {"seqlens_q": tuple(map(len, q)), "seqlens_k": tuple(map(len, k))}
    names = dict.fromkeys(("name", "suite", "tier", "group"), "reference")
    case = SuiteCase(**{**fields, **names, **lengths, "seed": problem.dropout_seed})
    added = None if bias is None else tuple(bias)
    return LaunchInputs(
        problem=case, q=tuple(q), k=tuple(k), v=tuple(v), bias=added, slopes=slopes, sink_logits=sink_logits
    )


def agreement(got: NDArray[Any], want: Floats, kind: str) -> Agreement:
    """Compare ``got`` with the reference within the tolerance of a dtype (or lse), element by element."""
    if got.shape != want.shape:
        raise ValueError(f"shapes {got.shape} and {want.shape} differ")
    if not got.size:
        return Agreement(passed=True, worst=0.0, where=())
    relative, absolute = TOLERANCES[kind]
    numbers = got.astype(np.float64)
    with np.errstate(invalid="ignore"):
        error = np.where(numbers == want, 0.0, np.abs(numbers - want))
        units = np.where(error == 0, 0.0, error / (absolute + relative * np.abs(want)))
    units = np.where(np.isnan(units), np.inf, units)
    position = np.unravel_index(int(np.argmax(units)), units.shape)
    worst = float(units[position])
    return Agreement(passed=worst <= 1, worst=worst, where=tuple(int(index) for index in position))
