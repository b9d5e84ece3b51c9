"""Defects of head dims 512 and 576/512, planted in our headers, and the case that finds each."""

from __future__ import annotations

from collections.abc import Mapping

from tests.prefill.defects import Defect, Edit, extended_defect

LARGE_HEAD_DEFECTS: Mapping[str, Defect] = {
    # of 576 columns the last 64, which carry the positions
    "the last of an odd number of K's stages is not multiplied": extended_defect(
        "batch-prefill",
        "large_heads.latent",
        Edit(
            header="pipeline.hpp",
            old="if constexpr(stage < KLoader::kStages)\n                    multiply_k",
            new="if constexpr(stage < KLoader::kStages / 2 * 2)\n                    multiply_k",
        ),
    ),
    # as if V had a pool of its own
    "a row of V has the columns of V alone": extended_defect(
        "batch-prefill",
        "large_heads.latent_pages",
        Edit(header="launch.hpp", old="kargs.stride_v,", new="kargs.hdim_v,"),
    ),
    "columns of V past the head dim are read": extended_defect(
        "page-fault",
        "large_heads.d264-q33k1",
        Edit(header="v_loader.hpp", old="ck_tile::min(column_, view_.row_bytes / Chunk::kBytes - 1)", new="column_"),
        found_as="memory",
    ),
}
