"""A paged KV cache for fwd_pagedkv and split-KV: each sequence's tokens in its pages, and the table that names them.

K and V lie as [page, token of the page, head, dim] in a pool each. The kernel takes lengths from seqstart_k in
group mode; in batch mode from seqlen_k, or from seqlen_k_ptr where they differ.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ckpm.attention.launch.page_tables import block_table, page_table, shares_pages
from ckpm.base.errors import ProblemError
from ckpm.matrix.problems.problem import Problem


def page_fields(problem: Problem) -> dict[str, int | float | str]:
    """Sizes and strides (in elements) of the pools and the table.

    Raises:
        ProblemError: it asks for another table or layout than these kernels read.
    """
    p = problem
    if (p.kv_table, p.kv_layout, p.storage) != ("vllm", "linear", "separate") or shares_pages(p):
        raise ProblemError(
            f"{p.name}: fwd reads a vllm table that names each page once, and linear pages in separate pools."
        )
    return {
        "page_block_size": p.page_size,
        "batch_stride_block_table": page_table(p).width,
        "batch_stride_k": p.page_size * p.nhead_k * p.hdim_q,
        "batch_stride_v": p.page_size * p.nhead_k * p.hdim_v,
    }


def pages(problem: Problem, tensors: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """``k`` and ``v`` in pages, ``block_table`` and, where it is needed, ``seqlen_k_ptr``.

    ``tensors``: bits of k and v as [token, head, dim], sequences one after another. Slots without a token hold NaN.
    """
    p, table = problem, page_table(problem)
    arrays: dict[str, NDArray[Any]] = {"block_table": block_table(p, table)}
    ends = list(itertools.pairwise(itertools.accumulate(p.seqlens_k, initial=0)))
    for name in ("k", "v"):
        tokens = tensors[name]
        pool = np.full((table.pool_pages, p.page_size, *tokens.shape[1:]), np.iinfo(tokens.dtype).max, tokens.dtype)
        for numbers, (begin, end) in zip(table.pages, ends, strict=True):
            mine = pool[numbers].reshape(-1, *tokens.shape[1:])
            mine[: end - begin] = tokens[begin:end]
            pool[numbers] = mine.reshape(-1, *pool.shape[1:])
        arrays[name] = pool
    if p.mode == "batch" and len({*p.seqlens_k}) > 1:
        arrays["seqlen_k_ptr"] = np.array(p.seqlens_k, np.int32)
    return arrays
