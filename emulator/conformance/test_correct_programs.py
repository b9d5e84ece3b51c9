"""Correct programs pass all checks, as stored; a program with a fault does not."""

from __future__ import annotations

from argparse import Namespace

import pytest

from conformance import checks
from conformance.stored import OUTCOMES, PASSED, WRONG, differences, read
from programs.program_builder import ARCHS, sample


def options(arch: str, checks: str) -> Namespace:
    return Namespace(arch=arch, checks=checks, only=None)


@pytest.mark.parametrize("chosen", ["", "all"])
@pytest.mark.parametrize("arch", ARCHS)
def test_correct_programs_pass_and_are_refused_by_no_check(arch: str, chosen: str) -> None:
    seen = dict(checks.outcomes(options(arch, chosen)))
    assert {name: detail for name, (outcome, detail) in seen.items() if outcome != PASSED} == {}
    stored = read(OUTCOMES / "checks.yaml").archs[arch]
    assert stored.checked is not None
    assert differences(stored.checked if chosen else stored, seen) == []


def test_program_with_fault_is_refused() -> None:
    outcome, detail = checks.outcome(sample("failures"), ["write"], options("gfx950", ""))
    assert outcome == WRONG
    assert "hipErrorIllegalAddress" in detail
