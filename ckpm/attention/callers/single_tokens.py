"""Caches in pages of a size that no kernel has, read as pages of one token.

Tokens of an NHD cache [page, token, head, dim] lie a token stride apart, and pages a multiple of it. So token t of
page p is page p * multiple + t of a pool of single tokens.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ckpm.attention.arrays.pytorch import namespace, padded_list
from ckpm.attention.arrays.tables import Pages, lengths_of_list
from ckpm.attention.arrays.tensors import OnDevice, contiguous
from ckpm.attention.callers.tensors import read_on_host
from ckpm.base.errors import ProblemError

TokenTables = Callable[[int], Pages]


def has_kernels(page_size: int) -> bool:
    """Return True for pages of one token and of multiples of 16, which kernels have."""
    return page_size == 1 or page_size % 16 == 0


def single_tokens(indptr: Any, indices: Any, last_page_lens: Any, page_size: int) -> TokenTables | None:
    """A function that makes tables of single tokens from the number of tokens between page starts.

    Return None for page sizes that kernels have. The tables lie on the device of ``indices``.
    """
    if has_kernels(page_size):
        return None
    sums, numbers, last = (read_on_host(array).astype(np.int64) for array in (indptr, indices, last_page_lens))
    lengths = lengths_of_list(sums, len(numbers), page_size, last)
    ends = np.concatenate([[0], np.cumsum(lengths)])
    at = np.arange(ends[-1]) - np.repeat(ends[:-1], lengths)  # within its sequence
    pages = numbers[np.repeat(sums[:-1], lengths) + at // page_size]

    def put(table: NDArray[np.int64]) -> Any:
        library = namespace(indices)
        narrow = table.astype(np.int32)
        return narrow if library is np else library.from_numpy(narrow).to(indices.device)

    @functools.cache  # all layers have one
    def table(multiple: int) -> Pages:
        tokens = pages * multiple + at % page_size
        if tokens.max(initial=0) >= 2**31:
            raise ProblemError(f"token {tokens.max()} of the cache: tables of pages of one token have 31 bits.")
        return Pages(indices=padded_list(put(tokens)), indptr=put(ends), longest=int(lengths.max(initial=0)))

    return table


def token_view(cache: Any) -> tuple[Any, int]:
    """A cache [page, token, head, dim] as [token, 1, head, dim], and the number of tokens between page starts."""
    pages, size, heads, dim = cache.shape
    page, token, head, _ = strides = _strides(cache)
    if page % token or (heads > 1 and token < head):
        raise ProblemError(
            f"pages of {size} tokens with strides {list(strides)}: no kernel has such pages, and single tokens need "
            "all heads of a token together, and pages a whole number of tokens apart. Give an NHD cache."
        )
    multiple = page // token
    shape, steps = ((pages - 1) * multiple + size, 1, heads, dim), (token, token, head, 1)
    if isinstance(cache, OnDevice):
        return dataclasses.replace(cache, shape=shape, strides=steps), multiple
    if isinstance(cache, np.ndarray):
        step_bytes = [step * cache.itemsize for step in steps]
        return np.lib.stride_tricks.as_strided(cache, shape, step_bytes, writeable=False), multiple
    return cache.as_strided(shape, steps), multiple


def _strides(array: Any) -> tuple[int, ...]:
    """Strides of an array in elements."""
    if isinstance(array, OnDevice):
        return array.strides or contiguous(array.shape)
    if isinstance(array, np.ndarray):
        return tuple(step // array.itemsize for step in array.strides)
    return tuple(array.stride())
