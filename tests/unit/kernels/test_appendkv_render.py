"""Append-KV in C++ words: texts without an upstream at hand."""

from __future__ import annotations

import re

from ckpm.kernels.families import fwd_appendkv
from ckpm.kernels.families.libraries import host
from ckpm.kernels.families.render import dispatch_text, plan_units
from ckpm.kernels.families.table import FAMILIES
from ckpm.kernels.families.words import features
from ckpm.matrix.dialects import dialect
from ckpm.matrix.names import parse
from ckpm.matrix.selection import Selection, select

DIALECT = "ck-2025-11"
KEYS = select(dialect(DIALECT), Selection(archs=("gfx942", "gfx950"), families=("fwd_appendkv",)))


def test_dispatch_takes_every_kernel_once_in_order() -> None:
    text = dispatch_text(KEYS, features(DIALECT))
    assert re.findall(r'    "(fmha_fwd_\w+)",\n', text) == [key.name for key in KEYS]
    returned = re.findall(r"return fmha_fwd_appendkv_<(fmha_fwd_appendkv_traits_<.*>), ck_tile::gfx9_t>\(s, a\);", text)
    assert returned == [fwd_appendkv.trait(key) for key in KEYS]
    assert len({*returned}) == len(KEYS) == 99


def test_kernel_asks_for_whole_tiles_of_what_it_does_not_pad() -> None:
    key = next(key for key in KEYS if (key.hdim_q, key.pad, key.rope, key.paged_kv) == (64, "pskd", "inter", True))
    assert set(fwd_appendkv.conditions(key)) == {
        "t.is_v_rowmajor == true",
        "a.seqlen_q % 64 == 0",
        "a.hdim_v % 64 == 0",
        "t.rope_type == rope_enum::interleaved",
        "(a.block_table_ptr != nullptr) == true",
    }


def test_symbols_tell_kernels_of_unit_apart() -> None:
    """A symbol as the compiler spells it is found by its own kernel's pattern alone."""
    symbol = (
        "_ZN7ck_tile6kentryINS_6gfx9_tELi2ENS_21FmhaFwdAppendKVKernelINS_28BlockFmhaFwdAppendKVPipelineINS_35Block"
        "FmhaFwdAppendKVPipelineProblemIDF16bDF16bDF16bLi64ELi64ELi128ELi128ELb1ELNS_19RotaryEmbeddingEnumE2ELb1ENS_25"
        "TileFmhaFwdAppendKVTraitsILb1ELb1ELb1ELb1ELin1EEEEENS_41BlockFmhaFwdAppendKVPipelineDefaultPolicyEEEEEJNSB_"
    )
    family = dialect(DIALECT).family("fwd_appendkv")
    names = []
    for unit in plan_units(KEYS):
        patterns = [FAMILIES["fwd_appendkv"].symbol(parse(family, key.name)) for key in unit.keys]
        assert len({pattern.pattern for pattern in patterns}) == len(unit.keys), unit.name
        names += [key.name for key, pattern in zip(unit.keys, patterns, strict=True) if pattern.search(symbol)]
    # element types are a unit's, and not asked for
    block = "b64x64x128x128_vr_psskddv_half_pagedkv_gfx9"
    assert names == [f"fmha_fwd_appendkv_d128_{dtype}_{block}" for dtype in ("fp16", "bf16")]


def test_no_tile_of_new_rows_is_longer_than_shortest_page() -> None:
    """A kernel writes the rows of one tile to two pages at most: the harness refuses pages shorter than its rows."""
    assert {key.tile.bsk for key in KEYS} == {64}
    assert "tile = p.seqlen_knew < 64 ? p.seqlen_knew : 64;" in host("fwd_appendkv").harness(DIALECT, features(DIALECT))
