"""Ranges of the mean error of O: a case passes within its library's range, and is wrong outside it."""

from __future__ import annotations

from typing import Any

import pytest

from ckpm.kernels.code.bf16 import TRUNCATING
from ckpm.matrix.dialects import archs, upstreams
from ckpm.matrix.problems.case import CHOICES
from ckpm.suites.rounding import _ranges, check_rounding
from tests.unit import manifests
from tests.unit.attention.fakes import make_case

TRUNCATED_O, TRUNCATED_O_AND_P = -0.5, -1.0  # half a step each
TO_NEAREST = ("compiler", "standard", "standard_asm", "rta_asm")  # in CK's words


@pytest.mark.parametrize(
    ("upstream", "arch", "dtype", "bf16", "shift", "outcome"),
    [
        ("aiter", "gfx950", "bf16", "compiler", 0.02, "passed"),
        ("aiter", "gfx950", "bf16", "compiler", TRUNCATED_O, "wrong"),
        ("aiter", "gfx950", "bf16", "truncate", TRUNCATED_O_AND_P, "passed"),
        ("ckpm", "gfx942", "bf16", "compiler", -TRUNCATED_O, "wrong"),  # away from 0
        ("aiter", "gfx942", "fp16", "compiler", TRUNCATED_O, "passed"),  # v_cvt_pkrtz
        ("flash-attn", "gfx950", "bf16", "truncate", TRUNCATED_O_AND_P, "passed"),
        ("flash-attn", "gfx950", "bf16", "standard_asm", TRUNCATED_O, "wrong"),
        ("aiter", "gfx950", "fp8bf16", "compiler", 5.0, "passed"),
        ("aiter", "gfx950", "bf16", "", TRUNCATED_O, "passed"),  # a manifest of an earlier version
        ("checkout", "gfx950", "bf16", "compiler", TRUNCATED_O, "passed"),  # nothing is known of how its kernels round
        ("ckpm-extended", "gfx950", "fp16kvfp8", "compiler", 2.6, "passed"),  # V is spread widely
    ],
)
def test_case_outside_range_of_its_library_is_wrong(
    upstream: str, arch: str, dtype: str, bf16: str, shift: float, outcome: str
) -> None:
    case = make_case(dtype=dtype, qscale="pertensor" if "fp8" in dtype else "no")
    reply: dict[str, Any] = {"outcome": "passed", "message": "", "mean_shift": shift}
    checked_reply = check_rounding(reply, case, manifests.record("k", upstream=upstream, bf16=bf16), arch)
    assert checked_reply["outcome"] == outcome
    assert (checked_reply is reply) == (outcome == "passed")


def test_failed_case_and_case_of_few_elements_stay_as_they_are() -> None:
    for reply in (
        {"outcome": "fault", "mean_shift": 9.0},
        {"outcome": "passed", "mean_shift": None},
        {"outcome": "passed"},
    ):
        assert check_rounding(reply, make_case(), manifests.record("k"), "gfx950") is reply


def test_ranges_name_upstreams_archs_and_conversions_once() -> None:
    places = [
        (up, arch, row.dtype, bf16)
        for row in _ranges()
        for up in row.upstreams
        for arch in row.archs
        for bf16 in row.bf16 or ("any",)
    ]
    assert len(places) == len(set(places))
    assert {up for up, *_ in places} == set(upstreams())
    assert {arch for _, arch, *_ in places} <= set(archs())
    assert {row.dtype for row in _ranges()} <= set(CHOICES["dtype"])
    assert {bf16 for *_, dtype, bf16 in places if dtype == "bf16"} == {*TRUNCATING, *TO_NEAREST}
    assert all(row.mean[0] < 0 < row.mean[1] for row in _ranges())
