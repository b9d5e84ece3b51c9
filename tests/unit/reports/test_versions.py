"""V3 against V2: which rows the documents have, when a row is reached, and where the figures may come from."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from ckpm.reports.gates.versions import PublishedRow, launch, published_rows
from ckpm.reports.page.markdown import markdown
from ckpm.reports.page.overall import overall
from ckpm.reports.verdicts import V3_AGAINST_V2, Gate
from ckpm.timing.record import Copies, Timed, Timings
from tests.unit.reports.report_samples import SLOWER, write
from tests.unit.reports.test_report import document, inputs, shown
from tests.unit.reports.timing_samples import make_timed, timings
from tests.unit.shared import Run

EIGHT_K = "performance/published_fp8.tensor-q8k"
LONG = "performance/published_fp8.tensor-q16k"
FORTY = "performance/published_fp8.page-h40q37k"
NAMES = {"V3": "x_qr_async_trload_v3_vr_y", "V2": "x_qr_async_vr_y"}
LABELS = [f"h=6/1 sq={length}k c" for length in (1, 2, 4, 8, 16, 32, 65, 131)] + [
    "h=16/1 sq=65k c",
    "h=40/40 sq=37k nc",
]


def pair(v2: int, v3: int, problem: str = EIGHT_K) -> tuple[Timed, ...]:
    """Workgroups that take so many cycles, two of V2's on a compute unit: all of the launch at once."""
    rows = {"V3": (v3, 256, 192, 1), "V2": (v2, 128, 384, 2)}
    return tuple(
        make_timed(
            problem=problem, kernel=NAMES[name], cycles=cycles, tile_rows=tile, launched=launched, resident=resident,
            sensitivity={},
        )
        for name, (cycles, tile, launched, resident) in rows.items()
    )  # fmt: skip


def with_rows(*rows: Timed) -> Timings:
    return dataclasses.replace(timings(), problems=rows)


def row_of(rows: Sequence[PublishedRow], problem: str) -> PublishedRow:
    (published,) = [row for row in rows if row.problem == problem]
    return published


def test_rows_have_both_tables_with_distinct_problems() -> None:
    rows = published_rows((), ())
    assert [row.label for row in rows] == LABELS * 2
    assert len({row.problem for row in rows}) == 20
    assert [bool(row.assumed) for row in rows] == ([False] * 9 + [True]) * 2
    assert {row.error_text(row.modelled) for row in rows} == {"not measured"}
    assert row_of(rows, FORTY).published.ratio == pytest.approx(1251.6 / 945.0)


