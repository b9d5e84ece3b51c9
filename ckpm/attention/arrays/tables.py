"""Lengths and page tables of a call: running sums of lengths, SGLang's and vLLM's tables, checked where they can be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ckpm.attention.arrays.tensors import Operand, demand_shape
from ckpm.base.errors import ArgumentError
from ckpm.matrix.problems.problem import ELEMENT_BYTES, KvLayout

Lengths = NDArray[np.integer[Any]]
MOST_KEYS = 1 << 28  # of an estimated longest length; validation.py limits keys and queries together
TABLES = ("indices", "indptr", "last_page_lens", "seqlens_k")  # of Pages


@dataclass(frozen=True, slots=True, kw_only=True)
class Pages:
    """The page table of a paged cache.

    ``indices`` are page numbers, int32. ``longest`` is the number of keys of the longest sequence. Tables on the device
    need it.

    - SGLang's table: [entry] with ``indptr`` [batch + 1] (pages before each sequence) and ``last_page_lens`` [batch]
      (tokens in each last page, not needed for pages of one token)
    - vLLM's table: [batch, entry] with ``seqlens_k`` [batch]

    Tables may have rows of a larger batch, as captured graphs need. The rows of a block table on the device may have a
    stride.
    """

    indices: Any
    indptr: Any = None
    last_page_lens: Any = None
    seqlens_k: Any = None
    kv_layout: KvLayout = "linear"
    longest: int | None = None


def _differences(sums: NDArray[Any]) -> Lengths:
    wide = sums.astype(np.int64)  # the difference of two sums may need 33 bits
    return wide[1:] - wide[:-1]


def lengths_of(sums: Operand, total: int, name: str, *, spare: bool = False) -> Lengths | None:
    """The length of each sequence, or None if the sums are on the device. ``spare``: rows may follow the last one."""
    if len(sums.shape) != 1 or sums.shape[0] < 2:
        raise ArgumentError(f"{sums.name} is {list(sums.shape)}, not [batch + 1].", kind="shape")
    if sums.array is None:
        return None
    lengths = _differences(sums.array)
    last = int(sums.array[-1])
    if sums.array[0] != 0 or (lengths < 0).any() or last > total or (last < total and not spare):
        raise ArgumentError(
            f"{sums.name} must ascend from 0 to {'at most ' if spare else ''}the {total} rows of {name}, not "
            f"{sums.array.tolist()[:8]}.",
            kind="shape",
        )
    return lengths


def longest_of(name: str, longest: int | None, lengths: Lengths | None) -> int:
    """The longest length: the caller's number, else the maximum of the lengths."""
    if lengths is None:
        if longest is None:
            raise ArgumentError(f"{name} must be given: the lengths are on the device.", kind="shape")
        return longest
    most = int(lengths.max(initial=0))
    if longest is not None and longest < most:
        raise ArgumentError(f"{name} {longest} is less than the longest sequence, {most}.", kind="shape")
    return most if longest is None else longest


