"""The matrix holds exactly upstream's kernels, in upstream's order (test_comparison.py: a changed entry is noticed).

Expected numbers are those that upstream published or that its own codegen listed (stored lists), never our output.
"""

from __future__ import annotations

from typing import Any

import pytest

from ckpm.matrix.dialects import APIS, Dialect, archs, dialect, dialect_names
from ckpm.matrix.enumeration import enumerate_keys, enumerate_names
from ckpm.matrix.published import StoredList, emission_sha256, stored_lists
from tests.unit.enumerated import names_of, stored_names

# 768 and 384 are upstream's; from them: 3 of 4 pairs of logits and bias are left in receipts 2-4, group mode has one of
# three paddings, mid-2025 loses half of each receipt to row-major V alone.
NOVEMBER = {0: 384, 1: 384, 2: 288, 3: 288, 4: 288, 100: 256, 200: 128, 300: 384, 600: 128, 800: 0, 801: 0, 888: 384}
MID_2025 = {0: 768, 1: 768, 2: 288, 3: 288, 4: 288, 100: 256, 200: 128, 300: 768, 600: 128, 888: 768}


def names(chosen: Dialect, arch: str = "gfx950", receipt: int = 0, mask_impl: str = "simplified") -> list[str]:
    family = chosen.families["batch_prefill"]
    return enumerate_names(family, arch=arch, receipt=receipt, mask_impl=mask_impl)


def names_listed(name: str, arch: str = "gfx950", receipt: int = 0, mask_impl: str = "simplified") -> list[str]:
    """The names of a dialect of the house."""
    return names_of(name, "batch_prefill", arch, receipt, mask_impl)


PUBLISHED = [("ck-2025-11", NOVEMBER), ("ck-2025-06", MID_2025)]


@pytest.mark.parametrize(("name", "counts"), PUBLISHED)
def test_counts_of_every_receipt(name: str, counts: dict[int, int]) -> None:
    assert {receipt: len(names_listed(name, "gfx950", receipt)) for receipt in counts} == counts


@pytest.mark.parametrize("arch", ["gfx90a", "gfx942"])
@pytest.mark.parametrize(("name", "counts"), PUBLISHED)
def test_counts_of_other_gfx9_archs(name: str, counts: dict[int, int], arch: str) -> None:
    assert {receipt: len(names_listed(name, arch, receipt)) for receipt in (0, 4, 600)} == {
        receipt: counts[receipt] for receipt in (0, 4, 600)
    }


# Of bwd's other receipts, which are alike, whole lists are compared below.
RECEIPTS = {
    "fwd": (0, 1, 2, 3, 4, 100, 200, 600, 700, 800, 801, 888),
    "bwd": (2, 3, 4, 300, 400, 800, 801),
    **dict.fromkeys(("fwd_splitkv", "fwd_appendkv", "pagedkv_prefill"), (0, 1, 2, 3, 4, 100, 200, 600, 700, 800)),
}


def names_of_api(name: str, api: str, arch: str, receipt: int, masks: str = "simplified") -> list[str]:
    return [kernel_name for family in APIS[api] for kernel_name in names_of(name, family, arch, receipt, masks)]


@pytest.mark.parametrize(
    ("name", "api", "arch", "counts"),
    [
        ("ck-2025-11", "fwd", "gfx950", [3004, 4028, 1104, 1104, 528, 1848, 940, 2788, 3004, 864, 12, 108]),
        ("ck-2025-11", "fwd", "gfx1201", [1884, 1884, 624, 624, 272, 1112, 556, 1668, 1884, 0, 0, 108]),
        ("ck-2025-11", "fwd", "gfx1100", [0] * 12),
        # this version has no 700 to 888
        ("ck-2025-06", "fwd", "gfx90a", [5016, 6936, 960, 960, 416, 1664, 832, 2496, 5016, 5016, 5016, 5016]),
        ("ck-2025-11", "bwd", "gfx950", [1600, 1176, 1176, 2880, 2688, 918, 22]),
        ("ck-2025-11", "bwd", "gfx1100", [0] * 7),
        # this version has no 800 and 801
        ("ck-2025-06", "bwd", "gfx950", [1424, 1056, 1056, 4192, 1072, 7824, 7824]),
        ("ck-2025-11", "fwd_splitkv", "gfx950", [1146, 1146, 858, 1146, 138, 1146, 360, 1080, 1146, 0]),
        ("ck-2025-11", "fwd_splitkv", "gfx1201", [954, 954, 714, 954, 138, 954, 296, 888, 954, 0]),
        ("ck-2025-11", "fwd_splitkv", "gfx1100", [0] * 10),
        ("ck-2025-11", "fwd_appendkv", "gfx1201", [99, 99, 96, 99, 96, 99, 99, 99, 99, 0]),
        ("ck-2025-11", "pagedkv_prefill", "gfx942", [120, 120, 36, 36, 36, 32, 16, 48, 120, 0]),
        ("ck-2025-06", "fwd_splitkv", "gfx90a", [2091, 2283, 867, 2091, 147, 2091, 368, 1104, 2091, 2091]),
        ("ck-2025-06", "fwd_appendkv", "gfx950", [195, 195, 96, 195, 96, 195, 195, 195, 195, 195]),
        ("ck-2025-06", "pagedkv_prefill", "gfx942", [384, 384, 72, 72, 72, 128, 64, 192, 384, 384]),
    ],
)
def test_counts_of_every_receipt_of_other_apis(name: str, api: str, arch: str, counts: list[int]) -> None:
    assert [len(names_of_api(name, api, arch, receipt)) for receipt in RECEIPTS[api]] == counts


