"""Published figures: as their documents have them, beside times of the same problem and hardware, and no verdict."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from ckpm.attention.launch import device
from ckpm.base.errors import TableError
from ckpm.matrix.problems.case import SuiteCase
from ckpm.matrix.problems.performance import performance_problems
from ckpm.reports.gates import gpu as gpu_gate
from ckpm.reports.gates.references import REFERENCES, compare_with_references, read_references
from ckpm.reports.page.inputs import gather
from ckpm.reports.page.markdown import markdown
from ckpm.reports.page.overall import overall
from ckpm.reports.page.sections import tables
from ckpm.reports.verdicts import Gate
from tests.unit.reports.report_samples import SLOWER
from tests.unit.shared import Run

ONE_K = "performance/published_fp8.tensor-q1k"
SETTERS = "performance/published_setters.q1024k1024"
MI355X = {"gpu": "AMD Instinct MI355X", "rocm": "7.2.0"}


def gate_of(
    subject: str, microseconds: float, before: float = 40.0, gpu: str = MI355X["gpu"], metric: str = "time"
) -> Gate:
    figures: dict[str, Any] = {"subject": subject, "metric": metric, "baseline": before, "candidate": microseconds}
    row = dataclasses.replace(SLOWER, **figures, verdict="improved")
    return Gate.of([row], {**MI355X, "gpu": gpu})


def values_of(name: str, variant: str) -> list[float]:
    return [figure.value for figure in read_references() if figure.name == name and figure.variant == variant]


def test_figures_are_those_of_documents() -> None:
    assert values_of("fp8-per-tensor", "V2")[:3] == [43.1, 95.4, 197.5]
    assert values_of("fp8-per-tensor", "V3")[-3:] == [1390.2, 1381.8, 1304.3]
    assert values_of("fp8-kv-block-scale", "V3")[-3:] == [1330.3, 1324.2, 1251.6]
    # the documents' own ratios of V3 over V2, a row each
    for name, ratios in (
        ("fp8-per-tensor", (1.11, 1.26, 1.31, 1.39, 1.37, 1.28, 1.32, 1.30, 1.29, 1.40)),
        ("fp8-kv-block-scale", (1.06, 1.17, 1.22, 1.31, 1.36, 1.19, 1.24, 1.24, 1.22, 1.32)),
    ):
        pairs = zip(values_of(name, "V2"), values_of(name, "V3"), ratios, strict=True)
        assert all(abs(new / old - ratio) <= 0.0051 for old, new, ratio in pairs)
    assert values_of("num-records-setters", "V2") == [1.0267]
    assert [values_of(f"decode-{what}", "after") for what in ("time", "registers", "spills", "waves")] == [
        [105], [108], [0], [2],
    ]  # fmt: skip


def test_every_described_problem_is_there_to_be_timed() -> None:
    problems = performance_problems("nightly")
    described = [figure for figure in read_references() if figure.shape]
    assert len(described) == 2 * 2 * 10 + 1
    for figure in described:
        assert len([problem for problem in problems if figure.shape and figure.shape.is_of(problem)]) == 1, figure.label


def test_comparison_states_assumption_of_figure() -> None:
    forty = [figure for figure in read_references() if figure.label == "h=40/40 sq=37k nc"]
    assert {(figure.shape.heads, figure.shape.seqlen, figure.shape.causal) for figure in forty if figure.shape} == {
        ((40, 40), 37 * 1024, False)
    }
    assert [figure.assumed for figure in read_references() if figure.assumed] == [forty[0].assumed] * 4
    (comparison, _) = compare_with_references(gate_of("performance/published_fp8.tensor-h40q37k", 50_000.0))
    assert str(comparison).endswith("; 37k as 37 * 1,024; the document does not say which length it is)")


def test_time_is_shown_beside_what_was_published() -> None:
    # 1024 causal queries see 524,800 scores a head: 6 heads, 2 gemms, 2 * 128 flops each: 1.612e9 in 33.8 us
    older, newer = compare_with_references(gate_of(ONE_K, 33.8))
    assert [older.reference.variant, newer.reference.variant] == ["V2", "V3"]
    assert newer.measured == pytest.approx(524_800 * 6 * 2 * 256 / 33.8e-6 / 1e12)
    assert newer.ratio == pytest.approx(47.7 / 47.7, rel=0.001)
    assert (newer.word, older.word) == ("as published", "as published")
    assert str(newer) == (
        f"{ONE_K}: tflops 47.698 TFLOP/s, published for V3 47.7: ratio 1.000, as published (fp8-per-tensor: "
        "h=6/1 sq=1k c, MI355X, ROCm 7.1.1, ROCm 7.2.0 here)"
    )
    assert [comparison.word for comparison in compare_with_references(gate_of(ONE_K, 60.0))] == ["below", "below"]
    assert [comparison.word for comparison in compare_with_references(gate_of(ONE_K, 20.0))] == ["above", "above"]


def test_change_is_shown_beside_cost_of_published_one() -> None:
    (comparison,) = compare_with_references(gate_of(SETTERS, 41.068, before=40.0))
    assert comparison.measured == pytest.approx(1.0267)
    assert comparison.word == "as published"
    assert compare_with_references(gate_of(SETTERS, 40.0, before=40.0))[0].word == "below"


@pytest.mark.parametrize(
    "gate",
    [
        gate_of(ONE_K, 33.8, gpu="emulated gfx950"),
        gate_of(ONE_K, 33.8, gpu="AMD Instinct MI300X"),
        gate_of(ONE_K, 33.8, metric="time, cold cache"),
        gate_of("performance/prefill.m64-full-q256k1024", 33.8),
        gate_of("geometric mean", 1.0),
    ],
)
def test_other_hardware_or_problem_has_no_published_figure(gate: Gate) -> None:
    assert compare_with_references(gate) == []


@pytest.mark.parametrize(
    "change",
    [
        {"seqlens_q": (1024, 1024), "seqlens_k": (1024, 2048)},
        {"mask": "no"},
        {"window_left": 255},
        {"nhead_q": 8},
        {"page_size": 16},
        {"kv_layout": "vectorized"},
        {"logits_soft_cap": 30.0},
        {"lse": True},
    ],
)
def test_shape_is_of_no_problem_that_differs(change: dict[str, object]) -> None:
    (problem,) = (problem for problem in performance_problems("nightly") if problem.name == ONE_K)
    (shape,) = {figure.shape for figure in read_references() if figure.shape and figure.shape.is_of(problem)}
    other: SuiteCase = dataclasses.replace(problem, **change)  # type: ignore[arg-type]
    assert not shape.is_of(other)


def test_report_shows_published_figures_without_verdict(tmp_path: Path) -> None:
    gate_of(ONE_K, 60.0).write(tmp_path / "gpu.json")
    inputs = gather(tmp_path)
    verdict = overall(inputs)
    assert verdict.verdict == "passed"  # though the figures are below
    (table,) = (table for table in tables(inputs) if table.id == "references")
    assert [(row[0], row[2], row[4], row[7]) for row in table.rows] == [
        (ONE_K, "V2", 43.1, "below"),
        (ONE_K, "V3", 47.7, "below"),
    ]
    printed = f"- {ONE_K}: tflops 26.870 TFLOP/s, published for V3 47.7: ratio 0.563, below"
    assert printed.replace("26.870", "26.87") in markdown(inputs, verdict)


def test_compare_prints_published_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    monkeypatch.setattr(device, "choose", lambda *_: None)
    monkeypatch.setattr(gpu_gate, "side", lambda *_: None)
    monkeypatch.setattr(gpu_gate, "compare", lambda *_: gate_of(ONE_K, 60.0))
    code, out, _ = run("compare", "--baseline", "a.so", "--candidate", "b.so", "--output", tmp_path / "gpu.json")
    assert code == 0
    first, *lines = out.splitlines()
    assert first.startswith("improved: 1 improved")
    assert [line.partition(" published for ")[2][:8] for line in lines] == ["V2 43.1:", "V3 47.7:"]
    assert Gate.read(tmp_path / "gpu.json").verdict == "improved"
    assert (tmp_path / "gpu.xml").exists()


def test_command_lists_figures_with_their_documents(run: Run) -> None:
    code, out, _ = run("model", "--references")
    assert code == 0
    printed = " ".join(out.split())
    assert "h=6/1 sq=131k c V3 1390.2 TFLOP/s" in printed
    assert "h=40/40 sq=37k nc V3 1304.3 TFLOP/s within 0.15" in printed
    assert "h=40/40 sq=37k nc: 37k as 37 * 1,024; the document does not say which length it is" in printed
    assert "runtime before 125 us listed only" in printed
    assert "Optimizations for Decode Attn fp8 kernel MI350 #75" in printed


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("source: batch-prefill-v3", "source: unknown", "unknown 'unknown'; known: batch-prefill-v3"),
        ("V2: 43.1", "V2: many", "figures.fp8-per-tensor.rows[0].values.V2: must be a number, not 'many'"),
        ("V2: 43.1", "V2: 0", "must be above 0"),
        ("metric: tflops", "metric: vgpr", "metric vgpr is listed only"),
        ("heads: [6, 1], seqlen: 1024", "haeds: [6, 1], seqlen: 1024", "unknown field; known here: seqlen"),
        ("qscale: pertensor", "qscale: pertoken", "unknown 'pertoken'; known: no, pertensor, kv_blockscale"),
        ("hardware: MI355X", "hardware: ''", "sources.batch-prefill-v3.hardware: is empty"),
    ],
)
def test_mistake_is_named(tmp_path: Path, old: str, new: str, complaint: str) -> None:
    file = tmp_path / "references.yaml"
    text = REFERENCES.read_text()
    at = text.index(old, text.index("\nsources:"))
    file.write_text(text[:at] + new + text[at + len(old) :])
    with pytest.raises(TableError, match=r"references\.yaml:\d+: ") as caught:
        read_references(file)
    assert complaint in str(caught.value)