def round_up(longest: int, most: int) -> int:
    """Round a longest length up to four significant bits, within ``most``.

    So a plan of a decode step also serves the next steps.
    """
    step = 1 << max(longest.bit_length() - 4, 0)
    return max(min(-(-longest // step) * step, most, MOST_KEYS), longest)


def rows_of_batch(listed: Mapping[str, Operand], batch: int) -> dict[str, Operand]:
    """Page tables without rows of a larger batch. The list of pages stays whole."""
    tables = dict(listed)
    for name in set(TABLES) & set(listed):
        table, rows = listed[name], batch + (name == "indptr")
        if len(table.shape) == (2 if name == "indices" else 1) and table.shape[0] > rows:
            array = None if table.array is None else table.array[:rows]
            tables[name] = replace(table, shape=(rows, *table.shape[1:]), array=array)
    return tables


def paged_keys(
    tensors: Mapping[str, Operand], listed: Mapping[str, Operand], pages: Pages, dtype: str, sizes: Mapping[str, Any],
    *, exact: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Sizes of the problem from the shapes of K, V and the page table.

    ``exact``: ``seqlen_k`` is the caller's longest length for tables on the device. Otherwise it may be rounded up.
    """
    k, v, batch = tensors["k"], tensors["v"], sizes["batch"]
    x = 16 // ELEMENT_BYTES[dtype]
    if pages.kv_layout == "vectorized":
        if len(k.shape) != 5 or len(v.shape) != 5:
            raise ArgumentError(
                "vectorized k is [page, head, dim / x, token, x], v [page, head, token / x, dim, x].", kind="shape"
            )
        pool, heads, _, size, _ = k.shape
        hdim_v = v.shape[3]
        demand_shape(k, (pool, heads, sizes["hdim_q"] // x, size, x), f"of q's dim, x {x}")
        demand_shape(v, (pool, heads, size // x, hdim_v, x), f"of k's pages, x {x}")
    else:
        if len(k.shape) != 4 or len(v.shape) != 4:
            raise ArgumentError(
                f"k is {list(k.shape)} and v {list(v.shape)}: both are [page, token, head, dim].", kind="shape"
            )
        pool, size, heads, _ = k.shape
        hdim_v = v.shape[3]
        demand_shape(k, (pool, size, heads, sizes["hdim_q"]), "of q's dim")
        demand_shape(v, (pool, size, heads, hdim_v), "of k's pages")
    flat = len(listed["indices"].shape) == 1
    if not flat:
        demand_shape(listed["indices"], (batch, listed["indices"].shape[-1]), "batch, entry")
    lengths = _sglang(listed, batch, size) if flat else _vllm(listed, batch, size)
    _check_pages(listed["indices"], listed.get("indptr"), lengths, pool, size)
    longest = longest_of("pages.longest", pages.longest, lengths)
    if lengths is None and sizes["mode"] == "group" and not exact:
        longest = round_up(longest, listed["indices"].shape[-1] * size)
    table = listed["indices"]
    width = 0 if flat else table.strides[0] if table.shape[0] > 1 else table.shape[1]
    return {
        "page_size": size, "pool_pages": pool, "nhead_k": heads, "hdim_v": hdim_v, "kv_layout": pages.kv_layout,
        "kv_table": "sglang" if flat else "vllm", "table_width": width,
        "seqlen_k": longest,
        "ragged": sizes["mode"] == "batch" and (lengths is None or len({*lengths.tolist()}) > 1),
    }  # fmt: skip


def keys_of_list(counts: Lengths, size: int, last: Lengths | int) -> Lengths:
    """Keys of each sequence of a list: ``counts`` of its pages of ``size`` tokens, and the tokens in each last page."""
    return np.where(counts > 0, (counts.astype(np.int64) - 1) * size + last, 0)


def demand_last_lengths(counts: Lengths, size: int, last: Lengths) -> None:
    """Refuse a last page without a token, or with more than ``size`` tokens."""
    if last.shape != counts.shape or ((last > size) | ((last < 1) & (counts > 0))).any():
        raise ArgumentError(
            f"last_page_lens {last.tolist()[:8]} are not from 1 to the {size} tokens of a page.", kind="shape"
        )


def lengths_of_list(ends: Lengths, entries: int, size: int, last: Lengths | None) -> Lengths:
    """Keys of each sequence of a checked list of ``entries`` pages. Without ``last``, last pages count as full."""
    counts = _differences(ends)
    if ends[0] != 0 or (counts < 0).any() or ends[-1] > entries:
        raise ArgumentError(
            f"indptr {ends.tolist()[:8]} doesn't ascend from 0 to at most {entries} entries.", kind="shape"
        )
    if last is None:
        return keys_of_list(counts, size, size)
    demand_last_lengths(counts, size, last)
    return keys_of_list(counts, size, last)


def _sglang(listed: Mapping[str, Operand], batch: int, size: int) -> Lengths | None:
    """Keys of each sequence; None if the table is on the device.

    If only ``last_page_lens`` is on the device, last pages count as full.
    """
    if "indptr" not in listed or (size > 1 and "last_page_lens" not in listed):
        raise ArgumentError(
            "a flat list of pages comes with indptr, and with last_page_lens if pages hold several tokens.",
            kind="shape",
        )
    demand_shape(listed["indptr"], (batch + 1,), "batch + 1")
    last = listed.get("last_page_lens")
    if last is not None:
        demand_shape(last, (batch,), "batch")
    ends = listed["indptr"].array
    if ends is None:
        return None
    return lengths_of_list(ends, listed["indices"].shape[0], size, None if last is None else last.array)


def _vllm(listed: Mapping[str, Operand], batch: int, size: int) -> Lengths | None:
    """Keys of each sequence; None if the table is on the device."""
    if "seqlens_k" not in listed:
        raise ArgumentError("a table of [batch, entry] comes with seqlens_k [batch].", kind="shape")
    demand_shape(listed["seqlens_k"], (batch,), "batch")
    lengths = listed["seqlens_k"].array
    width = listed["indices"].shape[1]
    if lengths is not None and (lengths.min() < 0 or lengths.max() > width * size):
        raise ArgumentError(
            f"seqlens_k {lengths.tolist()[:8]} are not from 0 to the {width * size} keys of a table row.", kind="shape"
        )
    return lengths


def _check_pages(indices: Operand, indptr: Operand | None, lengths: Lengths | None, pool: int, size: int) -> None:
    """Refuse an entry in use that names no page of the pool."""
    if indices.array is None or lengths is None:
        return
    if indptr is not None and indptr.array is not None:
        used = indices.array[: indptr.array[-1]]
    else:
        columns = np.arange(indices.array.shape[1])
        used = indices.array[columns < -(-lengths[:, None] // size)]
    if ((used < 0) | (used >= pool)).any():
        wrong = used[(used < 0) | (used >= pool)][0]
        raise ArgumentError(f"the table names page {wrong}, and the pool has pages 0 to {pool - 1}.", kind="shape")
