"""The physical pages that each sequence of a problem uses."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ckpm.matrix.problems.case import SuiteCase

# 2 GB, 4 GB and 8 GB: signed offsets, unsigned offsets, and sums of two of these leave 32 bits
LINES = (2**31, 2**32, 2**33)
SPARE = 3  # pages that no table names, added to the pages in use


@dataclass(frozen=True, slots=True, kw_only=True)
class PageTable:
    """``pages``: physical page numbers of each sequence; ``width``: entries of a row of a 2-D table.

    ``nan_page`` is a page that no sequence uses, named by padding entries; None if the problem has none.
    """

    pages: tuple[NDArray[np.int64], ...]
    pool_pages: int
    width: int
    nan_page: int | None


def shares_pages(problem: SuiteCase) -> bool:
    """True if several entries may name one page. Its content is then drawn for each page, not for each sequence."""
    return problem.page_order in ("shared", "repeated")


def page_table(problem: SuiteCase) -> PageTable:
    """The pages of every sequence. Equal problems get equal tables."""
    p = problem
    counts = [p.pages_of(sequence) for sequence in range(p.batch)]
    random = np.random.default_rng([p.seed, 0])
    if shares_pages(p):
        pages, used = _shared_pages(p, counts)
        pool = max(p.pool_pages, used + SPARE)
    else:
        pool = p.pool_pages or sum(counts) + SPARE
        chosen = _choose(p, sum(counts), pool, random)
        pages = tuple(np.split(chosen, np.cumsum(counts)[:-1]))
    nan_page = None
    if p.table_end == "nan_page":
        taken = {int(page) for part in pages for page in part}
        free = (page for page in range(pool) if page not in taken)
        nan_page = next(free, None)
        if nan_page is None:
            pool, nan_page = pool + 1, pool
    width = max(*counts, 1) + (0 if p.table_end == "exact" else 8)
    return PageTable(pages=pages, pool_pages=pool, width=width, nan_page=nan_page)


def unused_entry(problem: SuiteCase, table: PageTable) -> int:
    """The entry that the problem's ``table_end`` puts after the last valid one."""
    return {"exact": 0, "zeros": 0, "minus_one": -1, "nan_page": table.nan_page or 0}[problem.table_end]


def block_table(problem: SuiteCase, table: PageTable) -> NDArray[np.int32]:
    """A block table [sequence, entry]: each sequence's pages, and unused entries after them."""
    rows = np.full((problem.batch, table.width), unused_entry(problem, table), np.int32)
    for row, pages in zip(rows, table.pages, strict=True):
        row[: len(pages)] = pages
    return rows


def _shared_pages(p: SuiteCase, counts: list[int]) -> tuple[tuple[NDArray[np.int64], ...], int]:
    """Pages of each sequence, and the number of pages in use.

    Half of the shortest sequence's pages are common to all. With ``repeated`` all sequences cycle through the common
    pages.
    """
    common = max(1, min(counts) // 2)
    if p.page_order == "repeated":
        return tuple(np.arange(count, dtype=np.int64) % common for count in counts), common
    tables, fresh = [], common
    for count in counts:
        own = max(count - common, 0)
        tables.append(np.concatenate((np.arange(min(common, count)), np.arange(fresh, fresh + own))).astype(np.int64))
        fresh += own
    return tuple(tables), fresh


def _choose(p: SuiteCase, count: int, pool: int, random: np.random.Generator) -> NDArray[np.int64]:
    """``count`` different pages of the pool in the problem's order."""
    if p.page_order == "identity":
        return np.arange(count, dtype=np.int64)
    if p.page_order == "reversed":
        return np.arange(count, dtype=np.int64)[::-1].copy()
    if p.page_order == "high":
        return pool - 1 - random.permutation(count).astype(np.int64)
    if p.page_order == "spread":
        return random.permutation(np.linspace(0, pool - 1, count).astype(np.int64))
    wanted: list[int] = []
    if p.page_order == "lines":
        stride = p.page_elements("k") * p.element_bytes
        wanted = [line // stride + step for line in LINES for step in (-2, -1, 0, 1)]
        wanted = [page for page in dict.fromkeys((*wanted, 0, pool - 1)) if 0 <= page < pool][:count]
    return random.permutation(_fill(wanted, count, pool, random))


def _fill(wanted: list[int], count: int, pool: int, random: np.random.Generator) -> NDArray[np.int64]:
    """The wanted pages and random others, ``count`` in all, none twice."""
    chosen = dict.fromkeys(wanted)
    if pool <= 4 * count + len(wanted):
        chosen |= dict.fromkeys(page for page in random.permutation(pool).tolist())
    while len(chosen) < count:
        chosen |= dict.fromkeys(random.integers(0, pool, count).tolist())
    return np.array(list(chosen)[:count], np.int64)
