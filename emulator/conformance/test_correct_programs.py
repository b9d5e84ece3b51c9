"""Correct programs pass all checks, as stored; a program with a fault does not."""

from __future__ import annotations

import pytest

from conformance import checks
from conformance.stored import OUTCOMES, PASSED, WRONG, differences, read
from programs.program_builder import ARCHS, sample


@pytest.mark.parametrize("arch", ARCHS)
def test_correct_programs_are_refused_by_no_check(arch: str) -> None:
    seen = dict(checks.outcomes(arch))
    assert {name: detail for name, (outcome, detail) in seen.items() if outcome != PASSED} == {}
    assert differences(read(OUTCOMES / "checks.yaml").archs[arch], seen) == []


def test_program_with_fault_is_refused() -> None:
    outcome, detail = checks.outcome(sample("failures"), ["write"], "gfx950")
    assert outcome == WRONG
    assert "hipErrorIllegalAddress" in detail
