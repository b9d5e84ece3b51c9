"""ckpm bench: each figure is measured, and a failed one costs no other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ckpm import commands
from ckpm.base.errors import InconclusiveError
from ckpm.bench import build, cold, dispatch, emulated
from ckpm.bench import command as bench
from ckpm.bench.figures import Figure


def test_bench_failed_figure_prints_others_and_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def constant(name: str) -> Callable[..., list[Figure]]:
        return lambda *arguments: [Figure(name, "1", "1", True)]

    def fail(*arguments: object) -> list[Figure]:
        raise InconclusiveError("the link failed")

    monkeypatch.setattr(bench, "locate", lambda name, cache: None)
    monkeypatch.setattr(bench, "detect", lambda choice, cache: None)
    for module, function in (
        (build, "compare_enumeration"),
        (build, "compare_rendering"),
        (dispatch, "measure_call"),
        (dispatch, "measure_operator"),
        (dispatch, "measure_on_demand"),
        (emulated, "measure"),
        (emulated, "model_versions"),
        (emulated, "score_timing"),
        (cold, "measure"),
    ):
        monkeypatch.setattr(module, function, constant(f"{module.__name__}.{function}"))
    monkeypatch.setattr(build, "measure_graph", fail)
    monkeypatch.setattr(build, "compare_merged", lambda *arguments: Figure("merged", "1.2 s", "< 1 s", False, 1.2))
    output = tmp_path / "bench.md"
    assert commands.main(["bench", "--output", str(output)]) == InconclusiveError.exit_code
    rows = output.read_text()
    assert "| the build graph | failed: InconclusiveError | measured | NO |" in rows
    assert rows.count("| yes |") == 9
    assert rows.partition("Missed targets:\n\n")[2].splitlines() == [
        "- the build graph: failed: InconclusiveError, target measured",
        "- merged: 1.2 s, target < 1 s (1.20 of it)",
    ]
    assert "the link failed" in capsys.readouterr().err
