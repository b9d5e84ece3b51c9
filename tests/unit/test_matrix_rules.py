"""Every rule keeps out what it should and nothing else, and says why and where upstream does the same."""

from __future__ import annotations

from typing import Any

import pytest

from matrix.dialects import dialect, dialect_names
from matrix.keys import Tile
from matrix.rules import RULES, broken

TILE = Tile(128, 128, 32, 128, 32, 128, 4, 1, 1, 4, 1, 1, 32, 32, 16, 32, 32, 16)  # kN0 is 128

CASES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [  # rule, values it lets pass, values it excludes
    ("group_mode_pads_both_seqlens", {"mode": "group", "pad": "psskddv"}, {"mode": "group", "pad": "psddv"}),
    ("group_mode_pads_both_seqlens", {"mode": "batch", "pad": "psddv"}, {"mode": "group", "pad": "psddv"}),
    ("logits_soft_cap_without_bias", {"logits": True, "bias": "no"}, {"logits": True, "bias": "alibi"}),
    ("logits_soft_cap_without_bias", {"logits": False, "bias": "bias"}, {"logits": True, "bias": "bias"}),
    ("group_mode_only", {"mode": "group"}, {"mode": "batch"}),
    ("sink_needs_mask", {"sink": True, "mask": "causal"}, {"sink": True, "mask": "no"}),
    ("sink_needs_mask", {"sink": False, "mask": "no"}, {"sink": True, "mask": "no"}),
    ("fp8_needs_qscale", {"dtype": "fp8bf16", "qscale": "pertensor"}, {"dtype": "fp8bf16", "qscale": "no"}),
    ("qscale_needs_fp8", {"dtype": "bf16", "qscale": "no"}, {"dtype": "bf16", "qscale": "kv_blockscale"}),
    *[
        (
            "fp8_is_inference_only",
            {"dtype": "bf16", "bias": "no", "lse": False, "dropout": False, **feature},
            {"dtype": "fp8bf16", "bias": "no", "lse": False, "dropout": False, **feature},
        )
        for feature in ({"bias": "alibi"}, {"lse": True}, {"dropout": True})
    ],
    ("page_size_1_is_linear", {"page_size": 1, "kv_layout": "linear"}, {"page_size": 1, "kv_layout": "vectorized"}),
    (
        "page_size_1_is_linear",
        {"page_size": 16, "kv_layout": "vectorized"},
        {"page_size": 1, "kv_layout": "vectorized"},
    ),
    (
        "kv_blockscale_within_page",
        {"qscale": "kv_blockscale", "page_size": 128, "tile": TILE},
        {"qscale": "kv_blockscale", "page_size": 127, "tile": TILE},
    ),
    (
        "kv_blockscale_within_page",
        {"qscale": "pertensor", "page_size": 16, "tile": TILE},
        {"qscale": "kv_blockscale", "page_size": 16, "tile": TILE},
    ),
    (
        "gload_only_for_small_pages",
        {"load": "gload", "page_size": 127, "tile": TILE},
        {"load": "gload", "page_size": 128, "tile": TILE},
    ),
    (
        "gload_only_for_small_pages",
        {"load": "bload", "page_size": 1024, "tile": TILE},
        {"load": "gload", "page_size": 1024, "tile": TILE},
    ),
]


@pytest.mark.parametrize(("name", "accepted", "refused"), CASES)
def test_a_rule_accepts_and_refuses(name: str, accepted: dict[str, Any], refused: dict[str, Any]) -> None:
    rule = RULES[name]
    assert set(accepted) == set(refused) == set(rule.fields)
    assert broken((rule,), accepted) == []
    assert broken((rule,), refused) == [rule]


def test_every_rule_is_tested_and_used_by_a_dialect() -> None:
    assert {name for name, _, _ in CASES} == set(RULES)
    used = {rule.name for name in dialect_names() for rule in dialect(name).families["batch_prefill"].rules}
    assert used == set(RULES)


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda rule: rule.name)
def test_every_rule_gives_reason_and_source(rule) -> None:
    assert rule.reason
    assert "\n" not in rule.reason
    assert "codegen" in rule.source
