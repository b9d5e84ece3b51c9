"""Results of ``ckpm sweep run`` in the report: best kernels, what was left out, and the verdict."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ckpm.reports.page.figure_tables import best_kernels
from ckpm.reports.page.inputs import ReportInputs, gather
from ckpm.reports.page.overall import overall
from ckpm.timing.sweeps.results import SweepResults

SHAPE = "fwd/Vision.b1-q64k64-h2x1-d128x128-bf16"


def row(kernel: str, order: int, cycles: float, **more: Any) -> dict[str, Any]:
    named = {"problem_name": SHAPE, "kernel": kernel, "mode": "batch"}
    return {**named, "dispatch_order": order, "modelled_cycles": cycles, **more}


def gather_rows(folder: Path, *rows: dict[str, Any], **left_out: str) -> ReportInputs:
    sweep_folder = folder / "benchmark"
    sweep_folder.mkdir()
    SweepResults(
        request={"arch": "gfx950", "category": "smoke", "device": "emulator", "shard": "1/1"},
        kernels=len(rows),
        cases=len(rows) + len(left_out),
        rows=rows,
        left_out={(SHAPE, kernel): why for kernel, why in left_out.items()},
    ).write(sweep_folder / "sweep.json")
    return gather(folder)


def check(report_inputs: ReportInputs) -> tuple[str, str]:
    sweep_check = next(check for check in overall(report_inputs).checks if check.name == "benchmark sweep")
    return sweep_check.verdict, sweep_check.text


def test_choice_after_stands_beside_best(tmp_path: Path) -> None:
    rows = (row("first", 3, 1500.0, agrees=True), row("second", 7, 1000.0, agrees=True))
    report_inputs = gather_rows(tmp_path, *rows, third="larger than asked for", fourth="larger than asked for")
    table = best_kernels(report_inputs)
    assert [dict(zip((column.name for column in table.columns), row, strict=True)) for row in table.rows] == [
        {
            **{"problem": SHAPE, "mode": "batch", "benchmark": "sweep", "kernels": 2, "unit": "modelled cycles"},
            **{"% below best": 50.0, "best": 1000.0, "default": 1500.0},
            **{"best kernel": "second", "default, if another": "first"},
        }
    ]
    assert [list(fold.lines) for fold in table.folded] == [["2: larger than asked for"]]
    assert check(report_inputs) == ("passed", "2 of 4 cases agree with the reference, 0 known defects")


def test_wrong_numbers_fail_report_and_are_not_best(tmp_path: Path) -> None:
    report_inputs = gather_rows(tmp_path, row("quick", 1, 10.0, agrees=False), row("slow", 2, 20.0, agrees=True))
    assert [row[-2] for row in best_kernels(report_inputs).rows] == ["slow"]
    verdict, text = check(report_inputs)
    assert verdict == "failed"
    assert f"{SHAPE}: quick: differs from the reference" in text


def test_known_defect_is_counted_apart_and_fault_fails(tmp_path: Path) -> None:
    defect_row = row("odd", 1, 10.0, agrees=False, known_defect="table-read-past-end")
    assert check(gather_rows(tmp_path, defect_row)) == (
        "not run",
        "0 of 1 cases agree with the reference, 1 known defects",
    )
    (tmp_path / "other").mkdir()
    verdict, text = check(gather_rows(tmp_path / "other", row("good", 1, 10.0, agrees=True), bad="fault: memory"))
    assert (verdict, text.rpartition("; ")[2]) == ("failed", f"the first: {SHAPE}: bad: fault: memory")


def test_times_that_no_one_compared_pass_nothing(tmp_path: Path) -> None:
    assert check(gather_rows(tmp_path, row("one", 1, 10.0, agrees=None)))[0] == "not run"


def test_damaged_file_is_named(tmp_path: Path) -> None:
    gather_rows(tmp_path, row("one", 1, 10.0))
    file = tmp_path / "benchmark" / "sweep.json"
    file.write_text(file.read_text().replace('"request"', '"ask"'))
    assert [uncounted.file for uncounted in gather(tmp_path).uncounted] == [file]