@pytest.mark.parametrize(("v2", "error"), [(2040, 47.2), (1386, 0.0), (1100, -20.7)])
def test_row_has_error_of_modelled_ratio(v2: int, error: float) -> None:
    """Published: 549.4 / 396.3 = 1.3863."""
    row = row_of(published_rows([with_rows(*pair(v2, 1000))], ()), EIGHT_K)
    assert row.modelled is not None
    assert row.modelled.ratio == pytest.approx(v2 / 1000)
    assert row.error(row.modelled) == pytest.approx(error, abs=0.05)
    assert (row.modelled.v2.cycles, row.modelled.v3.cycles) == (v2, 1000)
    operations = 4 * 128 * 6 * (8192 * 8193 // 2)
    assert row.modelled.v3.tflops == pytest.approx(operations / (1000 / 2.4e9 + 2.7e-6) / 1e12, rel=0.1)


ALONE = Copies(cycles=420, least=420, most=420)
TWO = Copies(cycles=532, least=488, most=564)


def test_launch_has_the_median_of_start_offsets() -> None:
    """Half of the compute units have two workgroups, and the longest one has a neighbour up to its end."""
    _, v2 = pair(560, 270)  # what a replay takes whose copies start together
    whole = launch(dataclasses.replace(v2, copies=(ALONE, TWO)), "gfx950")
    assert whole is not None
    assert (whole.cycles, whole.least, whole.most) == pytest.approx((532, 488, 564))


def test_longer_launch_has_speeds_of_the_shorter_one() -> None:
    """Twice the cycles with the same start mean twice the cycles with each start."""
    short, long = (pair(cycles, 270, name)[1] for cycles, name in ((560, EIGHT_K), (1120, LONG)))
    long = dataclasses.replace(long, launched=768)
    doubled = tuple(
        Copies(cycles=2 * copies.cycles, least=2 * copies.least, most=2 * copies.most) for copies in (ALONE, TWO)
    )
    beside = launch(long, "gfx950", [dataclasses.replace(short, copies=(ALONE, TWO))])
    assert beside == launch(dataclasses.replace(long, cycles=1000, copies=doubled), "gfx950")
    assert beside is not None
    assert beside.least < beside.cycles < beside.most


def test_version_of_other_run_makes_no_ratio() -> None:
    v3, v2 = pair(1390, 1000)
    apart = [with_rows(v3), with_rows(v2)]
    assert row_of(published_rows(apart, ()), EIGHT_K).modelled is None


def measured_gate(v2: float, v3: float, gpu: str = "AMD Instinct MI355X") -> Gate:
    row = dataclasses.replace(SLOWER, subject=EIGHT_K, baseline=v2, candidate=v3, verdict="improved")
    return Gate.of([row], {"gpu": gpu, V3_AGAINST_V2: "yes"})


def test_times_of_gpu_are_measured_and_emulators_are_not() -> None:
    row = row_of(published_rows((), [measured_gate(140.0, 100.0)]), EIGHT_K)
    assert row.measured is not None
    assert row.measured.ratio == pytest.approx(1.4)
    assert row.error_text(row.measured) == "+1.0 %"
    assert row.measured.v2.tflops == pytest.approx(4 * 128 * 6 * (8192 * 8193 // 2) / 140e-6 / 1e12)
    emulated = measured_gate(140.0, 100.0, gpu="emulated gfx950")
    others = Gate(verdict="improved", provenance={"gpu": "AMD Instinct MI355X"}, rows=emulated.rows)
    for gate in (emulated, others):
        assert row_of(published_rows((), [gate]), EIGHT_K).measured is None


def test_report_and_summary_have_both_tables(tmp_path: Path) -> None:
    folder = write(tmp_path)
    assert "v3" not in shown(document(inputs(folder)))  # aiter's kernels, nothing of V3
    with_rows(*pair(1390, 1000), *pair(1000, 1000, FORTY)).write(folder / "timing-tables.json")
    measured_gate(120.0, 100.0).write(folder / "gpu.json")
    report_inputs = inputs(folder)
    rows = shown(document(report_inputs))["v3"]
    assert [row[1] for row in rows] == LABELS * 2
    eight, forty = rows[3], rows[19]
    assert eight[2:11] == [
        1.39,
        1.39,
        pytest.approx(0.3, abs=0.05),
        1.2,
        pytest.approx(-13.4, abs=0.05),
        90.0,
        90.0,
        1390,
        1000,
    ]
    assert eight[13:15] == [396.3, 549.4]
    assert forty[2:7] == [1.0, 1.32, pytest.approx(-24.5, abs=0.05), None, None]
    assert forty[17] == "37k as 37 * 1,024; the document does not say which length it is"
    text = markdown(report_inputs, overall(report_inputs))
    assert "| h=6/1 sq=8k c | 1.39 | 1.39 | +0.3 % | 1.20 | -13.4 % |" in text
    assert re.search(r"\| h=40/40 sq=37k nc \(37k as 37 .* 1\.32 \| 1\.00 \| -24\.5 % \|  \| not measured \|", text)
    assert text.count("| error | on a GPU | error |") == 2


def test_command_prints_both_tables(tmp_path: Path, run: Run) -> None:
    with_rows(*pair(1390, 1000)).write(tmp_path / "timing.json")
    code, text, _ = run("timing", "show", tmp_path / "timing.json")
    assert code == 0
    assert re.search(r"h=6/1 sq=8k c +1\.39 +1\.39 +0\.27 +90\.0 +90\.0 +1390 +1000 ", text)
    assert text.count("V3 against V2, modelled, measured and as published: FP8 batch prefill") == 2
