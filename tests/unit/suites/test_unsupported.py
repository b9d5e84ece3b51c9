"""The line about unsupported cases has every case once, by what kernels lack, and who serves most of them."""

from __future__ import annotations

import re
from typing import Any

import pytest

from ckpm.matrix.dialects import dialect
from ckpm.matrix.problems.case import SuiteCase
from ckpm.matrix.selection import Selection, select
from ckpm.suites.unsupported import unsupported_line
from tests.unit import manifests


def line(*problems: dict[str, Any]) -> str:
    """The line about problems of bf16 with pages of one token, unless their fields say otherwise, for aiter's smoke."""
    keys = select(dialect("ck-2025-11"), Selection(archs=("gfx950",), tier="smoke"))
    manifest = manifests.record(*(key.name for key in keys))
    cases = [
        SuiteCase(name=f"batch-prefill/x.{at}", suite="batch-prefill", tier="smoke", group="x", **fields)
        for at, fields in enumerate(problems)
    ]
    return unsupported_line(cases, manifest, "gfx950")


def test_reasons_are_counted_and_best_upstream_is_named() -> None:
    """A library of aiter's smoke tier: bf16 alone has no soft cap without LSE, and no pages."""
    paged = [{"page_size": size, "kv_layout": "linear", "tile_rows": 128} for size in (16, 16, 1024)]
    fp8 = {"dtype": "fp8bf16", "qscale": "pertensor", "page_size": 16, "tile_rows": 128}
    text = line(*paged, fp8, {"logits_soft_cap": 30.0, "lse": False})
    assert text.startswith("pages of 16 and 1024 (3), fp8bf16 (1), ")
    assert re.search(r"; --upstream ckpm serves \d of the 5$", text)


def test_full_tier_of_own_upstream_is_named_if_it_serves_most() -> None:
    """A bias without a mask and LSE is in no upstream's smoke tier."""
    text = line({"dtype": "fp16", "bias": "bias", "mask": "no"}, {"bias": "alibi", "mask": "no", "lse": True})
    assert text.endswith("; --upstream aiter --tier full serves 2 of the 2")


@pytest.mark.parametrize("count", [4, 5, 9])
def test_many_values_are_cut(count: int) -> None:
    sizes = [{"page_size": 16 * (at + 1)} for at in range(count)]
    shown = "16, 32, 48 and 64" if count == 4 else "16, 32, 48 and others"
    assert line(*sizes).startswith(f"pages of {shown} ({count}); --upstream ")
