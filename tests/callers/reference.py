"""Attention of one sequence in float64, as callers' functions would give it."""

from __future__ import annotations

import math
from typing import Any

import torch


def attend(
    q: Any, k: Any, v: Any, causal: bool, *, left: int = -1, sinks: Any = None, cap: float = 0.0, scale: float = 0.0
) -> tuple[Any, Any]:
    """O and base-2 LSE, the mask's corner at the bottom right; a query sees ``left`` keys before its own."""
    k, v = (tensor.double().repeat_interleave(q.shape[1] // tensor.shape[1], dim=1) for tensor in (k, v))
    scores = torch.einsum("qhd,khd->hqk", q.double(), k) * (scale or q.shape[2] ** -0.5)
    if cap:
        scores = cap * torch.tanh(scores / cap)
    hidden = torch.zeros(scores.shape[1:], dtype=torch.bool)
    if causal:
        hidden |= torch.ones_like(hidden).triu(k.shape[0] - q.shape[0] + 1)
    if left >= 0:
        hidden |= torch.ones_like(hidden).tril(k.shape[0] - q.shape[0] - left - 1)
    scores = scores.masked_fill(hidden, -math.inf)
    lse = scores.logsumexp(-1)
    if sinks is not None:
        lse = torch.logaddexp(lse, sinks.double()[:, None])
    o = torch.einsum("hqk,khd->qhd", (scores - lse[..., None]).exp().nan_to_num(0.0), v)
    return o, lse.T * math.log2(math.e)
