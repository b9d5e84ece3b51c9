"""The GPU gate's statistics: published tables of U, exhaustive enumeration, and simulated runs with a known truth."""

from __future__ import annotations

import dataclasses
import itertools
import math
import random
import re
from collections import Counter
from pathlib import Path

import pytest

from ckpm.base.errors import InconclusiveError, TableError
from ckpm.reports.gates import mann_whitney
from ckpm.reports.gates.mann_whitney import cumulative, least_p_value, p_value, shift, u_statistic
from ckpm.reports.gates.statistics import ARMS, CONTEXT, MEAN, differences, judge, order, read_settings, rows
from ckpm.reports.gates.statistics import SETTINGS as STORED
from ckpm.reports.verdicts import Gate, Samples, demand

SETTINGS = read_settings()
HERE = dict.fromkeys(CONTEXT, "the same")
# two-sided critical values as every table of the Mann-Whitney test prints them: U at or below is significant
AT_5_PERCENT = {(5, 5): 2, (6, 9): 10, (7, 10): 14, (8, 8): 13, (10, 10): 23, (12, 15): 49, (15, 20): 90, (20, 20): 127}
AT_1_PERCENT = {(5, 5): 0, (8, 8): 7, (10, 10): 16, (12, 12): 27, (15, 15): 51, (20, 20): 105}
# the example of scipy.stats.mannwhitneyu's documentation, with the results printed there
MEN, WOMEN = (19, 22, 16, 29, 24), (20, 11, 17, 12)


def taken(seed: int, slower: float, noise: float, microseconds: float = 100.0) -> Samples:
    """Log-normal times; the candidate is ``slower`` times as slow."""
    rng = random.Random(seed)

    def times(factor: float) -> tuple[float, ...]:
        return tuple(microseconds * factor * rng.lognormvariate(0, noise) for _ in range(SETTINGS.rounds))

    return Samples(subject="p", baseline=times(1), candidate=times(slower), again=times(1))


def verdicts(slower: float, noise: float, runs: int = 200) -> Counter[str]:
    return Counter(judge(taken(seed, slower, noise), SETTINGS).verdict for seed in range(runs))


@pytest.mark.parametrize(
    ("level", "critical"), [(0.05, AT_5_PERCENT), (0.01, AT_1_PERCENT)], ids=["5 percent", "1 percent"]
)
def test_critical_values_are_those_of_tables(level: float, critical: dict[tuple[int, int], int]) -> None:
    for (n, m), u in critical.items():
        assert 2 * cumulative(n, m, u) <= level < 2 * cumulative(n, m, u + 1), (n, m)


def test_small_samples_are_enumerated() -> None:
    """Every split of nine distinct values into 4 and 5: the share of splits at least as extreme."""
    values = (1.0, 2.0, 4.0, 7.0, 11.0, 12.0, 15.0, 20.0, 22.0)
    splits = [(sample, [v for v in values if v not in sample]) for sample in itertools.combinations(values, 4)]
    distances = [abs(sum(a > b for a in sample for b in rest) - 10) for sample, rest in splits]
    for (sample, rest), distance in zip(splits, distances, strict=True):
        assert p_value(sample, rest) == pytest.approx(sum(d >= distance for d in distances) / len(splits))


def test_p_value_of_documented_example(monkeypatch: pytest.MonkeyPatch) -> None:
    assert u_statistic(MEN, WOMEN) == 17
    assert p_value(MEN, WOMEN) == pytest.approx(0.1111111111111111)
    monkeypatch.setattr(mann_whitney, "_EXACT_UP_TO", 0)
    assert p_value(MEN, WOMEN) == pytest.approx(0.11134688653314041)


