"""The gate's verdicts on times of a physical GPU with known slowdowns (physical_times.py)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from ckpm.reports.gates.statistics import COLD, WARM, EffectFloor, judge
from tests.unit.reports.physical_times import RULES, SETTINGS, Place, table, verdicts

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


def test_page_has_table_of_these_times() -> None:
    assert table() in PAGE.read_text()
