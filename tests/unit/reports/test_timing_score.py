"""The score of the timing model: the clock's fit, errors by group, and the check of accepted figures."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from ckpm.base.console import console
from ckpm.base.errors import RecordError
from ckpm.timing import score as scoring
from ckpm.timing.clock import Clock, fit_clocks, points
from ckpm.timing.model import machines
from ckpm.timing.published import published_figures
from ckpm.timing.score import AcceptedScore, Score, ScoreRow, read_accepted, spearman
from ckpm.timing.score_command import show


def row(group: str, published: float, modelled: float | None, metric: str = "tflops", **fields: str) -> ScoreRow:
    plain: dict[str, Any] = {"kernel": "k", "label": f"{published}", "gpu": "MI355X", "role": "score", "source": "s"}
    return ScoreRow(group=group, metric=metric, published=published, modelled=modelled, **plain | fields)


def make_score(*rows: ScoreRow) -> Score:
    groups = {
        name: scoring.score_of([score_row for score_row in rows if score_row.group == name]) for name in scoring.GROUPS
    }
    return Score(tier="smoke", rows=rows, groups=groups, clocks=fit_clocks_by_name())


def fit_clocks_by_name() -> dict[str, Clock]:
    return {f"{gpu}, {bits} bits": clock for (gpu, bits), clock in fit_clocks(published_figures(), machines()).items()}


def test_clock_falls_with_root_of_share_as_tutorials_have_it() -> None:
    """1.63 GHz at 61 %, 1.37 at 86 %, 1.26 with the matrix units alone; 2 to 5 % more for their loops."""
    clock = fit_clocks(published_figures(), machines())["MI355X", 16]
    assert 0.33 < clock.exponent < 0.63
    for share, ghz in ((0.61, 1.63), (0.86, 1.37), (1.0, 1.26)):
        assert clock.ghz(share) == pytest.approx(1.035 * ghz, rel=0.06)
    assert clock.ghz(0.05) == 2.4


def test_clock_of_fp8_gemms_is_published_one() -> None:
    """2,901 to 3,233 TFLOP/s at 99.7 % are 1.38 to 1.55 GHz, and some per cent more for the loop alone."""
    gemm_points = points(published_figures(), machines())["MI355X", 8]
    assert 1.38 < min(point.ghz for point in gemm_points) < 1.38 * 1.06
    assert 1.55 < max(point.ghz for point in gemm_points) < 1.55 * 1.06


def test_no_scored_row_moves_the_clock() -> None:
    calibrating = [figure for figure in published_figures() if figure.role == "calibrate"]
    assert fit_clocks(calibrating, machines()) == fit_clocks(published_figures(), machines())


def test_wmape_weighs_by_published_figure() -> None:
    group = make_score(row("B", 100, 90), row("B", 900, 990)).groups["B"]
    assert group.rows == 2
    assert group.error == pytest.approx(100 / 1000)
    assert group.log_error == pytest.approx((math.log(100 / 90) + math.log(1.1)) / 2)


def test_units_of_group_a_count_alike() -> None:
    rows = row("A", 4000, 4400, "cycles"), row("A", 5000, 5000, "cycles"), row("A", 50, 40, "share")
    assert make_score(*rows).groups["A"].error == pytest.approx((0.1 + 0.0 + 0.2) / 3)


def test_signs_are_sides_of_one() -> None:
    group = make_score(row("C", 1.2, 1.1), row("C", 0.9, 1.1), row("C", 0.8, 0.9), row("C", 1.5, 0.9)).groups["C"]
    assert group.signs == 0.5


def test_spearman_of_published_example() -> None:
    """Zar's wings and tails: ties have the mean rank; rho is 0.851 (Biostatistical Analysis, example 19.12)."""
    wings = (10.4, 10.8, 11.1, 10.2, 10.3, 10.2, 10.7, 10.5, 10.8, 11.2, 10.6, 11.4)
    tails = (7.4, 7.6, 7.9, 7.2, 7.4, 7.1, 7.4, 7.2, 7.8, 7.7, 7.8, 8.3)
    assert spearman(list(zip(wings, tails, strict=True))) == pytest.approx(0.851, abs=5e-4)
    assert spearman([(1, 3), (2, 2), (3, 1)]) == pytest.approx(-1)


def test_ratios_need_one_source_and_one_shape() -> None:
    rows = [
        row("B", 900, 800, kernel="a", label="x"),
        row("B", 600, 500, kernel="b", label="x"),
        row("B", 600, 500, kernel="b", label="x", source="other"),
        row("B", 600, None, kernel="b", label="y"),
    ]
    (ratio,) = scoring._ratios(rows, [("a", "b")])
    assert (ratio.published, ratio.modelled, ratio.group) == (1.5, 1.6, "C")


@pytest.mark.parametrize(
    ("bound", "lines"),
    [
        (AcceptedScore(error=0.1, rank=1.0, signs=0.5), []),
        (AcceptedScore(error=0.09, rank=1.0, signs=0.5), ["group B: error 0.1000, accepted 0.0900"]),
        (AcceptedScore(error=0.2, rank=1.1, signs=0.5), ["group B: rank 1.0000, accepted 1.1000"]),
        (AcceptedScore(error=0.2, rank=0.0, signs=1.1), ["group B: signs 1.0000, accepted 1.1000"]),
    ],
)
def test_worse_group_fails(bound: AcceptedScore, lines: list[str]) -> None:
    score = make_score(row("B", 100, 90), row("B", 900, 990))
    assert score.worse({"B": bound}) == lines


def test_group_without_rows_fails() -> None:
    assert make_score().worse({"B": AcceptedScore(error=1.0, rank=-1.0, signs=0.0)}) == ["group B has no row"]


def test_accepted_figures_meet_goals_of_groups() -> None:
    for tier in scoring.TIERS:
        bounds = read_accepted(tier)
        assert set(bounds) == set(scoring.GROUPS)
        assert (bounds["A"].error <= 0.10, bounds["B"].error <= 0.14) == (True, True)


def test_score_of_unknown_group_is_error(tmp_path: Path) -> None:
    make_score(row("B", 100, 90)).write(tmp_path / "score.json")
    text = (tmp_path / "score.json").read_text()
    (tmp_path / "score.json").write_text(text.replace('"B": {', '"Z": {'))
    with pytest.raises(RecordError, match="groups"):
        Score.read(tmp_path / "score.json")


def test_figure_beside_published_zero_has_no_error() -> None:
    assert row("B", 0, 90).error is None


def test_score_is_written_and_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    score = make_score(row("B", 100, 90), row("A", 8, None, "cycles", reason="no code"))
    score.write(tmp_path / "score.json")
    assert Score.read(tmp_path / "score.json") == score
    (tmp_path / "score.json").write_text('{"format": 0}')
    with pytest.raises(RecordError, match="no score of format 1"):
        Score.read(tmp_path / "score.json")
    show(score, console())
    printed = capsys.readouterr().out
    assert "-10.0%" in printed
    assert "k (MI355X), cycles: no code (1)" in printed
