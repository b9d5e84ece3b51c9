"""Chunks as sequences: the keys that a query sees, by the definition of a chunked mask."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpm.attention.arrays.tables import Pages
from ckpm.attention.chunks import chunk_lengths, chunk_pages
from ckpm.base.errors import ArgumentError

LENGTHS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 90)), min_size=1, max_size=4)


def sums(lengths: list[int]) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)


def seen_by_definition(lengths: list[tuple[int, int]], chunk: int) -> list[list[int]]:
    """Keys of each row of Q, counted in the call: a query at position i sees keys from i // chunk * chunk to i."""
    seen, before = [], 0
    for queries, keys in lengths:
        for position in range(keys - queries, keys):
            first = max(position // chunk * chunk, 0)
            seen.append([before + key for key in range(first, position + 1)])
        before += keys
    return seen


def seen_under_mask(cu_seqlens_q: np.ndarray, keys: list[list[Any]]) -> list[list[Any]]:
    """Keys of each row of Q under a causal mask from the bottom right; ``keys`` of each sequence in order."""
    rows = []
    for queries, own in zip(np.diff(cu_seqlens_q).tolist(), keys, strict=True):
        rows += [own[: max(len(own) - queries + row + 1, 0)] for row in range(queries)]
    return rows


@given(LENGTHS, st.integers(1, 50))
def test_chunk_lengths_any_sequences_see_own_chunk(lengths: list[tuple[int, int]], chunk: int) -> None:
    of_q, of_k = sums([q for q, _ in lengths]), sums([k for _, k in lengths])
    chunked_q, made_k = chunk_lengths(of_q, of_k, chunk)
    places = [list(range(*span)) for span in zip(made_k[:-1].tolist(), made_k[1:].tolist(), strict=True)]
    assert seen_under_mask(chunked_q, places) == seen_by_definition(lengths, chunk)
    assert (chunked_q[-1], made_k[-1]) == (of_q[-1], of_k[-1])


@pytest.mark.parametrize("flat", [True, False])
@given(lengths=LENGTHS, size=st.sampled_from((1, 4, 16)), pages_of_chunk=st.integers(1, 4), seed=st.integers(0, 99))
def test_chunk_pages_any_tables_see_own_chunk(
    lengths: list[tuple[int, int]], size: int, pages_of_chunk: int, seed: int, flat: bool
) -> None:
    counts = [-(-keys // size) for _, keys in lengths]
    numbers = np.random.default_rng(seed).permutation(sum(counts)).astype(np.int32)
    rows = np.split(numbers, np.cumsum(counts)[:-1])
    if flat:
        last = np.array(
            [keys - (count - 1) * size if count else 0 for (_, keys), count in zip(lengths, counts, strict=True)]
        )
        table = Pages(indices=numbers, indptr=sums(counts), last_page_lens=last.astype(np.int32))
    else:
        wide = np.full((len(rows), max(counts) + 1), -1, np.int32)
        for at, row in enumerate(rows):
            wide[at, : len(row)] = row
        table = Pages(indices=wide, seqlens_k=np.array([keys for _, keys in lengths], np.int32))
    of_q = sums([q for q, _ in lengths])
    chunked_q, chunked = chunk_pages(of_q, table, size, pages_of_chunk * size)
    if flat:
        spans = zip(
            chunked.indptr[:-1].tolist(), chunked.indptr[1:].tolist(), chunked.last_page_lens.tolist(), strict=True
        )
        own = [(chunked.indices[a:b].tolist(), (b - a - 1) * size + last if b > a else 0) for a, b, last in spans]
    else:
        own = [(row.tolist(), keys) for row, keys in zip(chunked.indices, chunked.seqlens_k.tolist(), strict=True)]
    keys = [[(pages[key // size], key % size) for key in range(count)] for pages, count in own]
    slots = [
        (page, slot)
        for row, (_, count) in zip(rows, lengths, strict=True)
        for page, slot in ((row[key // size], key % size) for key in range(count))
    ]
    expected = [[slots[key] for key in row] for row in seen_by_definition(lengths, pages_of_chunk * size)]
    assert seen_under_mask(chunked_q, keys) == expected
    assert chunked.longest == max(len(row) for row in keys)
    assert chunked_q[-1] == of_q[-1]


@pytest.mark.parametrize(
    ("of_q", "of_k", "message"),
    [
        ([0, 40, 20], [0, 70, 95], "cu_seqlens_q must ascend from 0"),
        ([0, 40, 60], [0, 70, 60], "cu_seqlens_k must ascend from 0"),
        ([1, 40, 60], [0, 70, 95], "cu_seqlens_q must ascend from 0"),
        ([0], [0], "cu_seqlens_q must ascend from 0"),
        ([0, 40, 60], [0, 70], "queries are of 2 sequences, and keys of 1"),
        ([0, 40, 60], [0.0, np.nan, 95.0], "cu_seqlens_k is float64"),
        ([0, 2**31], [0, 70], "cu_seqlens_q must ascend from 0 to at most 2147483647"),
        ([[0, 40]], [0, 70], "cu_seqlens_q must ascend from 0"),
    ],
)
def test_chunk_lengths_of_wrong_sums_is_refused(of_q: list[Any], of_k: list[Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        chunk_lengths(np.array(of_q), np.array(of_k), 16)


LIST = {"indices": np.arange(9, dtype=np.int32), "indptr": sums([4, 5]), "last_page_lens": np.array([3, 16], np.int32)}
ROWS = {"indices": np.zeros((2, 5), np.int32), "seqlens_k": np.array([50, 80], np.int32)}


@pytest.mark.parametrize(
    ("of_q", "table", "message"),
    [
        ([0, 4, 3], LIST, "cu_seqlens_q must ascend"),
        ([0, 4], LIST | {"indptr": np.array([0])}, "pages.indptr must ascend"),
        ([0, 4, 9], LIST | {"indptr": np.array([0, 5, 4])}, "pages.indptr must ascend"),
        ([0, 4, 9], LIST | {"indptr": np.array([0, 5, 10])}, "pages.indptr must ascend from 0 to at most 9"),
        ([0, 4, 9, 9], LIST, "queries are of 3 sequences, and keys of 2"),
        ([0, 4, 9], LIST | {"last_page_lens": np.array([3, 17])}, "last_page_lens"),
        ([0, 4, 9], LIST | {"last_page_lens": np.array([3])}, "last_page_lens"),
        ([0, 4, 9], LIST | {"last_page_lens": None}, "pages.last_page_lens is object"),
        ([0, 4, 9], ROWS | {"seqlens_k": np.array([50, 81])}, r"a table of \[2, 5\] doesn't hold seqlens_k \[50, 81\]"),
        ([0, 4, 9], ROWS | {"seqlens_k": np.array([50, -1])}, "doesn't hold seqlens_k"),
        ([0, 4, 9, 9], ROWS | {"seqlens_k": np.array([5, 5, 5])}, "of 3 sequences"),
        ([0, 4, 9], ROWS | {"seqlens_k": np.array([50.0, np.nan])}, "pages.seqlens_k is float64"),
    ],
)
def test_chunk_pages_of_wrong_tables_is_refused(of_q: list[int], table: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        chunk_pages(np.array(of_q), Pages(**table), 16, 32)


def test_chunk_pages_leaves_out_rows_of_a_larger_batch() -> None:
    """fmha takes such tables, too: captured graphs have them."""
    for table in (LIST, ROWS):
        whole = {
            name: np.concatenate([array, array[-1:]]) if name != "indices" else array for name, array in table.items()
        }
        wanted, longer = (chunk_pages(sums([4, 9]), Pages(**fields), 16, 32) for fields in (table, whole))
        assert (longer[0] == wanted[0]).all()
        assert (longer[1].indices == wanted[1].indices).all()


def test_chunk_pages_chunk_within_page_is_refused() -> None:
    table = Pages(indices=np.zeros((1, 1), np.int32), seqlens_k=np.array([16], np.int32))
    with pytest.raises(ArgumentError, match="multiple of the 16 tokens of a page"):
        chunk_pages([0, 4], table, 16, 24)


def test_chunk_pages_chunks_without_queries_are_left_out() -> None:
    table = Pages(indices=np.arange(64, dtype=np.int32)[None], seqlens_k=np.array([1000], np.int32))
    chunked_q, chunked = chunk_pages([0, 4], table, 16, 256)
    assert chunked_q.tolist() == [0, 4]
    assert chunked.seqlens_k.tolist() == [1000 - 768]
    assert chunked.indices[0, :15].tolist() == list(range(48, 63))
