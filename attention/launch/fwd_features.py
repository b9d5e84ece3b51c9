"""What dropout and fp8's scales add to a launch of fwd: fields of ckpm_fwd_problem, and random values read back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ckpm.base.errors import ProblemError
from ckpm.matrix.problems.problem import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Descales:
    """What a number of Q, K and V in fp8 stands for, a factor for each tensor.

    ``largest`` is the largest number of the format (448 on gfx950, 240 before): the kernel stretches P, which lies in
    0..1, over it.
    """

    q: float
    k: float
    v: float
    largest: float


def feature_fields(problem: Problem, rows: int, descales: Descales | None) -> dict[str, int | float | str]:
    """Switches, strides and scales of dropout and fp8; ``rows`` of a head of the random values.

    Random values are stored, a byte each, as [batch, head, query, key] (batch mode) or [head, token, key], the keys of
    the longest sequence.

    Raises:
        ProblemError: scales are asked for and not given, or given and not asked for; or they are of blocks.
    """
    p = problem
    if p.qscale == "kv_blockscale" or (p.qscale == "pertensor") != (descales is not None):
        raise ProblemError(
            f"{p.name}: qscale is {p.qscale}, and {'no ' if descales is None else ''}descales are given."
        )
    fields: dict[str, int | float | str] = {}
    if descales is not None:
        fields |= {
            "do_fp8_static_quant": 1,
            "scale_s": p.softmax_scale * descales.q * descales.k,
            "scale_p": descales.largest,
            "scale_o": descales.v / descales.largest,
        }
    if p.p_drop:
        keys = max(p.seqlens_k)
        fields |= {"has_dropout": 1, "store_randval": 1, "p_drop": p.p_drop, "dropout_seed": p.seed}
        fields |= {"stride_randval": keys, "nhead_stride_randval": rows * keys}
        fields["batch_stride_randval"] = p.nhead_q * rows * keys if p.mode == "batch" else 0
    return fields


def random_values(problem: Problem, stored: NDArray[np.uint8]) -> tuple[NDArray[Any], ...]:
    """Of each sequence [head, query, key]. Tiles that the kernel didn't visit hold what the buffer did."""
    p, keys = problem, max(problem.seqlens_k)
    if p.mode == "batch":
        whole = stored.reshape(p.batch, p.nhead_q, -1, keys)
        return tuple(part[..., :length] for part, length in zip(whole, p.seqlens_k, strict=True))
    tokens = np.split(stored.reshape(p.nhead_q, -1, keys), np.cumsum(p.seqlens_q)[:-1], axis=1)
    return tuple(part[..., :length] for part, length in zip(tokens, p.seqlens_k, strict=True))
