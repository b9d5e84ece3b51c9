"""Names and receipts of the families that read a KV cache: split-KV and its combine, append-KV, paged-KV."""

from __future__ import annotations

import pytest

from ckpm.matrix.dialects import dialect
from ckpm.matrix.explain import why
from ckpm.matrix.names import parse
from ckpm.matrix.selection import Selection
from tests.unit.enumerated import keys_of


def test_parse_of_append_kv_fills_omitted_fields() -> None:
    """Append-KV writes neither 'no rope' nor 'not paged'."""
    family = dialect("ck-2025-11").families["fwd_appendkv"]
    values = parse(family, "fmha_fwd_appendkv_d64_bf16_b64x64x64x64_vr_psk_gfx12")
    assert (values["rope"], values["paged_kv"], values["pad"]) == ("no", False, "psk")
    assert (values["tile"].bs, values["tile"].bsk, values["tile"].bd, values["tile"].bdv) == (64, 64, 64, 64)


def test_tile_of_16_rows_is_for_short_queries_and_splits_n() -> None:
    small = [key for key in keys_of("rocm-libraries-2026", "fwd_splitkv", "gfx1201") if key.tile.bm0 == 16]
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
