"""Modelled times of workgroups: the record, its figures by hand, the tables and the picture."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest

from ckpm.base.errors import RecordError, UsageError
from ckpm.matrix.dialects import dialect
from ckpm.matrix.selection import Selection, select
from ckpm.reports.gates.versions import launch
from ckpm.reports.page.plots import MEANINGS, picture, plots
from ckpm.timing.clock import clock_of
from ckpm.timing.command import summary
from ckpm.timing.machine import ModelNumber, neighbours
from ckpm.timing.record import CAUSES, Copies, Timings, wave_of
from tests.unit import manifests
from tests.unit.reports.report_samples import FACTS, PROBLEM, write
from tests.unit.reports.test_report import document, inputs, shown
from tests.unit.reports.timing_samples import make_timed, phase, span, timings, wave
from tests.unit.shared import Run


def test_shares_by_hand() -> None:
    """Three waves of 400 matrix cycles in 1,000 on two SIMDs; 240 of 400 in the loop, twice on the first SIMD."""
    timed = make_timed()
    assert timed.matrix_share == pytest.approx(1200 / 2000)
    assert timed.loop_share == pytest.approx((0.6 + 0.6 + 0.6) / 2)
    assert timed.pass_cycles == pytest.approx(3 * 400 / (3 * 4))
    assert timed.stalls()["wait_memory"] == pytest.approx(0.3)
    assert timed.stalls(loop=True) == pytest.approx(dict.fromkeys(CAUSES, 0) | {"wait_memory": 0.1})


def test_shares_of_phases_by_hand() -> None:
    """Three waves of 1,000 cycles: 500 in five parts with MFMAs, which keep the unit for 400 and wait for 200."""
    by_name = {phase_figures.phase: phase_figures for phase_figures in make_timed().phases()}
    assert list(by_name) == ["prologue", "matrix", "softmax"]
    matrix, softmax = by_name["matrix"], by_name["softmax"]
    assert (matrix.parts, matrix.cycles, matrix.issued, matrix.matrix) == (15, 0.5, 0.6, 0.8)
    assert matrix.stalls["wait_memory"] == pytest.approx(0.4)
    assert (softmax.stalls["barrier"], softmax.stalls["wait_memory"]) == (0.25, 0.1)
    assert sum(phase_figures.cycles for phase_figures in by_name.values()) == pytest.approx(1)


def test_summary_lists_phases_with_largest_stalls() -> None:
    assert summary(make_timed()) == (
        "performance/prefill.m64: 1000 cycles; phases with their largest stalls: prologue 10.0% (wait_memory 60.0%), "
        "matrix 50.0% (wait_memory 40.0%), softmax 40.0% (barrier 25.0%)"
    )
    assert "matrix 100.0%" in summary(
        make_timed(waves=(dataclasses.replace(wave(0), phases={"matrix": phase(1000, 0)}),))
    )


def test_wave_without_loop_has_no_pass() -> None:
    still = dataclasses.replace(wave(0), passes=0, loop=span(0, 0, 0))
    assert make_timed(waves=(still,)).pass_cycles == 0
    assert make_timed(waves=(still,)).loop_share == 0


def test_replays_wave_becomes_record() -> None:
    stalls = dict.fromkeys(CAUSES, 0) | {"barrier": 8}
    figures = {"instructions": 5, "issued": 20, "matrix": 32, "vector": 4, "stalls": stalls}
    record = wave_of(
        {
            **figures,
            "simd": 2,
            "end": 28,
            "hot": [4, 8],
            "timeline": "M",
            "loop": {**figures, "passes": 3, "begin": 4, "end": 32},
            "phases": {"matrix": {**figures, "parts": 2}},
        }
    )
    assert (record.phases["matrix"].parts, record.phases["matrix"].cycles) == (2, 28)
    assert (record.whole.begin, record.whole.end, record.loop.cycles, record.passes, record.hot) == (
        0,
        28,
        28,
        3,
        (4, 8),
    )


def test_timings_as_file(tmp_path: Path) -> None:
    file = tmp_path / "timing.json"
    timings().write(file)
    assert Timings.read(file) == timings()
    timings(waves=(dataclasses.replace(wave(0), hot=None),)).write(file)
    assert Timings.read(file).problems[0].waves[0].hot is None


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"format": 3', '"format": 2', "no timings of format 3"),
        ('"softmax": {', '"soft": {', r"waves\[0\]: unknown phases soft; known here: prologue"),
        ('"resident": 1', '"resident": 0', r"problems\[0\]\.resident: must be a whole number > 0"),
        ('"begin": 200', '"begin": 700', r"loop: its end is before its begin"),
        ('"barrier": 100', '"cheese": 100', r"its stalls are not by .*barrier, but by .*cheese"),
        ('"arch": "gfx950"', '"arch": 950', r"provenance\.arch"),
    ],
)
def test_damaged_file_is_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    file = tmp_path / "timing.json"
    timings().write(file)
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))
    with pytest.raises(RecordError, match=message):
        Timings.read(file)


def test_command_shows_cycles_stalls_and_doubts(tmp_path: Path, run: Run) -> None:
    timings().write(tmp_path / "timing.json")
    code, text, _ = run("timing", "show", tmp_path / "timing.json")
    assert code == 0
    assert re.search(r"prefill\.m64 +1000 +1 +1000 +100 +60\.0 +90\.0 +wait_memory +10\.0", text)
    assert re.search(r"prefill\.m64 +V2 +matrix +15 +50\.0 +80\.0 +60\.0 .* 40\.0 +0\.0 +0\.0", text)
    assert re.search(r"memory_latency +1000 +-10\.0% +-10\.0% +\+30\.0% +\+30\.0%", text)
    assert "What the timing model cannot see:\n- " in text


def test_two_libraries_side_by_side(tmp_path: Path, run: Run) -> None:
    files = [tmp_path / f"{name}.json" for name in ("ours", "theirs")]
    timings().write(files[0])
    timings(cycles=1600, resident=2).write(files[1])
    code, out, _ = run("timing", "show", files[0], "--against", files[1])
    assert code == 0
    assert re.search(r"prefill\.m64 +1000 +\+25\.00% +100 +\+0\.00%", out)


def test_picture_has_row_wave_and_letters_in_its_bars() -> None:
    root = ElementTree.fromstring(picture(make_timed(), "one"))
    space = {"svg": "http://www.w3.org/2000/svg"}
    texts = [text.text for text in root.findall("svg:text", space)]
    assert [text for text in texts if text and text.startswith("wave")] == ["wave 0 S0", "wave 1 S0", "wave 2 S1"]
    assert texts.count("M") == texts.count("X") == texts.count("W") == texts.count("B") == 3
    bars = [rect for rect in root.findall("svg:rect", space) if rect.get("y") == "8"]
    assert [bar[0].text for bar in bars] == ["M 200-220", "X 220-240", "W 260-280", "B 280-300"]
    assert [float(bar.get("width", 0)) for bar in bars] == pytest.approx([884 / 6] * 4, abs=0.1)
    named = {pattern.get("id") for pattern in root.iter("{http://www.w3.org/2000/svg}pattern")}
    used = set(re.findall(r"url\(#([^)]+)\)", picture(make_timed(), "one")))
    assert used <= named
    assert set("MXVLSWB-.") == set(MEANINGS)


def test_copies_are_told_apart() -> None:
    texts = re.findall(r">(wave [^<]*)<", picture(make_timed(resident=2, waves=(wave(0), wave(0))), "two"))
    assert texts == ["wave 1.0 S0", "wave 2.0 S0"]


def test_report_shows_timings_of_this_build(tmp_path: Path) -> None:
    folder = write(tmp_path)
    library_folder = folder / "gfx950" / "aiter"
    provenance = {**FACTS, "arch": "gfx950", "tier": "smoke"}
    stored_timings = Timings(provenance=provenance, problems=(make_timed(problem=PROBLEM),))
    stored_timings.write(library_folder / "timing.json")
    report_inputs = inputs(folder)
    tables = shown(document(report_inputs))
    assert tables["timing"][0][:9] == [
        PROBLEM,
        "gfx950/aiter",
        1000,
        1,
        1000,
        100,
        60.0,
        90.0,
        3,
    ]  # 2 heads of 64 x 128 x 4 x 128 flop in 1,000 cycles of 2.4 GHz and 2.7 us
    assert tables["timing"][0][9:14] == [2.4, "2 to 3", "", "wait_memory", 10.0]
    matrix = next(row for row in tables["timing-phases"] if row[3] == "matrix")
    assert matrix[:8] == [PROBLEM, "gfx950/aiter", "V2", "matrix", 15, 50.0, 80.0, 60.0]
    assert any(PROBLEM in plot.title and "wave 2 S1" in plot.svg for plot in plots(report_inputs))
    dataclasses.replace(stored_timings, provenance={**stored_timings.provenance, "flags": "-O1"}).write(
        library_folder / "timing.json"
    )
    (uncounted,) = inputs(folder).uncounted
    assert re.match("made from another build .* flags differs", uncounted.reason)


def test_launch_resident_at_once_takes_longest_workgroup() -> None:
    """6 heads, 1,024 queries and keys, causal: 48 workgroups of 128 rows on 256 compute units, 1,000 cycles.

    Three waves of 400 matrix cycles are 300 of each SIMD's; workgroups have 9 / 16 of the longest's keys on average.
    """
    name = "performance/published_fp8.tensor-q1k"
    estimated = launch(make_timed(problem=name, launched=48, tile_rows=128), "gfx950")
    assert estimated is not None
    assert estimated.cycles == 1000
    operations = 4 * 128 * 6 * (1024 * 1025 // 2)
    clock = clock_of("MI355X", 8)
    assert estimated.ghz == clock.ghz(300 * 48 * 9 / 16 / (1000 * 256))
    assert estimated.expected == pytest.approx(operations / (1000 / estimated.ghz / 1e9 + 2.7e-6) / 1e12)
    low, high = estimated.expected_range
    assert low == pytest.approx(0.86 * estimated.expected)
    assert high == pytest.approx(1.14 * estimated.expected)
    assert estimated.published == {"V2": 43.1, "V3": 47.7}


def test_v3_launch_has_longest_workgroups_first() -> None:
    """16,384 keys in 64 tiles, 6 heads: 48 workgroups on each die of 32 compute units, the longest takes 1,000 cycles.

    In V2's order the last die has 8 lengths of each head, the longest last. Those of head 5 start when the tiles of
    24 and 32 of 64 lengths of heads 0 to 3 end, so the very last one starts at 500.
    """
    name = "performance/published_fp8.tensor-q16k"
    v2, v3 = (
        launch(make_timed(problem=name, kernel=kernel, launched=6 * 64, tile_rows=256, cycles=1000), "gfx950")
        for kernel in ("x_qr_async_vr_y", "x_qr_async_trload_v3_vr_y")
    )
    assert v2 is not None
    assert v3 is not None
    assert (v3.cycles, v2.cycles) == (1000, 1500)


def test_launch_of_ragged_sequences_has_each_head_once() -> None:
    """400 heads of 129, 10 and 257 queries: of 5 tiles each 3, 1 and 5 have 463, 1,328 and 257 keys."""
    name = "performance/ragged.m64-full-ragged"
    estimated = launch(make_timed(problem=name, launched=400 * 3 * 5, tile_rows=64), "gfx950")
    assert estimated is not None
    least = 400 * (3 * 463 + 1328 + 5 * 257) / 1328 * 1000 / 256
    assert least < estimated.cycles < 1.1 * least


def test_launch_of_workgroup_without_mfma_has_no_estimate() -> None:
    waves = tuple(
        dataclasses.replace(wave, whole=dataclasses.replace(wave.whole, matrix=0)) for wave in make_timed().waves
    )
    name = "performance/ragged.m64-causal-ragged"
    assert launch(make_timed(problem=name, launched=60), "gfx950") is not None
    assert launch(make_timed(problem=name, launched=60, waves=waves), "gfx950") is None


def test_larger_launch_takes_more_than_sum_of_workgroups() -> None:
    """32,768 keys in 256 tiles: the average workgroup sees 257 / 512 of the longest's keys. Two copies take 1,000."""
    name = "performance/published_fp8.tensor-q32k"
    estimated = launch(make_timed(problem=name, launched=6 * 256, tile_rows=128, resident=2), "gfx950")
    assert estimated is not None
    least = 6 * 256 * 257 / 512 * 500 / 256
    assert least < estimated.cycles < 1.5 * least  # tiles of all lengths, the longest last of each head
    copies = (Copies(cycles=600, least=600, most=600), Copies(cycles=1000, least=900, most=1100))
    apart = launch(make_timed(problem=name, launched=6 * 256, tile_rows=128, resident=2, copies=copies), "gfx950")
    assert apart is not None
    assert apart.least < apart.cycles <= estimated.cycles  # a copy that is alone at last is faster
    assert apart.cycles < apart.most
    assert launch(make_timed(problem="performance/none"), "gfx950") is None
    assert launch(make_timed(problem=name, launched=256, resident=2), "gfx950") is None
    assert launch(make_timed(problem=name), "gfx90a") is None


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A library of two kernels, which no device opens."""
    keys = select(dialect("ck-2025-11"), Selection(archs=("gfx950",)))[:2]
    file = manifests.write_library(tmp_path, manifests.document({key.name: {} for key in keys}))
    loaded = SimpleNamespace(load=lambda *_, **__: SimpleNamespace(kernels=[key.name for key in keys]))
    monkeypatch.setattr("ckpm.attention.launch.device.choose", lambda *_, **__: loaded)
    monkeypatch.setattr("ckpm.timing.modelling.open_library", lambda *_, **__: SimpleNamespace(keys=keys))
    return file


@pytest.mark.parametrize("command", [["measure"], ["timing", "model"]], ids=" ".join)
def test_glob_of_no_kernel_is_named(library: Path, run: Run, command: list[str]) -> None:
    """Advise no larger build, which would not help."""
    options = ("--library", library, "--output", library.with_name("out.json"), "--kernel", "nosuch*")
    code, _, err = run(*command, *options)
    assert (code, "--kernel: none of the library's 2 kernels fits 'nosuch*'" in err) == (UsageError.exit_code, True)


def test_glob_of_no_problem_is_named(library: Path, run: Run) -> None:
    options = ("--library", library, "--output", library.with_name("out.json"), "--problem", "nosuch*")
    code, _, err = run("timing", "model", *options)
    assert (code, "--problem: no problem of tier smoke fits 'nosuch*'" in err) == (UsageError.exit_code, True)


@pytest.mark.parametrize(
    ("option", "complaint"),
    [("--resident=0", "0: give 1 or more"), ("--workgroup=-1", "-1: give 0 or more"), ("--resident=x", "x: give 1")],
)
def test_number_out_of_range_is_refused_with_range(run: Run, option: str, complaint: str) -> None:
    code, _, err = run("timing", "model", "--output", "out.json", option)
    assert (code, complaint in err) == (UsageError.exit_code, True)


def test_help_of_sensitivity_names_its_steps(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert neighbours(ModelNumber(100, doubtful=True, switch=False)) == (80, 120)
    with pytest.raises(SystemExit):
        run("timing", "model", "--help")
    assert "a fifth less and a fifth more of each doubtful figure" in " ".join(capsys.readouterr().out.split())
