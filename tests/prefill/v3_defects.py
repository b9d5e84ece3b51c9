"""Defects of a hand-made schedule, planted in the headers of V3, and the smoke case that finds each."""

from __future__ import annotations

from collections.abc import Mapping

from tests.prefill.defects import WRONG, Defect, Edit
from tests.prefill.instead import EXTENDED, V3

_FOLDER = "ckpm_prefill_v3"
_NEVER_LOADED = "uninitialised"  # late loads: a value that is used too early is not written


def _pipeline(old: str, new: str) -> Edit:
    return Edit(folder=_FOLDER, header="pipeline.hpp", old=old, new=new)


def _stream(old: str, new: str) -> Edit:
    return Edit(folder=_FOLDER, header="page_stream.hpp", old=old, new=new)


def _found(suite: str, case: str, found_as: str, *edits: Edit, upstream: str = V3) -> Defect:
    return Defect(edits=edits, suite=suite, case=case, found_as=found_as, upstream=upstream)


WAIT_TOO_SHORT = _stream("kParts<kKBytes> + kParts<kVBytes>;", "kParts<kKBytes> + kParts<kVBytes> + 1;")

V3_DEFECTS: Mapping[str, Defect] = {
    "the wait for a page id is for one load too few": _found(
        "sanitize", "v3.ps16-full-q257k250", _NEVER_LOADED, WAIT_TOO_SHORT
    ),
    "a barrier is missing between the loads of one tile and the reads of the next": _found(
        "sanitize",
        "v3.ps16-full-q256k40",
        "race",
        _pipeline(
            "ckpm::prefill::v3::wait_for_all_but<0>();\n            barrier();",
            "ckpm::prefill::v3::wait_for_all_but<0>();",
        ),
    ),
    "page lookups of V3 are not clamped to the last token": _found(
        "page-fault",
        "v3.ps16-sglang-q33k17",
        "memory",
        _stream("static_cast<uint32_t>(clamped(tile, row_))", "static_cast<uint32_t>(tile * kTokens + row_)"),
    ),
    "a page id is used before its wait": _found(
        "sanitize",
        "v3.ps16-full-q257k250",
        _NEVER_LOADED,
        _pipeline(
            'asm volatile("s_waitcnt vmcnt(%1)"',
            'const int32_t early = Stream::settled(looked_up);\n            asm volatile("s_waitcnt vmcnt(%1)"',
        ),
        _pipeline("k_page  = Stream::settled(looked_up);", "k_page = early;"),
    ),
    "a page id is used one tile early": _found(
        "batch-prefill",
        "v3_residues.ps16-wide-q256k65to128",
        WRONG,
        _pipeline("stream.v_source(place_of(tile), v_page)", "stream.v_source(place_of(tile), k_page)"),
    ),
    # scales that differ by less than a factor of 2 hide it
    "block scales are those of the tile before": _found(
        "batch-prefill", "v3_page_scales.x100-full", WRONG, _pipeline("kGroup == 0 ? ahead : current;", "current;")
    ),
    "nothing waits for the first tile of K": _found(
        "batch-prefill",
        "v3_residues.ps16-wide-q256k1to64",
        WRONG,
        _pipeline(
            "v_source = stream.v_source(place_of(0), first_page);\n            finish();",
            "v_source = stream.v_source(place_of(0), first_page);",
        ),
    ),
    "the third tile of K overwrites the second": _found(
        "sanitize",
        "v3.ps16-full-q256k190",
        "race",
        _pipeline("stream.load(k_source, k_buffer(1 - buffer));", "stream.load(k_source, k_buffer(1));"),
    ),
    "the weights of a score that has run ahead are not made again": _found(
        "batch-prefill",
        "rises_v3.ps16-full",
        WRONG,
        _pipeline("if(__builtin_amdgcn_ballot_w64(Arithmetic::is_too_much(of_tile)) != 0)", "if(false)"),
    ),
    "the last wait of a tile lets a load fly": _found(
        "sanitize", "v3.ps16-full-q256k40", "race", _pipeline("wait_for_all_but<0>", "wait_for_all_but<1>")
    ),
    "V3's descriptor of a page reaches to the end of the pool": _found(
        "page-fault",
        "v3_freed.ps16-sglang",
        "srd_range",
        _stream(
            "static_cast<uint32_t>(live_bytes(view, tile))", "static_cast<uint32_t>(view.num_pages) * view.page_bytes"
        ),
    ),
    # O is the same: it is divided by the sum alone
    "LSE is of half the sum": _found(
        "batch-prefill",
        "v3_extended_lse_rises.ps64_causal",
        WRONG,
        _pipeline("{softmax.shift, sum}", "{softmax.shift - 1.f, sum}"),
        upstream=EXTENDED,
    ),
    "weights of 16 bits of a score that has run ahead are not made again": _found(
        "batch-prefill",
        "v3_16bits_sglang.causal",
        WRONG,
        Edit(
            folder=_FOLDER,
            header="arithmetic.hpp",
            old="return !(sum < (kBf16 ? 0x1p-12f : 65504.f));",
            new="return false;",
        ),
        upstream=EXTENDED,
    ),
    "tiles that a window's left bound cuts are taken for whole ones": _found(
        "batch-prefill",
        "v3_extended_bounds.ps64-window-l127-q300",
        WRONG,
        _pipeline("min((left_whole() + kGroup) | 1, tiles)", "1"),
        upstream=EXTENDED,
    ),
    "O is not rescaled for a sink above its scores": _found(
        "batch-prefill",
        "v3_extended_windows_rises.ps64",
        WRONG,
        Edit(folder=_FOLDER, header="kernel.hpp", old="scale *= total.add_sink(", new="total.add_sink("),
        upstream=EXTENDED,
    ),
    # the slots hold NaN, times weights of 0
    "slots of vectorized V after the last token are not zeroed": _found(
        "batch-prefill",
        "v3_extended_tiles.vectorized_ps16-full-q33",
        WRONG,
        Edit(folder=_FOLDER, header="products.hpp", old="if constexpr(kLast)", new="if constexpr(kLast && false)"),
        upstream=EXTENDED,
    ),
    "columns of vectorized K have one order for all rows": _found(
        "batch-prefill",
        "v3_extended_tiles.vectorized_ps16-full-q33",
        WRONG,
        Edit(
            folder=_FOLDER,
            header="lds_layout.hpp",
            old="return k_place(wave * kOwn, lane / 8);",
            new="return lane / 8;",
        ),
        upstream=EXTENDED,
    ),
    "all waves have their queries at one place of LDS": _found(
        "batch-prefill",
        "v3_extended_qwen.ps1",
        WRONG,
        Edit(folder=_FOLDER, header="kernel.hpp", old="wave * Queries::kLdsBytes", new="0 * Queries::kLdsBytes"),
        upstream=EXTENDED,
    ),
    "columns of vectorized V after 128 are the first ones again": _found(
        "batch-prefill",
        "v3_extended_qwen.vectorized_ps64",
        WRONG,
        Edit(folder=_FOLDER, header="products.hpp", old=" + block / 4 * kPartBytes;", new=";"),
        upstream=EXTENDED,
    ),
    "the last 64 columns of K in 16 bits are those before": _found(
        "batch-prefill",
        "latent_prefix.bf16-prefix",
        WRONG,
        Edit(folder=_FOLDER, header="products.hpp", old="i / 8 * kPartBytes +", new="(i / 8 > 0) * kPartBytes +"),
        upstream=EXTENDED,
    ),
    "all steps of Q that are in LDS are the first one": _found(
        "batch-prefill",
        "latent_prefix.bf16-causal",
        WRONG,
        Edit(folder=_FOLDER, header="products.hpp", old="(2 * (step - kOwnSteps) + index)", new="index"),
        upstream=EXTENDED,
    ),
}
