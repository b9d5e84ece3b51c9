"""Every rule is used, and has its reason and upstream's source. The stored lists of names hold what rules keep out."""

from __future__ import annotations

import pytest

from ckpm.matrix.dialects import dialect, dialect_names, features, with_features
from ckpm.matrix.rule import Rule
from ckpm.matrix.rules import RULES


def test_every_rule_is_used_by_dialect() -> None:
    every_feature = with_features(features())
    families = [family for name in (*dialect_names(), every_feature) for family in dialect(name).families.values()]
    used = {rule.name for family in families for rule in family.rules}
    assert used == set(RULES)


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda rule: rule.name)
def test_every_rule_gives_reason_and_source(rule: Rule) -> None:
    assert rule.reason
    assert "\n" not in rule.reason
    assert "codegen" in rule.source or rule.source.startswith("Ours")
