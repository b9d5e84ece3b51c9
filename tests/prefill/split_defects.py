"""Defects of splits over the keys, planted in the headers, and the smoke case that finds each."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from tests.prefill.defects import Defect, Edit, extended_defect


def _split(old: str, new: str) -> Edit:
    return Edit(header="split.hpp", old=old, new=new)


def _bounds(old: str, new: str) -> Edit:
    return Edit(header="score_bounds.hpp", old=old, new=new)


_found = functools.partial(extended_defect, "batch-prefill")

SPLIT_DEFECTS: Mapping[str, Defect] = {
    "the combine ignores the LSE of the last split": _found(
        "split.one", _split("split < splits ? kargs.lse_acc", "split < splits - 1 ? kargs.lse_acc")
    ),
    "a split ends one key early": _found(
        "split.one", _split("min(begin + keys, at.seqlen_k)", "min(begin + keys - 1, at.seqlen_k)")
    ),
    "splits after the first lack their last tile": _found(
        "split.edges",
        _bounds(
            "const index_t begin = bounds.begin / kN0;",
            "const index_t begin = bounds.begin / kN0 + (bounds.begin > 0);",
        ),
    ),
    "a long sequence has more ranges than the launch": _found(
        "split.longer", _split("max(kargs.split_keys, even)", "max(kargs.split_keys, even - kStep)")
    ),
    # 512 columns are eight of a lane
    "the combine has two columns of a lane": _found(
        "split_dims.d512-decode",
        _split(
            "for(index_t i = 0; i < kColumns; ++i)\n                o[i]",
            "for(index_t i = 0; i < 2; ++i)\n                o[i]",
        ),
    ),
    "a split leaves out V's scale": _found(
        "split_dims.any_page_fp8-decode", _split("ckpm::prefill::v_descale<Traits, kMixed>(kargs, at)", "1.f")
    ),
    "every split has the sink": _found(
        "split.sink_logits", _split("sinks == nullptr || begin > 0", "sinks == nullptr")
    ),
    "a mask takes rows for queries": _found("split.verify", _bounds("return heads.div(row);", "return row;")),
    "the combine reads splits past the last": _found(
        "split.one", _split("o + min(first + i, splits - 1) * step", "o + (first + i) * step"), found_as="memory"
    ),
}
