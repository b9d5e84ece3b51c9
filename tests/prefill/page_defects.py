"""Defects of pages of any size and of callers' strides, planted in our headers, and the case that finds each."""

from __future__ import annotations

from collections.abc import Mapping

from tests.prefill.defects import Defect, Edit, extended_defect

PAGE_DEFECTS: Mapping[str, Defect] = {
    # right for every power of two
    "a token's place in its page is its low bits": extended_defect(
        "batch-prefill",
        "any_page.ps48-vllm-separate",
        Edit(
            header="paged_cache.hpp",
            old="return token - static_cast<index_t>(entry_of(view, token)) * tokens_of_page(view);",
            new="return token & (tokens_of_page(view) - 1);",
        ),
    ),
    "tokens of a packed cache lie one head apart": extended_defect(
        "batch-prefill",
        "any_page.ps48-vllm-packed",
        Edit(header="launch.hpp", old="page == 1 ? 0 : token_stride * bytes", new="page == 1 ? 0 : hdim * bytes"),
    ),
    "a page of any size has an offset of 32 bits": extended_defect(
        "large-kv",
        "lines_any_page.ps48",
        Edit(
            header="paged_cache.hpp",
            old="static_cast<uint64_t>(static_cast<uint32_t>(page)) * view.page_bytes",
            new="static_cast<uint32_t>(page) * view.page_bytes",
        ),
    ),
}