LISTS = {
    ("ck-2025-11", "fwd", "gfx950", 1, "generic"): "198a3fb78090631ac422c21b3ad4bef1e18f71366dc51c306a51ffc8d0c6e1b4",
    ("ck-2025-11", "fwd", "gfx942", 800): "f9600f01e2c6b37897110836a5c7f5812e006f715226c67fc521a668ce95ef41",
    ("ck-2025-11", "fwd", "gfx1201", 0): "571bbe191fb7f93990adea8884714e56733e62637eeca9987caa8e520434c4a7",
    ("ck-2025-06", "fwd", "gfx942", 1): "5bdfded3c1c686c78930a004dc3958eebe2e37f0679be6a36ca4cd5cbab7ab11",
    ("ck-2025-11", "bwd", "gfx950", 0): "38412d3cd0ac62abd6e14de6620f87f1d18ee1e9fea651d1925dbc5d2cd0c665",
    ("ck-2025-11", "bwd", "gfx942", 800, "generic"): "8837a6283dd18540e09702b5d301a197f8ac94cd413893514d0f34f0c1e26f71",
    ("ck-2025-06", "bwd", "gfx942", 0): "0838b02168915934da1be54f17037e86609a11a8520643b61a4adafcb909a28d",
}


@pytest.mark.parametrize("selection", LISTS)
def test_lists_in_order_of_emission(selection: Any) -> None:
    assert emission_sha256(names_of_api(*selection)) == LISTS[selection]


@pytest.mark.parametrize("api", ["fwd", "bwd"])
def test_minimal_set_of_fp32_is_empty_with_generic_masks(api: str) -> None:
    assert names_of_api("rocm-libraries-2026", api, "gfx950", 801)
    assert not names_of_api("rocm-libraries-2026", api, "gfx950", 801, "generic")


@pytest.mark.parametrize("arch", ["gfx1100", "gfx1201"])
@pytest.mark.parametrize("name", dialect_names())
def test_archs_without_kernels_give_empty_list_and_reason(name: str, arch: str) -> None:
    assert arch in archs()
    assert names(dialect(name), arch) == []
    assert "gfx9 buffer instructions" in dialect(name).families["batch_prefill"].absent


STORED = [stored for stored in stored_lists() if stored.api == "batch_prefill"]
# (API, arch, receipt, masks) of other families of the newest state: parity compares all
OTHERS = {
    ("bwd", "gfx950", 0, "generic"), ("bwd", "gfx950", 800, "simplified"), ("bwd", "gfx1100", 2, "generic"),
    ("bwd", "gfx1201", 2, "generic"), ("fwd", "gfx950", 0, "generic"), ("fwd", "gfx950", 888, "simplified"),
    ("fwd", "gfx950", 2, "simplified"), ("fwd", "gfx942", 1, "simplified"), ("fwd", "gfx1100", 1, "simplified"),
    ("fwd", "gfx1201", 200, "generic"),
    *((api, arch, 0, "generic") for api in ("fwd_splitkv", "fwd_appendkv", "pagedkv_prefill")
      for arch in ("gfx950", "gfx1100", "gfx1201")),
}  # fmt: skip
COMPARED = STORED + [
    stored
    for stored in stored_lists()
    if stored.api != "batch_prefill"
    and (
        stored.dialect == "rocm-libraries-2026-04"
        or (stored.api, stored.arch, stored.receipt, stored.mask_impl) in OTHERS
    )
]


@pytest.mark.parametrize("stored", COMPARED, ids=lambda s: f"{s.dialect}-{s.api}-{s.arch}-{s.mask_impl}-r{s.receipt}")
def test_stored_lists_name_by_name_and_in_order_of_emission(stored: StoredList) -> None:
    selection = stored.arch, stored.receipt, stored.mask_impl
    kernel_names = [name for family in stored.families for name in names_of(stored.dialect, family, *selection)]
    assert sorted(kernel_names) == list(stored_names(stored))
    assert stored.sha256_emission_order in (None, emission_sha256(kernel_names))


@pytest.mark.parametrize("mask_impl", ["simplified", "generic"])
@pytest.mark.parametrize("name", dialect_names())
def test_no_name_is_given_twice(name: str, mask_impl: str) -> None:
    kernel_names = names_listed(name, mask_impl=mask_impl)
    assert len(set(kernel_names)) == len(kernel_names) > 0


def test_every_caller_has_list_of_its_own() -> None:
    family = dialect("ck-2025-11").family("batch_prefill")
    enumerate_keys(family, arch="gfx950").clear()
    assert len(enumerate_keys(family, arch="gfx950")) == 384
