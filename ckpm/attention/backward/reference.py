"""Gradients of attention in float64 on the kernels' numbers, with tolerances for a kernel's gradients.

S are the scaled and biased scores, P = exp(S - LSE). Z is dropout's factor of a score (0 or 1 / (1 - p_drop)). D are
the rows' sums of dO * O::

    dV = (Z P)^T dO      dP = dO V^T      dS = P (Z dP - D) = dbias      dQ = scale dS K      dK = scale dS^T Q

O and LSE are the inputs of the kernels, so their own rounding is not an error of the gradients. The kernels write
dK and dV of each head of Q.

Sources of errors (u = 2^-24, half an ulp of float32; see tolerances.py for the bounds of a stored factor):

* P: its argument is a dot product of hdim_q terms, the added bias, and LSE; ``_weight_error`` is relative to P.
* dP is a dot product of hdim_v exact products in float32, D another: each hdim_v + 8 times u of the terms' sizes.
* P and dS are stored in the kernels' type as factors of the second products. The error of each is at most ``p_step`` of
  it; a part is common to all, a part is independent. For fp16's smallest steps ``p_floor`` is added.
* sums over keys or queries are in float32, also atomic sums of tiles. The error of n terms is n u of the sum of sizes.
* a gradient is stored once: ``o_step``.
* a P under 2^-126, the smallest normal float32, may be 0: v_exp_f32 has no smaller numbers.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ckpm.attention.launch.buffers import LaunchInputs
from ckpm.attention.reference import Bytes, Floats, exact, inputs_of, keep_threshold, scaled_scores, visible
from ckpm.attention.tolerances import HOEFFDING, ROUNDING, ArrayComparison, Rounding, U, compare
from ckpm.matrix.problems.case import SuiteCase
from ckpm.matrix.problems.problem import Problem

_SMALLEST = 2.0**-126
NAMES = ("dq", "dk", "dv", "dbias", "d")


@dataclass(frozen=True, slots=True, kw_only=True)
class BackwardInputs:
    """Inputs of a backward pass: ``o`` and ``dout`` [token, head, hdim_v], ``lse`` [head, token]."""

    inputs: LaunchInputs
    o: Floats
    dout: Floats
    lse: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundedGradients:
    """``values`` and ``tolerances`` by name, of all sequences together.

    - dq: [token of Q, head, hdim_q]
    - dk and dv: [token of K, head of Q, dim]
    - dbias: [head, token, longest seqlen_k]
    - d: D times (1 - p_drop), as the kernel stores it: [head, token]
    """

    values: dict[str, Floats]
    tolerances: dict[str, Floats]


def exact_gradients(backward: BackwardInputs, random_values: Sequence[Bytes] | None = None) -> BoundedGradients:
    """The gradients of all sequences, with tolerances.

    ``random_values`` are dropout's bytes of each sequence [head, query, key]. A problem with dropout needs them.
    """
    p = backward.inputs.problem
    if p.p_drop and random_values is None:
        raise ValueError(f"{p.name}: gradients under dropout need its random values, and none are given")
    bounded = BoundedGradients(values=_zeros(p), tolerances=_zeros(p))
    starts_q, starts_k = np.cumsum((0, *p.seqlens_q)), np.cumsum((0, *p.seqlens_k))
    for sequence in range(p.batch):
        rows, keys = slice(*starts_q[sequence : sequence + 2]), slice(*starts_k[sequence : sequence + 2])
        for head in range(p.nhead_q):
            drawn = random_values[sequence][head] if p.p_drop and random_values else None
            for name, (value, tolerance) in _of_head(backward, sequence, head, rows, drawn).items():
                indices: dict[str, tuple[Any, ...]] = {
                    "dq": (rows, head),
                    "d": (head, rows),
                    "dbias": (head, rows, slice(p.seqlens_k[sequence])),
                }
                index = indices.get(name, (keys, head))
                bounded.values[name][index], bounded.tolerances[name][index] = value, tolerance
    return bounded


def _zeros(p: SuiteCase) -> dict[str, Floats]:
    tokens, keys = sum(p.seqlens_q), sum(p.seqlens_k)
    return {
        "dq": np.zeros((tokens, p.nhead_q, p.hdim_q)),
        "dk": np.zeros((keys, p.nhead_q, p.hdim_q)),
        "dv": np.zeros((keys, p.nhead_q, p.hdim_v)),
        "dbias": np.zeros((p.nhead_q, tokens, max(p.seqlens_k))),
        "d": np.zeros((p.nhead_q, tokens)),
    }


def _of_head(
    backward: BackwardInputs, sequence: int, head: int, rows: slice, drawn: Bytes | None
) -> dict[str, tuple[Floats, Floats]]:
    """Gradients of one head of one sequence, each with its tolerance. Arrays of scores are [query, key].

    ``weights`` is P, with an absolute ``error``; ``kept`` is Z.
    """
    inputs, p = backward.inputs, backward.inputs.problem
    kv_head = head // (p.nhead_q // p.nhead_k)
    q, k, v = inputs.q[sequence][:, head], inputs.k[sequence][:, kv_head], inputs.v[sequence][:, kv_head]
    o, dout = backward.o[rows, head], backward.dout[rows, head]
    scores, sizes, added = scaled_scores(inputs, sequence, head, slice(None), q, k)
    lse = backward.lse[head, rows, None]
    lse = np.where(np.isneginf(lse), 0.0, lse)  # of a row that sees no key
    seen = visible(p, p.seqlens_q[sequence], p.seqlens_k[sequence])
    undropped = float(np.float32(1.0 - np.float32(p.p_drop)))
    kept = np.ones_like(scores) if drawn is None else (drawn <= keep_threshold(p.p_drop)) / undropped
    weights = np.where(seen, np.exp(np.where(seen, scores - lse, 0.0)), 0.0)
    error = np.where(seen, weights * _weight_error(p, sizes, added, np.abs(lse)) + _SMALLEST, 0.0)
    terms = v.shape[1] + 8
    d = (dout * o).sum(axis=1)
    d_error = terms * U * np.abs(dout * o).sum(axis=1)
    dp = kept * (dout @ v.T)
    ds = weights * (dp - d[:, None])
    dp_error = terms * U * kept * (np.abs(dout) @ np.abs(v).T) + d_error[:, None]
    ds_error = weights * (dp_error + 4 * U * (np.abs(dp) + np.abs(d)[:, None]))
    ds_error += error * (np.abs(dp) + np.abs(d)[:, None])
    form = ROUNDING[p.dtype]
    stored = form.o_step * (np.abs(ds) + ds_error) + form.o_floor
    product = functools.partial(_product, form, undropped)
    return {
        "dv": product((kept * weights).T, dout, (error * kept).T, 1.0),
        "dk": product(ds.T, q, ds_error.T, p.softmax_scale),
        "dq": product(ds, k, ds_error, p.softmax_scale),
        "dbias": (ds, ds_error + np.where(ds_error == 0, 0.0, stored)),
        "d": (d * undropped, (d_error + 2 * U * np.abs(d)) * undropped),
    }


def _product(
    form: Rounding, undropped: float, left: Floats, right: Floats, error: Floats, scale: float
) -> tuple[Floats, Floats]:
    """scale * left @ right, ``left`` being stored in the kernels' type after an ``error``."""
    size = np.abs(right)
    value, magnitude = left @ right, np.abs(left) @ size
    energy = np.sqrt((left * left) @ (right * right))
    likely = form.p_step * np.abs(value) + HOEFFDING * form.p_step / 2 * energy
    floor = form.p_floor / undropped * ((left != 0) @ size)
    sums = (left.shape[1] + 128) * U * magnitude
    inner = np.minimum(form.p_step * magnitude, likely) + floor + error @ size + sums
    tolerance = scale * inner + form.o_step * scale * (np.abs(value) + inner) + form.o_floor
    return scale * value, np.where((np.abs(error) @ size) == 0, 0.0, tolerance)


