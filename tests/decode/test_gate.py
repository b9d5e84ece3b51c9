"""perf-gate over the decode kernels: what is accepted passes, and each kind of change is told from the others."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pytest

from ckpm.base.errors import CheckFailedError, InconclusiveError, RecordError
from ckpm.commands import main
from ckpm.decode.built import MANIFEST
from ckpm.reports.gates import baseline
from tests.unit.shared import Run

ARCH = "gfx950"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with build/ and accepted figures."""
    work = tmp_path_factory.mktemp("decode")
    assert main(["decode", "build", "--arch", ARCH, "--work", str(work)]) == 0
    assert main(line("accept", work, "--reason", "a test")) == 0
    return work


@pytest.fixture
def work(built: Path, tmp_path: Path) -> Path:
    shutil.copytree(built, tmp_path, dirs_exist_ok=True)
    return tmp_path


def line(name: str, work: Path, *options: str) -> list[str]:
    where = ("--family", "decode", "--arch", ARCH, "--work", str(work), "--baselines", str(work / "baselines"))
    return [name, *where, *options]


def baseline_file(work: Path, gate: str) -> Path:
    return work / "baselines" / ARCH / "triton" / f"decode.{gate}.jsonl"


def change_accepted(work: Path, gate: str, subject: str, metric: str, value: float) -> float:
    """Change an accepted figure, and return the figure before."""
    file = baseline_file(work, gate)
    accepted = baseline.read(file)
    figures = {**accepted.figures, subject: {**accepted.figures[subject], metric: value}}
    file.write_text(dataclasses.replace(accepted, figures=figures).text())
    return accepted.figures[subject][metric]


def test_what_was_accepted_passes_and_is_in_report(work: Path, run: Run) -> None:
    assert run(*line("gate", work))[0] == 0
    assert run(*line("gate", work, "--history"))[0] == 0
    code, out, _ = run("report", "--input", work / "build")
    assert code == 0
    rows = [text.split(" | ") for text in out.splitlines() if "-fp8 | gfx950" in text]
    published = {row[1]: [word.strip(" |") for word in row[-4:]] for row in rows}
    assert published == {"resident-fp8": ["512", "56", "1", "125"], "streaming-fp8": ["108", "0", "2", "105"]}


@pytest.mark.parametrize(("gate", "metric"), [("static", "vgpr"), ("emulated", "timing_cycles_a_token")])
def test_worse_figure_is_regression(work: Path, run: Run, gate: str, metric: str) -> None:
    figure = change_accepted(work, gate, "streaming-fp8", metric, 20)
    code, _, err = run(*line("gate", work, "--only", gate))
    assert (code, f"regressed: {metric}: 20 -> {figure:g}" in err) == (CheckFailedError.exit_code, True)


def test_better_figure_asks_for_acceptance(work: Path, run: Run) -> None:
    change_accepted(work, "static", "resident-fp8", "vgpr_spills", 1000)
    code, output, _ = run(*line("gate", work, "--only", "static"))
    assert code == 0
    assert "improved: vgpr_spills: 1000 -> 98" in output
    assert "goes unnoticed: ckpm accept --reason TEXT --arch gfx950 --family decode" in output


@pytest.mark.parametrize(("old", "new"), [("triton 3.9.0", "triton 3.8.0"), ("streaming-d64, ", "")])
def test_another_compiler_or_other_problems_are_not_comparable(work: Path, run: Run, old: str, new: str) -> None:
    file = baseline_file(work, "static")
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))
    code, _, err = run(*line("gate", work, "--only", "static"))
    assert (code, "not comparable" in err) == (InconclusiveError.exit_code, True)


def test_what_was_not_built_or_is_damaged_is_said(work: Path, run: Run) -> None:
    def exit_code(complaint: str) -> int:
        code, _, err = run(*line("gate", work))
        assert complaint in err
        return code

    folder = work / "build" / ARCH / "decode"
    code = folder / "streaming-fp8.attention.hsaco"
    code.write_bytes(code.read_bytes()[:-1] + b"\1")
    assert exit_code("streaming-fp8.attention.hsaco has other bytes") == RecordError.exit_code
    code.unlink()
    assert exit_code("streaming-fp8.attention.hsaco") == RecordError.exit_code
    manifest = folder / MANIFEST
    manifest.write_text(manifest.read_text().replace("HEADS_Q", "HEADS", 1))
    assert exit_code("Build again: nox -s build-decode") == InconclusiveError.exit_code
    manifest.unlink()
    assert exit_code("no decode kernels were built for gfx950") == InconclusiveError.exit_code
