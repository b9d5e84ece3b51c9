"""The plan on paper: a schedule keeps the bounds that hold for any list scheduling, costs are those of the table, and
what it says of builds that were measured is near what was measured.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpm.base.errors import TableError, UsageError
from ckpm.cluster.costs import TABLE, read_costs
from ckpm.cluster.schedule import Work, simulate
from ckpm.kernels import cli

FINAL, NETWORK = 3.0, 1e6
UNITS = st.lists(st.builds(Work, st.floats(0.5, 100), st.integers(0, 50_000_000)), min_size=1, max_size=40)
SLACK = 1e-6


def shortest(seconds: list[float], slots: int) -> float:
    """The optimum, by trying every assignment."""
    choices = itertools.product(range(slots), repeat=len(seconds))
    return min(
        max(sum(s for s, at in zip(seconds, choice, strict=True) if at == slot) for slot in range(slots))
        for choice in choices
    )


@given(UNITS, st.integers(1, 60))
def test_no_schedule_is_shorter_than_its_work_and_none_longer_than_grahams_bound(units: list[Work], slots: int) -> None:
    done = simulate(units, slots=slots, network=NETWORK, final=FINAL)
    total, longest = sum(unit.seconds for unit in units), max(unit.seconds for unit in units)
    assert done.compiled >= max(total / slots, longest) - SLACK
    assert done.compiled <= total / slots + longest * (1 - 1 / slots) + SLACK  # Graham 1966
    assert done.finished >= done.compiled + FINAL
    assert done.gathered >= sum(unit.bytes for unit in units) / NETWORK - SLACK
    assert done.gathered <= done.compiled + sum(unit.bytes for unit in units) / NETWORK + SLACK
    assert done.finished >= done.critical - SLACK >= longest + FINAL - 2 * SLACK
    assert done.busy == pytest.approx(total)


@given(st.lists(st.integers(1, 20), min_size=1, max_size=6), st.integers(1, 3))
def test_longest_first_is_within_four_thirds_of_the_optimum(seconds: list[int], slots: int) -> None:
    done = simulate([Work(float(each), 0) for each in seconds], slots=slots, network=NETWORK, final=FINAL)
    best = shortest([float(each) for each in seconds], slots)
    assert best <= done.compiled <= best * (4 / 3 - 1 / (3 * slots)) + SLACK  # Graham 1969


@given(UNITS, st.integers(1, 30))
def test_the_order_of_the_units_makes_no_difference(units: list[Work], slots: int) -> None:
    done = simulate(units, slots=slots, network=NETWORK, final=FINAL)
    assert simulate(units[::-1], slots=slots, network=NETWORK, final=FINAL).compiled == pytest.approx(done.compiled)


def test_a_schedule_by_hand() -> None:
    """Two processors, 6 5 4 3: 6 and 3 on one, 5 and 4 on the other. Objects of 2 s each come one after the other:
    at 5 (until 7), at 6 (until 9), at 9 and 9 (until 13)."""
    units = [Work(seconds, 2_000_000) for seconds in (3.0, 6.0, 5.0, 4.0)]
    done = simulate(units, slots=2, network=1e6, final=1.0)
    assert (done.compiled, done.gathered, done.finished, done.critical) == (9.0, 13.0, 14.0, 9.0)


# Measured by hand and by `kernels bench`, beside other work: kernels of a tile in one unit, archs, processor seconds.
@pytest.mark.parametrize(
    ("rows", "kernels", "archs", "measured"),
    [(64, 1, 1, 22.5), (64, 8, 1, 50), (64, 1, 2, 40), (64, 8, 2, 102), (128, 1, 1, 28)],
)
def test_costs_say_what_was_measured(rows: int, kernels: int, archs: int, measured: float) -> None:
    costs = read_costs()
    kernel = next(one for one in costs.kernels if (one.rows, one.hdim) == (rows, 128))
    said = costs.unit_seconds + archs * (costs.arch_seconds + kernels * kernel.seconds)
    assert said == pytest.approx(measured, rel=0.2)


def plan(capsys: pytest.CaptureFixture[str], *options: str) -> list[dict[str, float]]:
    assert cli.main(["cluster-plan", "--format", "json", *options]) == 0
    rows: list[dict[str, float]] = json.loads(capsys.readouterr().out)
    return rows


def test_the_full_tier_of_aiter_is_predicted_as_it_was_measured(capsys: pytest.CaptureFixture[str]) -> None:
    """384 kernels for gfx950 took 46 processor minutes."""
    [row] = plan(capsys, "--upstream", "aiter", "--machines", "1", "--processors", "1")
    assert row["wall_seconds"] == pytest.approx(46 * 60, rel=0.2)


def test_the_full_tier_of_2026_on_1_16_and_256_machines(capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--dialect", "rocm-libraries-2026", "--arch", "gfx90a,gfx942,gfx950", "--price", "2")
    one, some, many = rows = plan(capsys, *options)
    assert [row["machines"] for row in rows] == [1, 16, 256]
    assert {row["units"] for row in rows} == {608}
    busy = one["used"] * one["compilers"] * one["wall_seconds"]
    for row in rows:
        assert row["wall_seconds"] >= max(busy / row["compilers"], row["critical_seconds"])
        assert row["machine_hours"] == pytest.approx(row["machines"] * row["wall_seconds"] / 3600)
        assert row["cost"] == pytest.approx(2 * row["machine_hours"])
        assert row["cache_bytes"] == one["cache_bytes"]
    assert many["wall_seconds"] < some["wall_seconds"] < one["wall_seconds"]
    assert many["wall_seconds"] < 1.1 * many["critical_seconds"], "more machines than units: the longest unit decides"
    [smaller] = plan(capsys, *options, "--machines", "256", "--unit-size", "2")
    assert smaller["wall_seconds"] < many["wall_seconds"]


def test_more_compilers_than_memory_allows_are_not_planned(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    [row] = plan(capsys, "--machines", "1")
    assert row["compilers"] == 16
    text = TABLE.read_text().replace("memory: 64_000_000_000", "memory: 4_000_000_000")
    assert text != TABLE.read_text()
    (tmp_path / "costs.yaml").write_text(text)
    assert read_costs(tmp_path / "costs.yaml").memory // 1_400_000_000 == 2


@pytest.mark.parametrize("word", ["0", "-1", "x", "1,,2"])
def test_numbers_of_machines_that_are_none(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["cluster-plan", f"--machines={word}"]) == UsageError.exit_code
    assert "--machines" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("old", "new"),
    [("hdim: 128\n    seconds: 4.0", "hdim: 128\n    seconds: 0"), ("rows: 64", "row: 64"), ("bytes: 35_800", "")],
)
def test_a_damaged_table_is_named(old: str, new: str, tmp_path: Path) -> None:
    file = tmp_path / "costs.yaml"
    file.write_text(TABLE.read_text().replace(old, new, 1))
    with pytest.raises(TableError, match=r"costs\.yaml:\d+: kernels\[0\]"):
        read_costs(file)
