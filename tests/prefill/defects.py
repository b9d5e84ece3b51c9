"""Known defects of CK's batch prefill, planted in our headers, and the suite's case that finds each."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

from tests.prefill.instead import EXTENDED, UPSTREAM

WRONG = "wrong numbers"


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """Replaces ``old``, which occurs once in a header of kernels/include_prefill, by ``new``."""

    folder: str = "ckpm_prefill"
    header: str
    old: str
    new: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Defect:
    """``case`` of ``suite`` must fail, ``found_as`` wrong numbers or a kind of fault; without the defect it passes.

    The case runs on a library of ``upstream``.
    """

    edits: tuple[Edit, ...]
    suite: str
    case: str
    found_as: str
    upstream: str = UPSTREAM


def _defect(suite: str, case: str, *edits: Edit, found_as: str = WRONG, upstream: str = UPSTREAM) -> Defect:
    return Defect(edits=edits, suite=suite, case=case, found_as=found_as, upstream=upstream)


extended_defect = functools.partial(_defect, upstream=EXTENDED)  # a case on ckpm-extended finds it

DEFECTS: Mapping[str, Defect] = {
    # the table is read to the end of a tile (AICK-1171)
    "page lookups are not clamped to the last token": _defect(
        "page-fault",
        "lengths.m64-q64k33",
        Edit(
            header="k_loader.hpp",
            old="return ck_tile::min(start_ + row_ + i * kRowStep, view_.last_token);",
            new="return start_ + row_ + i * kRowStep;",
        ),
        found_as="memory",
    ),
    # the descriptor of a page has the length of the pool (rocm-libraries pull request 6653)
    "num_records is not trimmed to the live page": _defect(
        "page-fault",
        "freed.ps1024_pertensor",
        Edit(
            header="paged_cache.hpp",
            old="static_cast<uint32_t>(live_bytes)",
            new="static_cast<uint32_t>(view.num_pages) * view.page_bytes",
        ),
        found_as="srd_range",
    ),
    # a page's place in the pool is a product of 32 bits (aiter issues 2517 and 2608)
    "a page's offset has 32 bits": _defect(
        "large-kv",
        "batches.ps16_vectorized-g8-b4",
        Edit(
            header="paged_cache.hpp",
            old="static_cast<uint64_t>(static_cast<uint32_t>(page)) * view.page_bytes",
            new="static_cast<uint32_t>(page) * view.page_bytes",
        ),
    ),
    # V's reads find the page ids of K's next tile (what pull request 6653 double-buffers)
    "K and V share their page ids": _defect(
        "batch-prefill",
        "equalities.m64-g3",
        Edit(header="pipeline.hpp", old="++cursor.k_tile;", new="++cursor.k_tile; v.lookup(cursor.k_start());"),
    ),
    "block scales are those of the query's head": _defect(
        "batch-prefill",
        "scales_heads.kv_blockscale",
        Edit(
            header="launch.hpp",
            old="static_cast<long_index_t>(at.kv_head) * kargs.nhead_stride_kv_block_descale",
            new="static_cast<long_index_t>(at.head) * kargs.nhead_stride_kv_block_descale",
        ),
    ),
    # as in CK of 2025: the mask starts where the window does, and the pages with the sequence
    "the window's start is not in the page lookups": _defect(
        "batch-prefill",
        "windows.bottom_right-win31_0-q70k600",
        Edit(
            header="pipeline.hpp",
            old="return tiles.start_of(k_tile);",
            new="return tiles.start_of(k_tile) - tiles.window_start;",
        ),
        Edit(
            header="pipeline.hpp",
            old="return tiles.start_of(v_tile);",
            new="return tiles.start_of(v_tile) - tiles.window_start;",
        ),
    ),
}
