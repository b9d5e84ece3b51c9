"""Caches in pages of a size that no kernel has, read as pages of one token.

Tokens of an NHD cache [page, token, head, dim] lie a token stride apart, and pages a multiple of it. So token t of
page p is page p * multiple + t of a pool of single tokens.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ckpm.attention.arrays.pytorch import namespace, padded_list
from ckpm.attention.arrays.tables import Pages, demand_last_lengths, keys_of_list
from ckpm.attention.arrays.tensors import OnDevice, contiguous
from ckpm.attention.familiar.tensors import read_on_host
from ckpm.base.errors import ProblemError


class SingleTokens(NamedTuple):
    """The tokens of a plan: page and place in it [key], and running sums of keys [batch + 1], of the host.

    ``beside`` is a table of the caller's; tables are made on its device.
    """

    pages: NDArray[np.int64]
    places: NDArray[np.int64]
    indptr: NDArray[np.int32]
    longest: int
    beside: Any

    def table(self, multiple: int) -> Pages:
        """The page table of single tokens. Raises ProblemError: a token's number has over 31 bits."""
        numbers = self.pages * multiple + self.places
        if numbers.max(initial=0) >= 2**31:
            raise ProblemError(f"token {numbers.max()} of the cache: tables of pages of one token have 31 bits.")
        indices, indptr = (self._on_device(one) for one in (numbers.astype(np.int32), self.indptr))
        return Pages(indices=padded_list(indices), indptr=indptr, longest=self.longest)

    def _on_device(self, table: NDArray[np.int32]) -> Any:
        library = namespace(self.beside)
        return table if library is np else library.from_numpy(table).to(self.beside.device)


def has_kernels(page_size: int) -> bool:
    """Return True for pages of one token and of multiples of 16, which kernels have."""
    return page_size == 1 or page_size % 16 == 0


def single_tokens(indptr: Any, indices: Any, last_page_lens: Any, page_size: int) -> SingleTokens | None:
    """The tokens of a list of pages; None for pages that kernels have.

    Raises ArgumentError: a table is a raw address, or a last length is not from 1 to a page's tokens.
    """
    if has_kernels(page_size):
        return None
    sums, numbers, last = (read_on_host(one).astype(np.int64) for one in (indptr, indices, last_page_lens))
    counts = np.diff(sums)
    demand_last_lengths(counts, page_size, last)
    lengths = keys_of_list(counts, page_size, last)
    ends = np.concatenate([[0], np.cumsum(lengths)])
    at = np.arange(ends[-1]) - np.repeat(ends[:-1], lengths)  # within its sequence
    pages = numbers[np.repeat(sums[:-1], lengths) + at // page_size]
    return SingleTokens(pages, at % page_size, ends.astype(np.int32), int(lengths.max(initial=0)), indices)


def token_view(cache: Any) -> tuple[Any, int]:
    """A cache [page, token, head, dim] as [token, 1, head, dim], and the tokens from page to page.

    Raises ProblemError: heads lie further apart than tokens, or pages not a whole number of tokens.
    """
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
