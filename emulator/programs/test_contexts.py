"""Calls of the driver's kind, as IREE and others make them. Expectations: HIP's manual and ROCm's clr."""

from __future__ import annotations

from pathlib import Path

import pytest

from programs.program_builder import sample
from programs.test_programs import output, run

INVALID_VALUE = "hipErrorInvalidValue"


def test_contexts_copies_and_objects(tmp_path: Path) -> None:
    file = tmp_path / "graph.dot"
    provoked = ("--checks", "all", "--quiet")  # it frees the middle of an allocation
    lines = output(sample("contexts"), file, options=provoked).decode().splitlines()
    assert lines == [
        *("devices hipSuccess", "retain_other hipErrorInvalidDevice", "pop_without_push hipErrorInvalidContext"),
        *("same 1", "uuid 1", f"rows {32 + 4} {32 + 11} {64 + 4}", "range 1 128 1", f"of_host {INVALID_VALUE}"),
        *(f"free_inside {INVALID_VALUE}", "with_exec 0", "without 1"),
    ]
    text = file.read_text()
    assert text.startswith("digraph")
    assert text.count("[label=") == 1


# ROCm reads the list up to the first number that no device has.
@pytest.mark.parametrize("variable", ["HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"])
@pytest.mark.parametrize(
    ("chosen", "visible"),
    [
        *(("0", True), ("", True), ("0,5", True), ("00", True)),
        *(("-1", False), ("3", False), ("7,0", False), ("x", False), ("0x", False), ("GPU-0", False)),
    ],
)
def test_devices_are_hidden_as_chosen(variable: str, chosen: str, visible: bool) -> None:
    lines = run(sample("contexts"), variables={variable: chosen}).stdout.decode().splitlines()
    assert lines[:2] == (
        ["devices hipSuccess", "retain_other hipErrorInvalidDevice"]
        if visible
        else ["devices hipErrorNoDevice", "malloc hipErrorNoDevice"]
    )


@pytest.mark.parametrize(("arch", "units"), [("gfx942", "304"), ("gfx950", "256")])
def test_compute_units_are_those_of_board(arch: str, units: str) -> None:
    """MI300X and MI350X (AMD's data sheets)."""
    answers = dict(
        line.split(" ", 1) for line in output(sample("queries"), options=("--arch", arch)).decode().splitlines()
    )
    assert answers["compute_units"] == units
