"""The gradients of attention in float64 on the host: of the forward pass of attention/reference.py, differentiated.

With P the weights, W what dropout leaves of them and dW = dO V^T: dS = P * (dP - the row's sum of P * dP).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ckpm.attention.reference import Floats, dropped, weights
from ckpm.matrix.problems.problem import Problem


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Gradients:
    """Of all sequences: ``dq`` [token, nhead_q, hdim_q], ``dk`` and ``dv`` [token, nhead_k, dim]; ``dbias`` of each
    sequence [nhead_q, query, key], which is that of the scores."""

    dq: Floats
    dk: Floats
    dv: Floats
    dbias: tuple[Floats, ...]


def gradients(
    problem: Problem,
    do: Sequence[Floats],
    q: Sequence[Floats],
    k: Sequence[Floats],
    v: Sequence[Floats],
    *,
    bias: Sequence[Floats] | None = None,
    slopes: Floats | None = None,
    random_values: Sequence[NDArray[np.uint8]] | None = None,
) -> Gradients:
    """One array of each sequence: ``do`` [query, nhead_q, hdim_v], the others as :func:`attention.reference.attention`
    has them. Neither soft cap nor sinks, which no backward kernel has.
    """
    p, found = problem, []
    for index, (gradient, queries, keys, values) in enumerate(zip(do, q, k, v, strict=True)):
        dq, dk, dv = np.zeros(queries.shape), np.zeros(keys.shape), np.zeros(values.shape)
        scores = np.zeros((p.nhead_q, len(queries), len(keys)))
        for head in range(p.nhead_q):
            shared = head // (p.nhead_q // p.nhead_k)
            added = None if bias is None else bias[index][head]
            slope = None if slopes is None else float(slopes[index, head])
            of_scores, _ = weights(p, queries[:, head], keys[:, shared], bias=added, slope=slope)
            drawn = None if random_values is None else random_values[index][head]
            left = of_scores if drawn is None else dropped(p, of_scores, drawn)
            of_weights = gradient[:, head] @ values[:, shared].T
            if drawn is not None:
                of_weights = dropped(p, of_weights, drawn)
            mean = (of_scores * of_weights).sum(axis=1, keepdims=True)
            scores[head] = of_scores * (of_weights - mean)
            dv[:, shared] += left.T @ gradient[:, head]
            dq[:, head] = p.softmax_scale * scores[head] @ keys[:, shared]
            dk[:, shared] += p.softmax_scale * scores[head].T @ queries[:, head]
        found.append((dq, dk, dv, scores))
    dqs, dks, dvs, dbias = zip(*found, strict=True)
    return Gradients(dq=np.concatenate(dqs), dk=np.concatenate(dks), dv=np.concatenate(dvs), dbias=tuple(dbias))
