"""The file of a first run on a GPU, small enough to read: a case failed, and a time is twice the model's."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from ckpm.base.records import as_text
from ckpm.base.results import Results
from ckpm.reports.board import parcel
from ckpm.reports.board.page import RUN, BoardRun, BoardStep
from ckpm.reports.verdicts import Gate
from ckpm.timing.score import OWN, Score, ScoreRow
from tests.unit.reports.report_samples import SLOWER, case

CONTEXT = {"gpu": "AMD Instinct MI350X", "rocm": "70200000"}
FILES = {"batch-prefill": "results", "times": "gate", "published": "report", "model": "report", "board": "report"}
MODELLED = ScoreRow(
    group="B", kernel="asm", label="1x8/8x1024", gpu="MI355X", metric="tflops", role="score", published=900.0,
    modelled=1000.0, source="document",
)  # fmt: skip


def write_parcel(folder: Path, *, tflops: float = 500.0, stand_in: bool = False) -> Path:
    """The file ``folder``.tar.xz of a run."""
    records = folder.with_name(f"{folder.name}-records")
    Results((case(), case("batch-prefill/other", "failed", "O differs"))).write(records / "batch-prefill")
    Results((case("batch-prefill/other"),)).write(records / "beside")
    Gate.of([SLOWER], {"gpu": "MI350"}).write(records / "times")
    Score(tier="full", rows=(MODELLED,), groups={}, clocks={}).write(records / "model")
    (records / "board").write_bytes(as_text(CONTEXT))
    time = dataclasses.replace(MODELLED, group=OWN, published=tflops, modelled=None, ghz=1.5)
    Score(tier="full", rows=(time,), groups={}, clocks={}).write(records / "published")
    steps = tuple(
        BoardStep(name=name, question="why?", command="ckpm", code=8 if role == "results" else 0, files={role: name})
        for name, role in FILES.items()
    )
    run = BoardRun(
        arch="gfx950", host="01234567", date="2026-01-01", commit="abc", tier="full", stand_in=stand_in, steps=steps,
        beside={"batch-prefill/other": "beside"},
    )  # fmt: skip
    sources = {name: records / name for name in (*FILES, "beside")}
    return parcel.pack(sources, {RUN: as_text(dataclasses.asdict(run)).decode()}, folder, epoch=0)
