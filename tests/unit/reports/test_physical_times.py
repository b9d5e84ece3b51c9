"""The gate's verdicts on times of a physical GPU with known slowdowns (physical_times.py)."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from ckpm.reports.gates.statistics import ARMS, EffectFloor, earlier_row, judge
from ckpm.reports.verdicts import COLD, WARM, Gate, VerdictRow
from tests.unit.reports.physical_times import RULES, SETTINGS, Place, comparisons, end_early, table, verdicts

Verdicts = Mapping[Place, Counter[str]]
PAGE = Path(__file__).parents[3] / "docs" / "reference" / "gpu-gate.md"


@pytest.fixture(scope="module")
def own() -> Verdicts:
    counts = verdicts(RULES["`ckpm compare`"])
    assert sum(map(Counter.total, counts.values())) == 2280
    return counts


def test_judge_kernel_against_itself_gives_no_false_verdict(own: Verdicts) -> None:
    itself = sum((count for (_, _, level), count in own.items() if level == 0), Counter[str]())
    assert itself.total() == 720
    assert not {"regressed", "improved"} & set(itself)
    assert own["others", WARM, 0]["unchanged"] >= 298
    assert own["others", COLD, 0]["unchanged"] >= 293
    assert own["tiny", COLD, 0]["unchanged"] == 60


def test_judge_warm_slowdowns_of_1_percent_are_found(own: Verdicts) -> None:
    assert own["others", WARM, 1]["regressed"] >= 147
    assert own["others", WARM, 1]["unchanged"] == 0
    assert [own["others", WARM, level]["regressed"] for level in (2, 3, 5, 10)] == [150, 150, 120, 120]


def test_judge_cold_slowdowns_of_2_percent_are_found(own: Verdicts) -> None:
    assert own["others", COLD, 2]["regressed"] >= 145
    assert own["others", COLD, 2]["unchanged"] == 0
    assert [own["others", COLD, level]["regressed"] for level in (3, 5, 10)] == [150, 120, 120]


def test_judge_slow_short_kernel_is_never_unchanged(own: Verdicts) -> None:
    """Queued launches of 18 us are as slow as the host. Timed one by one, the same slowdowns are all found."""
    for level in (10, 20, 50):
        assert own["tiny", WARM, level]["unchanged"] == 0
        assert own["tiny", COLD, level] == {"regressed": 30}


def test_judge_of_hidden_queue_passes_slow_kernels() -> None:
    """The counter-check: with the floors of the first version, 5 slowdowns of 10 to 50 % were unchanged."""
    settings = msgspec.structs.replace(SETTINGS, warm=EffectFloor(ratio=0.02, microseconds=1.0))
    counts = verdicts(lambda samples: judge(samples, settings).verdict, queued=False)
    assert sum(counts["tiny", WARM, level]["unchanged"] for level in (10, 20, 50)) == 5


def test_judge_arms_of_one_kernel_differ_at_stated_rate() -> None:
    """All six assignments of three arms of the same kernel; early looks included, 0.24 % may differ."""
    counts = Counter(
        judge(end_early(dataclasses.replace(samples, **dict(zip(ARMS, arms, strict=True)))), SETTINGS).verdict  # type: ignore[arg-type]
        for (_, _, level), samples in comparisons()
        if level == 0
        for arms in itertools.permutations((samples.baseline, samples.candidate, samples.again))
    )
    assert counts.total() == 4320
    assert counts["regressed"] + counts["improved"] <= 0.0024 * 4320


def test_clear_cases_end_early_with_the_verdict_of_all_rounds() -> None:
    """Only verdicts that were open after 18 rounds differ, and they become true."""
    rounds, changes = 0, Counter[tuple[str, str, bool]]()
    for (_, _, level), samples in comparisons():
        part = end_early(samples)
        rounds += len(part.baseline)
        verdicts_ = judge(samples, SETTINGS).verdict, judge(part, SETTINGS).verdict
        changes[(*verdicts_, level > 0)] += verdicts_[0] != verdicts_[1]
    assert rounds <= 0.63 * 2280 * SETTINGS.rounds
    assert +changes == {("inconclusive", "regressed", True): 8}


def _process(file: str, factors: Mapping[str, float]) -> list[list[VerdictRow]]:
    """Warm rows of a process: of each repetition, those of kernels over 100 us, times their factor."""
    rows: dict[str, list[VerdictRow]] = {}
    for (group, metric, level), samples in comparisons(file=file):
        if (group, metric, level) == ("others", WARM, 0):
            row = judge(samples, SETTINGS)
            time = (row.baseline or 0) * factors.get(row.subject, factors.get("", 1.0))
            rows.setdefault(row.subject, []).append(dataclasses.replace(row, baseline=time))
    return [list(repetition) for repetition in zip(*rows.values(), strict=True)]


@pytest.mark.parametrize(
    ("factors", "verdict"),
    [
        ({}, "unchanged"),
        ({"": 1.05}, "hardware shift"),
        ({"": 1 / 1.05}, "hardware shift"),
        ({"long": 1.05}, "inconclusive"),
    ],
)
@pytest.mark.parametrize("later", ["quiet2", "disturbed"])
def test_earlier_row_names_shift_of_all_kernels(later: str, factors: Mapping[str, float], verdict: str) -> None:
    """The same kernels in another process of the same GPU; a slower clock is a factor of all."""
    pairs = itertools.product(_process("quiet1", {}), _process(later, factors))
    counts = Counter(earlier_row(rows, Gate.of(before, {}), {}, SETTINGS).verdict for before, rows in pairs)
    assert counts[verdict] >= 0.95 * counts.total()


def test_page_has_table_of_these_times() -> None:
    assert table() in PAGE.read_text()
