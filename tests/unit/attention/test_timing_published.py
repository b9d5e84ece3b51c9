"""The data set of published measurements: roles, reasons, shapes, and how many rows there are."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from ckpm.base.errors import TableError
from ckpm.timing.published import TABLE, published_figures, published_pairs

CALIBRATING = "kernel: v_fma_f32, gpu: MI355X, metric: cycles, role: calibrate"


def test_table_has_rows_of_both_roles_and_kinds() -> None:
    figures = published_figures()
    roles = Counter(figure.role for figure in figures)
    assert (roles["score"] > 120, roles["calibrate"] > 20) == (True, True)
    scored = Counter(figure.metric for figure in figures if figure.role == "score" and figure.model)
    assert (scored["tflops"] >= 200, scored["cycles"] + scored["share"] >= 25) == (True, True)
    assert {figure.gpu for figure in figures if figure.model == "asm"} == {"MI300X", "MI355X"}
    assert published_pairs()


def test_flops_of_shape_are_published_rate_times_published_time() -> None:
    """HipKittens' mi355x_mha_causal_fwd.json: 16 x 16 heads of 1,024 take 0.1239007 ms at 554.633 TFLOP/s."""
    row = next(
        figure for figure in published_figures()
        if (figure.kernel, figure.label, figure.gpu) == ("aiter-fwd-bf16-causal", "16x16/16x1024", "MI355X")
    )  # fmt: skip
    assert row.shape is not None
    assert row.shape.flops == pytest.approx(0.12390072993934155e-3 * 554.6333485657686e12)


AGAIN = "  - {kernel: lds-chase, gpu: MI355X, metric: cycles, role: score, source: latencies, model: stream,\n"


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (CALIBRATING, CALIBRATING.replace("v_fma_f32", "fav4"), "'fav4' calibrates the model and is scored by it"),
        ("source: latencies, model: stream", "source: rumours, model: stream", "there is no source 'rumours'"),
        ("source: latencies, model: stream", "source: latencies", "give a model, or the reason why there is none"),
        ("1x32/8x1024: 338.07", "1x32x1024: 338.07", "'1x32x1024' is not a shape BATCHxHEADS/KV_HEADSxLENGTH"),
        ("first-dot: 86.5", "first-dot: 0", r"sets\[11\]\.rows\.first-dot"),
        (AGAIN, f"{AGAIN}     rows: {{lds-chase: 70}}}}\n{AGAIN}", "row 'lds-chase' is given twice"),
        ("- [aiter-fwd-bf16, ck-fwd-bf16-d128]", "- [aiter-fwd-bf16, ours]", "there is no kernel 'ours'"),
    ],
)  # fmt: skip
def test_damaged_table_is_refused(before: str, after: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "published.yaml"
    text = TABLE.read_text(encoding="utf-8")
    assert before in text
    file.write_text(text.replace(before, after, 1), encoding="utf-8")
    with pytest.raises(TableError, match=message):
        published_figures(file)