def _weight_error(p: SuiteCase, sizes: Floats, added: Floats, lse: Floats) -> Floats:
    """The largest relative error of P before it is stored: [query, key]."""
    argument = (p.hdim_q + 12) * U * sizes + 6 * U * added + 6 * U * (lse + 1)
    error: Floats = np.expm1(argument) + 4 * U
    return error


def comparisons(expected: BoundedGradients, got: dict[str, NDArray[np.float64]]) -> tuple[ArrayComparison, ...]:
    """Compare each gradient that was computed."""
    return tuple(
        compare(name, got[name], expected.values[name], expected.tolerances[name]) for name in NAMES if name in got
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Gradients:
    """Gradients of all sequences: ``dq`` [token, nhead_q, hdim_q], ``dk`` and ``dv`` [token, nhead_k, dim].

    ``dbias`` of each sequence [nhead_q, query, key] is also the gradient of the scores.
    """

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
    random_values: Sequence[Bytes] | None = None,
) -> Gradients:
    """The gradients of a call, with one array for each sequence.

    ``do`` is [query, nhead_q, hdim_v]; the other arrays are as in :func:`ckpm.attention.reference.attention`. No
    backward kernel has soft caps or sinks.
    """
    inputs = inputs_of(problem, q, k, v, bias=bias, slopes=slopes)
    p, forward = inputs.problem, exact(inputs, random_values)
    backward = BackwardInputs(inputs=inputs, o=forward.o, dout=np.concatenate(do), lse=forward.lse)
    values = exact_gradients(backward, random_values).values
    starts = np.cumsum((0, *p.seqlens_q))
    return Gradients(
        dq=values["dq"],
        **{name: _of_kv_heads(p, values[name]) for name in ("dk", "dv")},
        dbias=tuple(values["dbias"][:, starts[i] : starts[i + 1], :keys] for i, keys in enumerate(p.seqlens_k)),
    )


def _of_kv_heads(p: SuiteCase, of_q_heads: Floats) -> Floats:
    keys, heads, hdim = of_q_heads.shape
    total: Floats = of_q_heads.reshape(keys, p.nhead_k, heads // p.nhead_k, hdim).sum(axis=2)
    return total
