"""Names of the three backward families are read as upstream means them, and their receipts are known."""

from __future__ import annotations

import pytest

from ckpm.base.errors import NameSyntaxError
from ckpm.matrix.dialects import dialect
from ckpm.matrix.explain import receipts_with, why
from ckpm.matrix.names import make_key, parse
from ckpm.matrix.selection import Selection
from tests.unit.enumerated import keys_of

NEWEST = "rocm-libraries-2026"
SHORT_Q = (
    "fmha_bwd_d64_bf16_batch_b32x16x64x32x64x32x16x64x64_r1x1x1_r1x1x1_r1x1x1_w16x16x32_w16x16x16_o2_maxq32"
    "_pd8dv8_bias_ndbias_nmask_dropout_wg16_storerandval_ndeterministic_trload_gfx950"
)


def test_parse_of_backward_name_has_its_fields() -> None:
    family = dialect(NEWEST).families["bwd_dq_dk_dv"]
    key = make_key(family, parse(family, SHORT_Q), SHORT_Q)
    assert (key.dpad, key.dvpad, key.pad, key.arch_trait) == (8, 8, "pd8dv8", "gfx950")
    assert (key.dbias, key.trload, key.deterministic) == (False, True, False)
    assert (key.dropout, key.dropout_impl) == (True, "wg16_storerandval")
    tile = key.tile
    assert (tile.bm0, tile.bn0, tile.bk4, tile.bhdq, tile.rm2, tile.wk1) == (32, 16, 16, 64, 1, 16)
    assert (tile.max_seq_q, tile.occupancy, tile.when) == (32, 2, "short_q")


def test_names_have_pipelines_occupancy_in_backward_only() -> None:
    name = next(key.name for key in keys_of(NEWEST, "bwd_dq_dk_dv", "gfx1201") if "_o-1_" in key.name)
    assert parse(dialect(NEWEST).families["bwd_dq_dk_dv"], name)["tile"].occupancy == -1
    prefill = dialect(NEWEST).families["batch_prefill"]
    name = keys_of(NEWEST, "batch_prefill")[0].name
    with pytest.raises(NameSyntaxError):
        parse(prefill, name.replace("_qr_async", "_o-1_qr_async"))


@pytest.mark.parametrize(
    ("name", "receipt", "arch", "expected"),
    [
        (SHORT_Q, 0, "gfx950", []),
        (SHORT_Q.replace("_trload", "_ntrload"), 0, "gfx950", [("tile", "is only for trload true")]),
        (SHORT_Q, 0, "gfx942", [("arch", "it is built for gfx950; gfx942 has kernels of its own")]),
        (
            SHORT_Q.replace("_pd8dv8", "_pd1").replace("_trload", "_ntrload"),
            4,
            "gfx950",
            [("tile", "is only for trload true"), ("receipt", "receipt 4 (PyTorch) only has dropout_impl no, wg16")],
        ),
    ],
)
def test_why_names_tile_arch_and_receipt(name: str, receipt: int, arch: str, expected: list[tuple[str, str]]) -> None:
    selection = Selection(archs=(arch,), families=("bwd_dq_dk_dv",), receipt=receipt)
    reasons = why(dialect(NEWEST), selection, name).reasons
    assert [reason.kind for reason in reasons] == [kind for kind, _ in expected]
    assert all(reason.text.endswith(text) for reason, (_, text) in zip(reasons, expected, strict=True))


def test_key_knows_receipts_that_rules_leave_it() -> None:
    family = dialect(NEWEST).families["bwd_dq_dk_dv"]
    fp32 = keys_of(NEWEST, family.name, "gfx950", 801)[0]
    assert receipts_with(family, fp32) == (800, 801)
    selection = Selection(archs=("gfx950",), families=(family.name,))
    assert [r.name for r in why(dialect(NEWEST), selection, fp32.name).reasons] == ["fp32_has_receipts_of_its_own"]
    (uneven, *_) = (key for key in keys_of(NEWEST, family.name) if key.pad == "pdv8" and not key.dropout)
    assert receipts_with(family, uneven) == (0, 1, 100, 200, 300, 600, 700, 888)
