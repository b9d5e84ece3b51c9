"""Defects of fp8 K and V beside a Q of 16 bits, planted in our headers, and the case that finds each."""

from __future__ import annotations

from collections.abc import Mapping

from tests.prefill.defects import WRONG, Defect, Edit
from tests.prefill.instead import EXTENDED


def _found(suite: str, case: str, edit: Edit, found_as: str = WRONG) -> Defect:
    return Defect(edits=(edit,), suite=suite, case=case, found_as=found_as, upstream=EXTENDED)


MIXED_DEFECTS: Mapping[str, Defect] = {
    "the high two of four numbers are the low two": _found(
        "batch-prefill",
        "mixed.d256",
        Edit(header="cached_type.hpp", old="two<true>(bits[1])", new="two<false>(bits[1])"),
    ),
    "both chunks of a vector of K are its first": _found(
        "large-kv",
        "mixed.ps16_vectorized",
        Edit(
            header="k_loader.hpp",
            old="chunk % Chunk::kInVector * Chunk::kBytes",
            new="chunk % Chunk::kInVector * 0",
        ),
    ),
    "both chunks of a vector of V are its first": _found(
        "batch-prefill",
        "mixed.blocks_fp16",
        Edit(
            header="v_loader.hpp",
            old="chunk % Chunk::kInVector * Chunk::kBytes",
            new="chunk % Chunk::kInVector * 0",
        ),
    ),
    # tokens after the last one, NaN among them, count as words of LDS
    "unused slots are counted in numbers of 16 bits": _found(
        "page-fault",
        "mixed.blocks_fp16-q33k127",
        Edit(header="v_loader.hpp", old="in_word = 4 / sizeof(Cached);", new="in_word = 4 / sizeof(T);"),
    ),
    "every head has the first head's scale": _found(
        "batch-prefill",
        "mixed.ps1_heads",
        Edit(
            header="launch.hpp",
            old="return *block_scales(kargs, at, scales);",
            new="return *static_cast<const float*>(scales);",
        ),
    ),
    # vLLM gives none (CK issue 3744)
    "the scale of a Q without one is read": _found(
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
