"""Numbers of a case: Q, K and V of its sequences, and attention over them in float64."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch

from tests.callers.aiter_modules import FP8
from tests.callers.backends.cases import Case
from tests.callers.reference import attend

K_SCALE, V_SCALE = 0.5, 2.0  # what a number of an fp8 cache stands for


class Numbers:
    """Q of the new tokens, K and V of all tokens, one tensor a sequence; what kernels must give for them."""

    def __init__(self, case: Case) -> None:
        self.case = case
        draw = functools.partial(torch.randn, generator=torch.Generator().manual_seed(31))
        heads_q, heads_k = case.heads
        dim, dim_v = case.dims
        kind = FP8 if case.kv == "fp8" else torch.bfloat16
        self.q = [draw(new, heads_q, dim).to(kind).to(torch.bfloat16) for new, _ in case.lengths]
        self.k = [draw(new + old, heads_k, dim).to(kind) for new, old in case.lengths]
        self.v = [draw(new + old, heads_k, dim_v).to(kind) for new, old in case.lengths]
        if case.absorbed:
            self.v = [keys[..., :dim_v] for keys in self.k]
        self.sinks = 3 + draw(heads_q) if case.sinks else None  # as much as many keys
        scaled = case.kv == "fp8" and not case.absorbed  # SGLang stores latents without a scale
        scales = (K_SCALE, V_SCALE) if scaled else (1.0, 1.0)
        self.k_scale, self.v_scale = (torch.tensor([scale]) for scale in scales)
        self.new = [new for new, _ in case.lengths]
        self.all = [new + old for new, old in case.lengths]

    def wide(self, at: int) -> tuple[Any, Any]:
        """K and V of a sequence as the model has them, in bf16: the scales are powers of two."""
        return self.k[at].to(torch.bfloat16) * self.k_scale.item(), self.v[at].to(torch.bfloat16) * self.v_scale.item()

    def of_new_tokens(self) -> tuple[Any, Any, Any]:
        """Q, K and V of the new tokens of all sequences, in bf16."""
        wide = [self.wide(at) for at in range(len(self.new))]
        k, v = (torch.cat([pair[half][-new:] for pair, new in zip(wide, self.new, strict=True)]) for half in (0, 1))
        return torch.cat(self.q), k, v

    def exact_o(self, left: int = -1) -> Any:
        """O in float64, of all sequences one after another; a query sees ``left`` keys before its own."""
        see = functools.partial(attend, causal=True, left=left, sinks=self.sinks, cap=self.case.cap)
        return torch.cat([see(q, *self.wide(at))[0] for at, q in enumerate(self.q)])


def sums(lengths: Sequence[int]) -> Any:
    """Running sums from 0, int32."""
    return torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()], dtype=torch.int32)


def shuffled_pages(lengths: Sequence[int], size: int) -> list[Any]:
    """Page numbers of each sequence in a pool, in no order; page 0 is of no sequence."""
    counts = [-(-length // size) for length in lengths]
    order = torch.randperm(sum(counts), generator=torch.Generator().manual_seed(5)) + 1
    return list(order.split(counts))
