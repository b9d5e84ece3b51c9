"""Defects of fp8 K and V beside a Q of 16 bits, planted in our headers, and the case that finds each."""

from __future__ import annotations

from collections.abc import Mapping

from tests.prefill.defects import Defect, Edit, extended_defect

MIXED_DEFECTS: Mapping[str, Defect] = {
    "the high two of four numbers are the low two": extended_defect(
        "batch-prefill",
        "mixed.d256",
        Edit(header="cached_type.hpp", old="two<true>(bits[1])", new="two<false>(bits[1])"),
    ),
    "both chunks of a vector of K are its first": extended_defect(
        "large-kv",
        "mixed.ps16_vectorized",
        Edit(header="k_loader.hpp", old="chunk % Chunk::kInVector * Chunk::kBytes", new="chunk % Chunk::kInVector * 0"),
    ),
    "both chunks of a vector of V are its first": extended_defect(
        "batch-prefill",
        "mixed.blocks_fp16",
        Edit(header="v_loader.hpp", old="chunk % Chunk::kInVector * Chunk::kBytes", new="chunk % Chunk::kInVector * 0"),
    ),
    # tokens after the last one, NaN among them, count as words of LDS
    "unused slots are counted in numbers of 16 bits": extended_defect(
        "page-fault",
        "mixed.blocks_fp16-q33k127",
        Edit(header="v_loader.hpp", old="in_word = 4 / sizeof(Cached);", new="in_word = 4 / sizeof(T);"),
    ),
    "every head has the first head's scale": extended_defect(
        "batch-prefill",
        "mixed.ps1_heads",
        Edit(
            header="launch.hpp",
            old="return *block_scales(kargs, at, scales);",
            new="return *static_cast<const float*>(scales);",
        ),
    ),
    # vLLM gives none (CK issue 3744)
    "the scale of a Q without one is read": extended_defect(
        "batch-prefill",
        "mixed.ps1",
        Edit(
            header="launch.hpp",
            old="Traits::QScaleEnum != Scale::NO_SCALE && !kMixed",
            new="Traits::QScaleEnum != Scale::NO_SCALE",
        ),
        found_as="memory",
    ),
}
