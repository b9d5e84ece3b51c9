"""Step detection: figures without noise step wherever they change; noise alone does not."""

from __future__ import annotations

import random

from ckpm.reports.gates.history import Step, noise_of, steps


def test_exact_figures_step_where_they_change() -> None:
    assert steps([], 0) == steps([5.0], 0) == steps([7.0] * 9, 0) == ()
    assert steps([7, 7, 8, 8, 8, 6], 0) == (Step(at=2, before=7, after=8), Step(at=5, before=8, after=6))


def test_steps_finds_5_percent_in_noise_of_1_percent() -> None:
    found, alarms = 0, 0
    for seed in range(50):
        chance = random.Random(seed)
        noise = [chance.gauss(100, 1) for _ in range(40)]
        alarms += bool(steps(noise, noise_of(noise)))
        slower = [value * (1.05 if at >= 20 else 1) for at, value in enumerate(noise)]
        found += [abs(step.at - 20) <= 1 for step in steps(slower, noise_of(slower))] == [True]
    assert alarms <= 2
    assert found >= 45


def test_one_outlier_is_not_step() -> None:
    chance = random.Random(1)
    values = [chance.gauss(100, 1) for _ in range(30)]
    values[12] = 108
    assert steps(values, noise_of(values)) == ()
