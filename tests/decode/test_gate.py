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

ARCH = "gfx950"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with build/ and accepted figures."""
    work = tmp_path_factory.mktemp("decode")
    assert main(["decode", "build", "--arch", ARCH, "--work", str(work)]) == 0
    assert command("accept", work, "--reason", "a test") == 0
    return work


@pytest.fixture
def work(built: Path, tmp_path: Path) -> Path:
    shutil.copytree(built, tmp_path, dirs_exist_ok=True)
    return tmp_path


def command(name: str, work: Path, *options: str) -> int:
    where = ("--family", "decode", "--arch", ARCH, "--work", str(work), "--baselines", str(work / "baselines"))
    return main([name, *where, *options])


def baseline_file(work: Path, gate: str) -> Path:
    return work / "baselines" / ARCH / "triton" / f"decode.{gate}.jsonl"


def change_accepted(work: Path, gate: str, subject: str, metric: str, value: float) -> float:
    """Change an accepted figure, and return the figure before."""
    file = baseline_file(work, gate)
    accepted = baseline.read(file)
    figures = {**accepted.figures, subject: {**accepted.figures[subject], metric: value}}
    file.write_text(dataclasses.replace(accepted, figures=figures).text())
    return accepted.figures[subject][metric]


def test_what_was_accepted_passes_and_is_in_report(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("gate", work) == 0
    assert command("gate", work, "--history") == 0
    capsys.readouterr()
    assert main(["report", "--input", str(work / "build")]) == 0
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines() if "-fp8 | gfx950" in line]
    published = {row[1]: [word.strip(" |") for word in row[-4:]] for row in rows}
    assert published == {"resident-fp8": ["512", "56", "1", "125"], "streaming-fp8": ["108", "0", "2", "105"]}


@pytest.mark.parametrize(("gate", "metric"), [("static", "vgpr"), ("emulated", "timing_cycles_a_token")])
def test_worse_figure_is_regression(work: Path, capsys: pytest.CaptureFixture[str], gate: str, metric: str) -> None:
    figure = change_accepted(work, gate, "streaming-fp8", metric, 20)
    assert command("gate", work, "--only", gate) == CheckFailedError.exit_code
    assert f"regressed: {metric}: 20 -> {figure:g}" in capsys.readouterr().err


def test_better_figure_asks_for_acceptance(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change_accepted(work, "static", "resident-fp8", "vgpr_spills", 1000)
    assert command("gate", work, "--only", "static") == 0
    output = capsys.readouterr().out
    assert "improved: vgpr_spills: 1000 -> 98" in output
    assert "goes unnoticed: ckpm accept --reason TEXT --arch gfx950 --family decode" in output


@pytest.mark.parametrize(("old", "new"), [("triton 3.9.0", "triton 3.8.0"), ("streaming-d64, ", "")])
def test_another_compiler_or_other_problems_are_not_comparable(
    work: Path, capsys: pytest.CaptureFixture[str], old: str, new: str
) -> None:
    file = baseline_file(work, "static")
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))
    assert command("gate", work, "--only", "static") == InconclusiveError.exit_code
    assert "not comparable" in capsys.readouterr().err


def test_what_was_not_built_or_is_damaged_is_said(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = work / "build" / ARCH / "decode"
    code = folder / "streaming-fp8.attention.hsaco"
    code.write_bytes(code.read_bytes()[:-1] + b"\1")
    assert command("gate", work) == RecordError.exit_code
    assert "streaming-fp8.attention.hsaco has other bytes" in capsys.readouterr().err
    code.unlink()
    assert command("gate", work) == RecordError.exit_code
    manifest = folder / MANIFEST
    manifest.write_text(manifest.read_text().replace("HEADS_Q", "HEADS", 1))
    assert command("gate", work) == InconclusiveError.exit_code
    assert "Build again: nox -s build-decode" in capsys.readouterr().err
    manifest.unlink()
    assert command("gate", work) == InconclusiveError.exit_code
    assert "no decode kernels were built for gfx950" in capsys.readouterr().err
