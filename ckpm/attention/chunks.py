"""Chunked attention, as Llama 4's local layers have it: a query sees the keys of its own chunk up to itself.

No kernel has such a mask. Each chunk becomes a sequence under a causal mask from the bottom right. O and LSE are the
same, because the queries of a chunk end where its keys end. vLLM calls such sequences virtual batches.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ckpm.attention.arrays.tables import Lengths, Pages, demand_last_lengths, keys_of_list
from ckpm.base.errors import ArgumentError, demand_type


def chunk_lengths(cu_seqlens_q: Any, cu_seqlens_k: Any, chunk: int) -> tuple[Lengths, Lengths]:
    """Return running sums of queries and keys with a sequence for each chunk of ``chunk`` keys.

    Use them with ``mask="bottom_right"`` in the place of the given sums, [batch + 1], int32 of the host. Rows of Q, K,
    V, O and LSE stay where they are.

    Raises:
        ArgumentError: the chunk is not positive, sums don't ascend from 0, or they are of different batches.
    """
    seqlens_q, seqlens_k = _lengths("cu_seqlens_q", cu_seqlens_q), _lengths("cu_seqlens_k", cu_seqlens_k)
    _, _, queries, keys = _chunks(seqlens_q, seqlens_k, chunk, 1)
    return _sums(queries), _sums(keys)


def chunk_pages(cu_seqlens_q: Any, pages: Pages, page_size: int, chunk: int) -> tuple[Lengths, Pages]:
    """Return running sums of queries and a page table with a sequence for each chunk of keys that has queries.

    Use them with ``mask="bottom_right"`` in the place of the given tables, which are arrays of the host. Rows of Q, O
    and LSE stay where they are. ``page_size`` is the number of tokens of a page.

    Raises:
        ArgumentError: the chunk is not positive, or not a multiple of ``page_size``; or tables contradict one another.
    """
    demand_type("pages", pages, Pages, "ckpm.Pages")
    demand_type("page_size", page_size, int, "the tokens of a page")
    seqlens_q, table = _lengths("cu_seqlens_q", cu_seqlens_q), _integers("pages.indices", pages.indices)
    listed, batch = table.ndim == 1, len(seqlens_q)
    if listed:
        starts = _integers("pages.indptr", pages.indptr)[: batch + 1]
        counts = _lengths("pages.indptr", starts, len(table))
        last = np.ones_like(counts)
        if page_size > 1:
            last = _integers("pages.last_page_lens", pages.last_page_lens)[: len(counts)]
            demand_last_lengths(counts, page_size, last)
        seqlens_k = keys_of_list(counts, page_size, last)
    else:
        starts, seqlens_k = np.arange(batch) * table.shape[1], _integers("pages.seqlens_k", pages.seqlens_k)[:batch]
        if len(table) < batch or (seqlens_k < 0).any() or (seqlens_k > table.shape[1] * page_size).any():
            raise ArgumentError(
                f"a table of {list(table.shape)} doesn't hold seqlens_k {seqlens_k.tolist()[:8]} of {batch} sequences.",
                kind="shape",
            )
    chunks = _chunks(seqlens_q, seqlens_k, chunk, page_size)
    used = chunks[2] > 0
    used[0] |= not used.any()  # a call has at least one sequence
    sequence, number, queries, keys = (of_chunks[used] for of_chunks in chunks)
    entries = -(-keys // page_size)
    first = starts[sequence] + number * (chunk // page_size)
    sums, longest = _sums(queries), int(keys.max())
    if listed:
        places = np.repeat(first - np.cumsum(entries) + entries, entries) + np.arange(entries.sum())
        rest = np.where(keys > 0, keys - (entries - 1) * page_size, 0).astype(np.int32)
        return sums, dataclasses.replace(
            pages, indices=table[places], indptr=_sums(entries), last_page_lens=rest, longest=longest
        )
    columns = np.minimum(np.arange(max(int(entries.max()), 1)), np.maximum(entries - 1, 0)[:, None])
    rows = table.reshape(-1)[first[:, None] + columns] if table.size else table[sequence]
    return sums, dataclasses.replace(pages, indices=rows, seqlens_k=keys.astype(np.int32), longest=longest)


def _chunks(
    seqlens_q: NDArray[Any], seqlens_k: NDArray[Any], chunk: int, page_size: int
) -> tuple[NDArray[np.int64], ...]:
    """Split each sequence at multiples of ``chunk`` keys. Queries before the first key stay in the first chunk.

    Return for the chunks of all sequences, in order: their sequence, their number in it, their queries and their keys.
    """
    demand_type("chunk", chunk, int, "a number of keys")
    if page_size < 1 or not 1 <= chunk < 2**31 or chunk % page_size:
        raise ArgumentError(
            f"chunk {chunk} must be positive, and a multiple of the {page_size} tokens of a page.", kind="shape"
        )
    if len(seqlens_q) != len(seqlens_k):
        raise ArgumentError(
            f"queries are of {len(seqlens_q)} sequences, and keys of {len(seqlens_k)}: give tables of one batch.",
            kind="shape",
        )
    counts = np.maximum(-(-seqlens_k // chunk), 1)
    sequence = np.repeat(np.arange(len(counts)), counts)
    number = np.arange(len(sequence)) - np.repeat(np.cumsum(counts) - counts, counts)
    whole, left = seqlens_q[sequence], seqlens_k[sequence].astype(np.int64) - number * chunk  # keys from the chunk on
    # the last query is at the last key
    until_end = np.where(number > 0, np.minimum(whole, left), whole)
    of_later = np.minimum(whole, np.maximum(left - chunk, 0))
    return sequence, number, until_end - of_later, np.minimum(left, chunk)


def _integers(name: str, table: Any) -> Lengths:
    """A table of the host, of whole numbers."""
    try:
        array = np.asarray(table)
    except (TypeError, ValueError, RuntimeError) as error:  # a tensor of a GPU
        raise ArgumentError(f"{name} must be an array of the host: {error}. Copy it.", kind="device") from error
    if array.ndim not in (1, 2) or array.dtype.kind not in "iu":
        raise ArgumentError(f"{name} is {array.dtype} {list(array.shape)}: give whole numbers.", kind="dtype")
    return array


def _lengths(name: str, sums: Any, most: int = 2**31 - 1) -> Lengths:
    """Lengths of running sums, which must ascend from 0 to at most ``most``."""
    array = _integers(name, sums)
    wide = array.astype(np.int64).reshape(-1)
    lengths = wide[1:] - wide[:-1]
    if array.ndim > 1 or not len(lengths) or array[0] != 0 or (lengths < 0).any() or array[-1] > most:
        raise ArgumentError(
            f"{name} must ascend from 0 to at most {most}, [batch + 1], not {array.tolist()[:8]}.", kind="shape"
        )
    return lengths


def _sums(lengths: NDArray[np.int64]) -> Lengths:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
