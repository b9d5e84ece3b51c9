"""A paged KV cache in pages of one token, for the examples of batch prefill: two sequences in scattered pages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ckpm import Attention, Dispatcher, Pages, fmha
from ckpm.attention import reference
from examples import results

HEADS = 2  # of Q; K and V have one
QUERIES, KEYS = (40, 20), (70, 25)  # tokens of each sequence, by default


@dataclass(frozen=True)
class Sequences:
    """``q``, ``k`` and ``v`` of each sequence, [token, head, dim], and the order in which their pages lie."""

    q: list[NDArray[np.float64]]
    k: list[NDArray[np.float64]]
    v: list[NDArray[np.float64]]
    order: NDArray[np.int32]

    def call(self, dispatcher: Dispatcher, **options: Any) -> Attention:
        pages = Pages(indices=self.order, indptr=_sums(self.k))
        caches = []
        for tokens in (self.k, self.v):
            cache = np.zeros((len(self.order), 1, 1, 128))  # [page, token, head, dim]
            cache[self.order, 0] = np.concatenate(tokens)
            caches.append(cache)
        q = np.concatenate(self.q)
        return fmha(q, *caches, dtype="bf16", cu_seqlens_q=_sums(self.q), pages=pages, dispatcher=dispatcher, **options)

    def check(self, done: Attention, **more: Any) -> None:
        o, lse = reference.attention(done.problem, self.q, self.k, self.v, **more)
        results.check("O", done.o, o)
        if done.lse is not None:
            results.check("LSE", done.lse, lse, "lse")


def _sums(parts: list[NDArray[np.float64]]) -> NDArray[np.int32]:
    return np.cumsum([0, *map(len, parts)]).astype(np.int32)


def sequences(seed: int, queries: tuple[int, ...] = QUERIES, keys: tuple[int, ...] = KEYS) -> Sequences:
    random = np.random.default_rng(seed)
    q, k, v = (
        [results.numbers(random, length, heads, 128) for length in lengths]
        for lengths, heads in ((queries, HEADS), (keys, 1), (keys, 1))
    )
    return Sequences(q, k, v, random.permutation(sum(keys)).astype(np.int32))
