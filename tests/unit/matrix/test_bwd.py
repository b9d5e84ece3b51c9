"""The three backward families are upstream's, one list after the other in upstream's order.

Expected numbers and hashes are those of lists that upstream's own codegen wrote, never of our output.
"""

import functools

import pytest

from ckpm.base.errors import NameSyntaxError
from ckpm.matrix.dialects import dialect
from ckpm.matrix.explain import receipts_with, why
from ckpm.matrix.keys import Key
from ckpm.matrix.names import make_key, parse
from ckpm.matrix.published import emission_sha256
from ckpm.matrix.selection import Selection
from tests.unit.enumerated import keys_of

FAMILIES = ("bwd_dot_do_o", "bwd_dq_dk_dv", "bwd_convert_dq")  # upstream's bwd lists them in this order
RECEIPTS = (2, 3, 4, 300, 400, 800, 801)  # of the rest, which are alike, whole lists are compared below


@functools.cache
def keys(name: str, arch: str, receipt: int = 0, masks: str = "simplified") -> list[Key]:
    found = [keys_of(name, family, arch, receipt, masks) for family in FAMILIES]
    return [key for some in found for key in some]


@pytest.mark.parametrize(
    ("name", "arch", "counts"),
    [
        ("rocm-libraries-2026", "gfx90a", [1140, 840, 840, 2360, 2300, 918, 22]),
        ("rocm-libraries-2026", "gfx950", [1588, 1176, 1176, 2872, 2684, 918, 22]),
        ("rocm-libraries-2026", "gfx1100", [912, 672, 672, 1888, 1840, 0, 0]),
        ("ck-2025-11", "gfx950", [1600, 1176, 1176, 2880, 2688, 918, 22]),
        ("ck-2025-11", "gfx1100", [0] * 7),
        # this version has no 800 and 801
        ("ck-2025-06", "gfx950", [1424, 1056, 1056, 4192, 1072, 7824, 7824]),
    ],
)
def test_counts_of_every_receipt(name: str, arch: str, counts: list[int]) -> None:
    assert [len(keys(name, arch, receipt)) for receipt in RECEIPTS] == counts


@pytest.mark.parametrize(
    ("name", "arch", "receipt", "masks", "digest"),
    [
        ("ck-2025-11", "gfx950", 0, "simplified",
         "38412d3cd0ac62abd6e14de6620f87f1d18ee1e9fea651d1925dbc5d2cd0c665"),
        ("ck-2025-11", "gfx942", 800, "generic",
         "8837a6283dd18540e09702b5d301a197f8ac94cd413893514d0f34f0c1e26f71"),
        ("ck-2025-06", "gfx942", 0, "simplified",
         "0838b02168915934da1be54f17037e86609a11a8520643b61a4adafcb909a28d"),
    ],
)  # fmt: skip
def test_lists_in_order_of_emission(name: str, arch: str, receipt: int, masks: str, digest: str) -> None:
    assert emission_sha256([key.name for key in keys(name, arch, receipt, masks)]) == digest


def test_minimal_set_of_fp32_is_empty_with_generic_masks() -> None:
    assert keys("rocm-libraries-2026", "gfx950", 801, "generic") == []


NEWEST = "rocm-libraries-2026"
SHORT_Q = (
    "fmha_bwd_d64_bf16_batch_b32x16x64x32x64x32x16x64x64_r1x1x1_r1x1x1_r1x1x1_w16x16x32_w16x16x16_o2_maxq32"
    "_pd8dv8_bias_ndbias_nmask_dropout_wg16_storerandval_ndeterministic_trload_gfx950"
)


def test_what_name_says() -> None:
    family = dialect(NEWEST).families["bwd_dq_dk_dv"]
    key = make_key(family, parse(family, SHORT_Q), SHORT_Q)
    assert (key.dpad, key.dvpad, key.pad, key.arch_trait) == (8, 8, "pd8dv8", "gfx950")
    assert (key.dbias, key.trload, key.deterministic) == (False, True, False)
    assert (key.dropout, key.dropout_impl) == (True, "wg16_storerandval")
    tile = key.tile
    assert (tile.bm0, tile.bn0, tile.bk4, tile.bhdq, tile.rm2, tile.wk1) == (32, 16, 16, 64, 1, 16)
    assert (tile.max_seq_q, tile.occupancy, tile.when) == (32, 2, "short_q")


def test_names_have_pipelines_occupancy_in_backward_only() -> None:
    name = next(key.name for key in keys(NEWEST, "gfx1201") if "_o-1_" in key.name)
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
def test_why(name: str, receipt: int, arch: str, expected: list[tuple[str, str]]) -> None:
    selection = Selection(archs=(arch,), families=("bwd_dq_dk_dv",), receipt=receipt)
    reasons = why(dialect(NEWEST), selection, name).reasons
    assert [reason.kind for reason in reasons] == [kind for kind, _ in expected]
    assert all(reason.text.endswith(text) for reason, (_, text) in zip(reasons, expected, strict=True))


def test_key_knows_receipts_that_rules_leave_it() -> None:
    family = dialect(NEWEST).families["bwd_dq_dk_dv"]
    fp32 = next(key for key in keys(NEWEST, "gfx950", 801) if key.family == family.name)
    assert receipts_with(family, fp32) == (800, 801)
    selection = Selection(archs=("gfx950",), families=(family.name,))
    assert [r.name for r in why(dialect(NEWEST), selection, fp32.name).reasons] == ["fp32_has_receipts_of_its_own"]
    (uneven, *_) = (key for key in keys(NEWEST, "gfx950") if key.pad == "pdv8" and not key.dropout)
    assert receipts_with(family, uneven) == (0, 1, 100, 200, 300, 600, 700, 888)