def test_ties_are_corrected_for() -> None:
    first, second = (1, 1, 2, 3, 3, 4, 6, 6), (2, 3, 5, 5, 6, 6, 7, 8)
    pooled = sorted((*first, *second))
    rank = {v: (2 * pooled.index(v) + 1 + pooled.count(v)) / 2 for v in pooled}
    sums = [sum(rank[pooled[at]] for at in chosen) for chosen in itertools.combinations(range(16), 8)]
    distance = abs(sum(rank[v] for v in first) - 68)
    exact = sum(abs(total - 68) >= distance for total in sums) / len(sums)
    assert p_value(first, second) == pytest.approx(exact, abs=0.01)
    assert p_value((5, 5, 5), (5, 5, 5)) == 1.0


def test_samples_that_do_not_overlap_give_least_p() -> None:
    assert p_value((1, 2, 3, 4), (5, 6, 7, 8)) == least_p_value(4, 4) == pytest.approx(2 / 70)


@pytest.mark.parametrize("size", [8, 40], ids=["exact", "approximate"])
def test_interval_holds_shift_as_often_as_it_says(size: int) -> None:
    rng, held, runs = random.Random(7), 0, 200
    for _ in range(runs):
        interval = shift([rng.gauss(0, 1) for _ in range(size)], [rng.gauss(0.3, 1) for _ in range(size)], 0.95)
        held += interval.low <= 0.3 <= interval.high
    assert 0.95 - 4 * math.sqrt(0.95 * 0.05 / runs) <= held / runs


def test_too_few_samples_have_no_interval() -> None:
    assert shift((1, 2), (3, 4), 0.95) == mann_whitney.Shift(2.0, -math.inf, math.inf)
    with pytest.raises(ValueError, match="empty"):
        shift((), (1,), 0.95)


def test_library_against_itself_never_regresses() -> None:
    assert verdicts(1.0, 0.01) == {"unchanged": 200}
    assert not {"regressed", "improved"} & set(verdicts(1.0, 0.03))
    assert verdicts(1.0, 0.15) == {"inconclusive": 200}


def test_mean_of_equal_libraries_is_unchanged() -> None:
    for run in range(30):
        samples = [taken(100 * run + seed, 1.0, 0.01) for seed in range(8)]
        assert {row.verdict for row in rows(samples, HERE, HERE, SETTINGS)} == {"unchanged"}


def test_five_percent_are_found_in_one_percent_of_noise() -> None:
    assert verdicts(1.05, 0.01)["regressed"] >= 190
    assert verdicts(1 / 1.05, 0.01)["improved"] >= 190


def test_noise_makes_inconclusive_and_never_unchanged() -> None:
    assert verdicts(1.05, 0.05)["unchanged"] == 0


def test_microseconds_that_no_one_feels_are_not_regression() -> None:
    """6 % of 5 us are 0.3 microseconds."""
    assert judge(taken(1, 1.06, 0.01, microseconds=5), SETTINGS).verdict == "unchanged"
    assert judge(taken(1, 1.10, 0.01, microseconds=500), SETTINGS).verdict == "regressed"


def test_short_queued_launches_are_host_bound() -> None:
    queued = dataclasses.replace(taken(1, 1.0, 0.002, microseconds=20), queued=True)
    row = judge(queued, SETTINGS)
    assert (row.verdict, row.note.startswith("queued launches this short")) == ("host-bound", True)
    with pytest.raises(InconclusiveError, match="host-bound: 1 of 1 figures"):
        demand(Gate.of([row], HERE))
    long = dataclasses.replace(taken(1, 1.0, 0.002, microseconds=200), queued=True)
    assert judge(long, SETTINGS).verdict == "unchanged"


@pytest.mark.parametrize(
    ("slower", "noise", "remark"),
    [(1.012, 0.02, r"about (\d+) rounds would decide"), (1.0, 0.1, r"itself by .*; about (\d+) rounds would")],
    ids=["slowdown at the largest floor", "noisy baseline"],
)
def test_inconclusive_row_has_number_of_rounds_that_decides(slower: float, noise: float, remark: str) -> None:
    """Four times the rounds halve the interval."""
    notes = [judge(taken(seed, slower, noise), SETTINGS).note for seed in range(40)]
    counts = [int(match[1]) for note in notes if (match := re.search(remark, note))]
    assert counts
    assert all(SETTINGS.rounds < count <= 1000 for count in counts)


