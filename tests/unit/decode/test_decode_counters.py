"""Counters of decode that a gate finds beside the kernels: they are of this program and of the timing model's table."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from ckpm.attention.launch.counters import METRICS, Measured
from ckpm.decode import measuring
from ckpm.decode.attention import Stages
from ckpm.decode.built import BuiltDecode
from ckpm.decode.guard.compiling import Code
from ckpm.decode.guard.figures import Figures
from ckpm.decode.measuring import DecodeOutcome, demand_counters
from ckpm.decode.problem import DecodeProblem, problems
from ckpm.timing import machine
from tests.unit.shared import replace_text

FIGURES = Figures(vgpr=1, agpr=0, sgpr=1, vgpr_spills=0, sgpr_spills=0, scratch_bytes=0, lds_bytes=0, waves=4)


def test_counters_of_another_timing_model_are_measured_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The gate compares modelled cycles, which change with machine.yaml as the program does not."""
    problem, file, table = problems("gfx950")[0], tmp_path / "counters.json", tmp_path / "machine.yaml"
    cycles = iter((4096, 8192))  # of a workgroup, one of eight splits of 4,096 tokens

    def stub(device: Any, stages: Stages, problem: DecodeProblem) -> DecodeOutcome:
        counts = Measured(
            problem=problem.name, kernel="k", dtype="bf16", occupancy_waves=4, compulsory_bytes=1,
            counters=dict.fromkeys(METRICS, 1),
        )  # fmt: skip
        return DecodeOutcome(figures=FIGURES, counts=counts, resident=1, tokens=512, cycles=next(cycles))

    for name, value in {
        "measure": stub,
        "EmulatedDevice": lambda arch: None,
        "problems": lambda arch: [problem],
    }.items():
        monkeypatch.setattr(measuring, name, value)
    code = Code(binary=b"code", symbol="k", lds_bytes=0)
    built = BuiltDecode(arch="gfx950", compiler="triton", stages={problem.name: Stages(attention=code, reduction=code)})
    shutil.copy(machine.TABLE, table)
    monkeypatch.setattr(machine, "TABLE", table)
    assert demand_counters(built, file) == demand_counters(built, file)
    table.write_text(replace_text(table.read_text(), "gfx950: ", "gfx950: 1"))
    assert demand_counters(built, file).cycles_a_token == {problem.name: 16.0}
