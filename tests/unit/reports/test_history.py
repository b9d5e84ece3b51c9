"""Steps of a history: one wherever the figure changes."""

from __future__ import annotations

from ckpm.reports.gates.history import Step, steps


def test_steps_of_exact_figures_are_their_changes() -> None:
    assert steps([]) == steps([5.0]) == steps([7.0] * 9) == ()
    assert steps([7, 7, 8, 8, 8, 6]) == (Step(at=2, before=7, after=8), Step(at=5, before=8, after=6))
