"""Attention and its gradients in float64, written apart from ckpm/attention/reference.py, which tests compare with it.

It computes no bounds and shares no code with the reference that suites judge kernels by: a mistake there shows here.
Whole score matrices, one head at a time.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ckpm.matrix.problems.problem import Problem, mask_corner

Floats = NDArray[np.float64]


def visible(problem: Problem, seqlen_q: int, seqlen_k: int) -> NDArray[np.bool_]:
    """[query, key]: a query at position i sees keys i-left to i+right, -1 meaning unbounded, and sinks by CK's corners.

    Positions begin at the first key, or so that the last query is at the last key (block_masking.hpp).
    """
    p = problem
    if p.mask == "no":
        return np.ones((seqlen_q, seqlen_k), np.bool_)
    row, column = np.ogrid[:seqlen_q, :seqlen_k]
    position = row if p.mask == "top_left" else row + seqlen_k - seqlen_q
    near_left = p.window_left < 0 or column >= position - p.window_left
    near_right = np.asarray(p.window_right < 0 or column <= position + p.window_right)
    seen: NDArray[np.bool_] = np.broadcast_to(near_left & near_right, (seqlen_q, seqlen_k))
    if p.sink_size and mask_corner(p, seqlen_q, seqlen_k)[0] < seqlen_q:
        seen = seen | ((column < p.sink_size) & near_right & (row < seqlen_k))
    return seen


def attention(
    problem: Problem,
    q: Sequence[Floats],
    k: Sequence[Floats],
    v: Sequence[Floats],
    *,
    bias: Sequence[Floats] | None = None,
    slopes: Floats | None = None,
    sink_logits: Floats | None = None,
    random_values: Sequence[NDArray[np.uint8]] | None = None,
) -> tuple[Floats, Floats]:
    """O [token, head, hdim_v] and natural LSE [head, token] of all sequences, one array of q, k, v for each.

    ``q`` [query, nhead_q, hdim_q], ``k`` and ``v`` [key, nhead_k, dim], ``bias`` [nhead_q, query, key], ``slopes`` of
    ALiBi [sequence, nhead_q], ``sink_logits`` [nhead_q]; ``random_values`` of dropout [nhead_q, query, key], as the
    kernel stored them. A row without a key gives 0 and -inf.
    """
    p, outputs, logarithms = problem, [], []
    for index, (queries, keys, values) in enumerate(zip(q, k, v, strict=True)):
        o = np.zeros((len(queries), p.nhead_q, values.shape[-1]))
        lse = np.zeros((p.nhead_q, len(queries)))
        for head in range(p.nhead_q):
            shared = head // (p.nhead_q // p.nhead_k)
            added = None if bias is None else bias[index][head]
            slope = None if slopes is None else float(slopes[index, head])
            sink = -np.inf if sink_logits is None else float(sink_logits[head])
            shares, lse[head] = weights(p, queries[:, head], keys[:, shared], bias=added, slope=slope, sink=sink)
            if random_values is not None:
                shares = drop(p, shares, random_values[index][head])
            o[:, head] = shares @ values[:, shared]
        outputs.append(o)
        logarithms.append(lse)
    return np.concatenate(outputs), np.concatenate(logarithms, axis=1)


def weights(
    problem: Problem,
    q: Floats,
    k: Floats,
    *,
    bias: Floats | None = None,
    slope: float | None = None,
    sink: float = -np.inf,
) -> tuple[Floats, Floats]:
    """Softmax of one head's scores [query, key], before dropout, and LSE [query]. ``bias`` [query, key]."""
    p = problem
    scores = q @ k.T * p.softmax_scale
    if p.logits_soft_cap > 0:
        scores = p.logits_soft_cap * np.tanh(scores / p.logits_soft_cap)
    if bias is not None:
        scores = scores + bias
    if slope is not None:
        scores = scores + _alibi(p, slope, *scores.shape)
    return _softmax(np.where(visible(p, len(q), len(k)), scores, -np.inf), sink)


def _alibi(problem: Problem, slope: float, seqlen_q: int, seqlen_k: int) -> Floats:
    """ALiBi's term: slope * key under a causal mask, else -slope * distance (block_position_encoding.hpp)."""
    row, column = np.ogrid[:seqlen_q, :seqlen_k]
    if problem.mask != "no" and problem.window_left < 0 and problem.window_right == 0:
        return np.broadcast_to(slope * column, (seqlen_q, seqlen_k)).astype(np.float64)
    shift = 0 if problem.mask == "top_left" else seqlen_k - seqlen_q
    distance: Floats = np.abs(row + shift - column).astype(np.float64)
    return -slope * distance


def _softmax(scores: Floats, sink: float) -> tuple[Floats, Floats]:
    """The weights of each row, and the logarithm of its sum of exponentials."""
    highest = np.maximum(scores.max(axis=1, initial=-np.inf), sink)
    shift = np.where(np.isneginf(highest), 0.0, highest)
    weights = np.exp(scores - shift[:, None])
    total = weights.sum(axis=1) + np.exp(sink - shift)
    with np.errstate(divide="ignore"):
        lse = shift + np.log(total)
    return weights / np.where(total == 0, 1.0, total)[:, None], lse


def drop(problem: Problem, weights: Floats, random: NDArray[np.uint8]) -> Floats:
    """Weights are kept, and scaled, where the random byte is at most floor((1 - p) * 255), in CK's float32."""
    keep = np.float32(1.0) - np.float32(problem.p_drop)
    kept: Floats = np.where(random <= int(np.floor(keep * np.float32(255))), weights / float(keep), 0.0)
    return kept
