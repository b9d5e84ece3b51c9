"""The families that read a KV cache (split-KV and its combine, append-KV, paged-KV) are upstream's, in its order.

Expected numbers and hashes are those of lists that upstream's own codegen wrote, never of our output.
"""

import dataclasses
import functools

import pytest

from ckpm.matrix.dialects import dialect
from ckpm.matrix.explain import receipts_with, why
from ckpm.matrix.keys import Key
from ckpm.matrix.names import parse
from ckpm.matrix.selection import Selection
from tests.unit.enumerated import keys_of

SPLITKV = ("fwd_splitkv_combine", "fwd_splitkv")  # upstream's fwd_splitkv lists both, in this order
APPENDKV = ("fwd_appendkv",)
PAGEDKV = ("fwd_pagedkv",)
RECEIPTS = (0, 1, 2, 3, 4, 100, 200, 600, 700, 800)


@functools.cache
def keys(name: str, families: tuple[str, ...], arch: str, receipt: int = 0, masks: str = "simplified") -> list[Key]:
    found = [keys_of(name, family, arch, receipt, masks) for family in families]
    return [key for some in found for key in some]


@pytest.mark.parametrize(
    ("name", "families", "arch", "counts"),
    [
        ("rocm-libraries-2026", SPLITKV, "gfx950", [2106, 2106, 618, 2106, 138, 2106, 680, 2040, 138, 0]),
        ("rocm-libraries-2026", SPLITKV, "gfx1100", [2186, 2186, 650, 2186, 138, 2186, 808, 2168, 138, 0]),
        ("rocm-libraries-2026", SPLITKV, "gfx1201", [2234, 2234, 650, 2234, 138, 2234, 808, 2168, 138, 0]),
        ("rocm-libraries-2026", APPENDKV, "gfx950", [99, 99, 96, 99, 96, 99, 99, 99, 99, 0]),
        ("rocm-libraries-2026", APPENDKV, "gfx1100", [96, 96, 96, 96, 96, 96, 96, 96, 96, 0]),
        ("rocm-libraries-2026", PAGEDKV, "gfx950", [168, 168, 36, 36, 36, 64, 32, 96, 0, 0]),
        ("rocm-libraries-2026", PAGEDKV, "gfx1100", [96, 96, 36, 36, 36, 64, 32, 96, 0, 0]),
        ("ck-2025-11", SPLITKV, "gfx950", [1146, 1146, 858, 1146, 138, 1146, 360, 1080, 1146, 0]),
        ("ck-2025-11", SPLITKV, "gfx1201", [954, 954, 714, 954, 138, 954, 296, 888, 954, 0]),
        ("ck-2025-11", SPLITKV, "gfx1100", [0] * 10),
        ("ck-2025-11", APPENDKV, "gfx1201", [99, 99, 96, 99, 96, 99, 99, 99, 99, 0]),
        ("ck-2025-11", PAGEDKV, "gfx942", [120, 120, 36, 36, 36, 32, 16, 48, 120, 0]),
        ("ck-2025-06", SPLITKV, "gfx90a", [2091, 2283, 867, 2091, 147, 2091, 368, 1104, 2091, 2091]),
        ("ck-2025-06", APPENDKV, "gfx950", [195, 195, 96, 195, 96, 195, 195, 195, 195, 195]),
        ("ck-2025-06", PAGEDKV, "gfx942", [384, 384, 72, 72, 72, 128, 64, 192, 384, 384]),
    ],
)
def test_counts_of_every_receipt(name: str, families: tuple[str, ...], arch: str, counts: list[int]) -> None:
    assert [len(keys(name, families, arch, receipt)) for receipt in RECEIPTS] == counts


def test_words_that_name_leaves_out() -> None:
    """Append-KV writes neither 'no rope' nor 'not paged'."""
    family = dialect("ck-2025-11").families["fwd_appendkv"]
    values = parse(family, "fmha_fwd_appendkv_d64_bf16_b64x64x64x64_vr_psk_gfx12")
    assert (values["rope"], values["paged_kv"], values["pad"]) == ("no", False, "psk")
    assert (values["tile"].bs, values["tile"].bsk, values["tile"].bd, values["tile"].bdv) == (64, 64, 64, 64)


def test_tile_of_16_rows_is_for_short_queries_and_splits_n() -> None:
    small = [key for key in keys("rocm-libraries-2026", SPLITKV, "gfx1201") if key.tile.bm0 == 16]
    assert {(key.pipeline, key.tile.when) for key in small} == {("qr_nwarp_sshuffle", "seqlen_q_fits")}


# d96 with the plain pipeline: mid-2025 builds it for "all head dims" alone
RECEIPT_1 = (
    "fmha_fwd_splitkv_d96_fp16_batch_b64x128x32x128x32x96_r4x1x1_r4x1x1_w16x16x16_w16x16x16"
    "_qr_vr_psskddv_logits_nbias_nmask_lse_nsquant_pagedkv"
)


@pytest.mark.parametrize(
    ("receipt", "expected"),
    [
        (2, ["receipt 2 (FlashAttention forward) doesn't build this pipeline for it; receipts that do: 1"]),
        (1, []),
        (4, ["receipt 4 (PyTorch) has no fwd_splitkv kernel"]),  # upstream's mistyped condition
    ],
)
def test_why_names_receipt_that_builds_pipeline(receipt: int, expected: list[str]) -> None:
    chosen = dialect("ck-2025-06")
    selection = Selection(archs=("gfx942",), families=("fwd_splitkv",), receipt=receipt)
    assert [reason.text for reason in why(chosen, selection, RECEIPT_1).reasons] == expected


def test_key_knows_its_receipts() -> None:
    (key,) = (key for key in keys("ck-2025-06", ("fwd_splitkv",), "gfx942", 1) if key.name == RECEIPT_1)
    family = dialect("ck-2025-06").families["fwd_splitkv"]
    assert receipts_with(family, key) == (1,)
    assert receipts_with(family, dataclasses.replace(key, pipeline="qr_async")) == (
        0, 1, 2, 3, 100, 300, 400, 600, 700, 800, 801, 888,
    )  # fmt: skip
