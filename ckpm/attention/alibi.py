"""LSE of ALiBi under a causal mask, which kernels shift.

Softmax's scores have -slope * distance. Under a causal mask kernels add slope * key instead, as CK's do. The two differ
by slope * position of the query, which cancels in O and stays in LSE.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ckpm.base.errors import ArgumentError
from ckpm.matrix.problems.problem import Problem

Floats = NDArray[np.float64]


def shifts_lse(problem: Problem) -> bool:
    """True if kernels add slope * key to the scores of the problem."""
    p = problem
    return p.bias == "alibi" and p.mask != "no" and p.window_left < 0 and p.window_right == 0


def lse_shift(problem: Problem, slopes: ArrayLike, lengths: Sequence[tuple[int, int]]) -> Floats:
    """Return the numbers to subtract from a kernel's LSE to get softmax's.

    They have LSE's shape, and are 0 if the kernel doesn't shift. ``slopes`` are [head] or [sequence, head], ``lengths``
    queries and keys of each sequence. Queries count from the corner of the mask, as distances do.
    """
    heads = np.shape(slopes)
    if heads not in ((problem.nhead_q,), (problem.batch, problem.nhead_q)) or len(lengths) != problem.batch:
        raise ArgumentError(
            f"slopes {list(heads)} and {len(lengths)} lengths: the problem has {problem.batch} sequences and "
            f"{problem.nhead_q} heads.",
            kind="shape",
        )
    parts = sequence_shifts(problem, np.asarray(slopes, np.float64), lengths)
    return np.concatenate(parts, axis=1) if problem.mode == "group" else np.stack(parts)


def sequence_shifts(problem: Problem, slopes: Floats, lengths: Sequence[tuple[int, int]]) -> list[Floats]:
    """The shift of each sequence as [head, query]."""
    rows = np.broadcast_to(slopes, (len(lengths), slopes.shape[-1]))
    if not shifts_lse(problem):
        return [np.zeros((len(row), seqlen_q)) for row, (seqlen_q, _) in zip(rows, lengths, strict=True)]
    top = problem.mask == "top_left"
    positions = [np.arange(seqlen_q) + (0 if top else seqlen_k - seqlen_q) for seqlen_q, seqlen_k in lengths]
    return [np.outer(row, position) for row, position in zip(rows, positions, strict=True)]