def test_drifting_baseline_decides_nothing() -> None:
    """More rounds decide nothing either."""
    times = taken(1, 1.0, 0.002)
    drifted = dataclasses.replace(times, again=tuple(1.08 * time for time in times.again))
    row = judge(drifted, SETTINGS)
    assert (row.verdict, "differs from itself" in row.note) == ("inconclusive", True)
    assert "would decide" not in row.note


def test_mean_is_of_the_rounds_that_all_problems_have() -> None:
    short, long = taken(1, 1.0, 0.001), dataclasses.replace(taken(2, 1.0, 0.001), subject="q")
    ended = dataclasses.replace(short, **{arm: getattr(short, arm)[:8] for arm in ARMS})
    *_, mean = rows([ended, long], HERE, HERE, SETTINGS)
    assert (mean.subject, mean.verdict, "8 rounds" in mean.note) == (MEAN, "unchanged", True)


def test_few_samples_decide_nothing() -> None:
    times = taken(1, 2.0, 0.001)
    few = dataclasses.replace(times, **{arm: getattr(times, arm)[:6] for arm in ARMS})
    assert judge(few, SETTINGS).verdict == "inconclusive"


def test_mean_finds_what_no_single_problem_shows() -> None:
    samples = [dataclasses.replace(taken(seed, 1.013, 0.012), subject=f"p{seed}") for seed in range(10)]
    gate_rows = rows(samples, HERE, HERE, SETTINGS)
    assert [row.subject for row in gate_rows] == [*(f"p{seed}" for seed in range(10)), MEAN]
    assert gate_rows[-1].verdict == "regressed"
    assert "regressed" not in {row.verdict for row in gate_rows[:-1]}
    assert (gate_rows[-1].candidate or 0) / (gate_rows[-1].baseline or 1) == pytest.approx(1.013, abs=0.005)


@pytest.mark.parametrize("change", [{"gpu": "another"}, {"rocm": "7.1"}, {"clock_policy": ""}, {"driver": None}])
def test_other_or_unknown_circumstances_are_not_comparable(change: dict[str, str]) -> None:
    gate = Gate.of(rows([taken(1, 1.0, 0.001)], HERE, {**HERE, **change}, SETTINGS), HERE)
    assert gate.verdict == "not comparable"
    with pytest.raises(InconclusiveError, match=next(iter(change))):
        demand(gate)


def test_nothing_known_is_not_comparable() -> None:
    assert len(differences({}, {})) == len(CONTEXT)


@pytest.mark.parametrize("time", [math.nan, 0.0, -1.0, math.inf])
def test_invalid_time_stops_gate(time: float) -> None:
    times = taken(1, 1.0, 0.01)
    broken = dataclasses.replace(times, candidate=(*times.candidate[:-1], time))
    with pytest.raises(InconclusiveError, match=r"p: candidate\[17\]: .* is not a time"):
        rows([broken], HERE, HERE, SETTINGS)


def test_run_that_ended_early_stops_gate() -> None:
    times = taken(1, 1.0, 0.01)
    with pytest.raises(InconclusiveError, match="17 times of the again, expected 8, 12, 18"):
        rows([dataclasses.replace(times, again=times.again[1:])], HERE, HERE, SETTINGS)
    with pytest.raises(InconclusiveError, match="no problem was run"):
        rows([], HERE, HERE, SETTINGS)


def test_rounds_flip_their_order() -> None:
    first = [order(number) for number in range(6)]
    assert len(set(first)) == 6
    assert all(first[at] == first[at + 1][::-1] for at in (0, 2, 4))
    assert order(6) == first[0]


def test_settings_are_checked(tmp_path: Path) -> None:
    file = tmp_path / "gpu_gate.yaml"
    file.write_text(STORED.read_text().replace("ratio: 0.01,", "ratio: 2,", 1))
    with pytest.raises(TableError, match=r"ratio: must be a number < 1"):
        read_settings(file)
