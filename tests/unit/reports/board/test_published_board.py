"""A published problem whose output is wrong has no time, and fails the step."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

from ckpm.attention.launch import device
from ckpm.base.errors import CheckFailedError, DeviceError
from ckpm.commands import parse
from ckpm.reports.board import published
from ckpm.timing.asm import TimedLaunch
from ckpm.timing.published import PublishedShape
from ckpm.timing.score import Score
from tests.unit.reports.board_samples import MODELLED

SHAPE = PublishedShape(batch=2, heads=4, kv_heads=2, length=40, head_dim=16, causal=True)


def attend(shape: PublishedShape) -> TimedLaunch:
    """A launch with the right O, by plain formulas."""
    numbers, kind, (b, h, kv, n, d) = np.random.default_rng(1), ml_dtypes.bfloat16, dataclasses.astuple(shape)[:5]
    q, k, v = (numbers.uniform(-1, 1, (b, n, heads, d)).astype(kind) for heads in (h, kv, kv))
    keys, values = (np.repeat(part, h // kv, axis=2).astype(float) for part in (k, v))
    scores = np.exp(np.einsum("bqhd,bkhd->bhqk", q.astype(float), keys) / d**0.5)
    scores *= np.tri(n) if shape.causal else 1
    o = np.einsum("bhqk,bkhd->bqhd", scores / scores.sum(-1, keepdims=True), values).astype(kind)
    arrays = (part.reshape(b * n, -1, d).view(np.uint16) for part in (q, k, v, o))
    return TimedLaunch(1.0, dict(zip("qkvo", arrays, strict=False)), o.reshape(b * n, h, d).view(np.uint16))


@pytest.mark.parametrize("causal", [False, True])
def test_difference_finds_rows_that_are_wrong(causal: bool) -> None:
    shape = dataclasses.replace(SHAPE, causal=causal)
    timed = attend(shape)
    assert published.difference(shape, timed) == ""
    for row in (0, -1):  # the first and the last
        wrong = timed.o.copy()
        wrong[row, row, 5] ^= 0x4000
        complaint = published.difference(shape, timed._replace(o=wrong))
        assert complaint.startswith("wrong: 1 of 16 rows of O, the first of sequence")
    assert "16 of 16 rows" in published.difference(shape, timed._replace(o=np.zeros_like(timed.o)))
    other_mask = dataclasses.replace(shape, causal=not causal)
    assert "rows of O" in published.difference(other_mask, timed)


def test_wrong_problem_fails_board_times_and_is_not_modelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    timed = attend(SHAPE)
    monkeypatch.setattr(device, "choose", lambda *arguments: SimpleNamespace(arch="gfx942", sensors=dict))
    monkeypatch.setattr("ckpm.timing.asm.code_object", lambda *arguments: (b"", ""))
    monkeypatch.setattr("ckpm.timing.asm.time", lambda *arguments: timed._replace(o=np.zeros_like(timed.o)))
    monkeypatch.setattr(
        published, "published_figures", lambda: [SimpleNamespace(
            arch="gfx942", model="asm", shape=SHAPE, kernel="asm", label="1x8/8x1024", gpu="MI355X",
        )],
    )  # fmt: skip
    file = tmp_path / "times.json"
    args = parse(["timing", "board", "--arch=gfx942", "--tier=smoke", f"--output={file}"])
    with pytest.raises(CheckFailedError, match="O of 1 of 1 published problems is wrong"):
        published.run(args)
    score = Score.read(file)
    assert score.rows[0].published == 0
    assert score.rows[0].reason.startswith("wrong: 16 of 16 rows")
    assert published.beside_model(score, Score(tier="full", rows=(MODELLED,), groups={}, clocks={}))[1] == {}


def test_board_without_gpu_is_refused_before_compiling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def compile_kernels(*_: object, **__: object) -> None:
        pytest.fail("kernels were compiled for a GPU that is not there")

    def choose(*_: object) -> None:
        raise DeviceError("no GPU")

    monkeypatch.setattr(device, "choose", choose)
    monkeypatch.setattr("ckpm.timing.tables.library", compile_kernels)
    args = parse(["timing", "board", "--arch=gfx950", f"--output={tmp_path / 'times.json'}"])
    with pytest.raises(DeviceError, match="no GPU"):
        published.run(args)
