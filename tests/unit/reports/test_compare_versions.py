"""`ckpm compare` of V3 against V2: one library, launched with V3 turned off and on; what was launched is looked at."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ckpm.attention.launch.c_abi import Launch, Library
from ckpm.attention.timing import tables
from ckpm.attention.timing.measure import performance_problems
from ckpm.base.errors import InconclusiveError
from ckpm.commands import main
from ckpm.kernels.abi import LaunchArguments, Status
from ckpm.matrix.dialects import dialect
from ckpm.matrix.keys import Key, is_v3
from ckpm.matrix.problems.case import SuiteCase
from ckpm.matrix.selection import Selection, select
from ckpm.reports.gates import compare_command, gpu
from ckpm.reports.verdicts import V3_AGAINST_V2, Gate
from tests.unit.reports.test_gpu_gate import KNOWN, SETTINGS, device

UPSTREAM = ("--upstream", "ckpm", "--profile", "v3")
KEYS = tuple(select(dialect("prefill-v3"), Selection(archs=("gfx950",), tier="full")))
ONE_K = "performance/published_fp8.tensor-q1k"
MI355X = "AMD Instinct MI355X"


def library(obeys: bool = True) -> gpu.Side:
    """A library whose V2 takes 1 ms and whose V3, unless CKPM_V3 is 0 and it ``obeys``, 0.7 ms."""

    def launch(given: Any, kernel: str | None) -> Launch:
        v3 = not obeys or os.environ.get("CKPM_V3") != "0"
        name = next(key.name for key in KEYS if is_v3(key.pipeline) == v3)
        return Launch(status=Status.OK, message="", kernels=(name,), milliseconds=0.7 if v3 else 1.0)

    loaded = cast(
        Library, SimpleNamespace(launch=launch, path=Path("lib.so"), family="batch_prefill", arguments=LaunchArguments)
    )
    return gpu.Side(library=loaded, keys=KEYS, file_facts={})


@pytest.fixture
def both(monkeypatch: pytest.MonkeyPatch) -> tuple[gpu.Side, gpu.Side]:
    monkeypatch.setattr(gpu, "side", lambda device, path: library())
    return gpu.versions(device(), Path("lib.so"))


def problems(*names: str) -> list[SuiteCase]:
    return [one for one in performance_problems("nightly") if one.name in names]


def compare_sides(both: Sequence[gpu.Side]) -> Gate:
    v2, v3 = both
    (small,) = problems("performance/v3.full-tensor")
    return gpu.compare(device(), v2, v3, gpu.problems_of_both(v2, v3, [small]), SETTINGS)


def test_baseline_is_v2_and_candidate_v3(both: tuple[gpu.Side, gpu.Side], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CKPM_V3", "1")
    gate = compare_sides(both)
    assert gate.verdict == "improved"
    assert [row.baseline for row in gate.rows] == pytest.approx([1000, 1000])
    assert [row.candidate for row in gate.rows] == pytest.approx([700, 700])
    assert V3_AGAINST_V2 in gate.provenance
    assert os.environ["CKPM_V3"] == "1"
    assert [all(is_v3(key.pipeline) == side.v3 for key in side.keys) for side in both] == [True, True]


def test_library_that_launches_other_version_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "side", lambda device, path: library(obeys=False))
    with pytest.raises(
        InconclusiveError, match=r"v3\.full-tensor: V3 is turned off, and fmha_batch_prefill_.*trload_v3"
    ):
        compare_sides(gpu.versions(device(), Path("lib.so")))


def test_problems_of_both_have_every_published_row(
    both: tuple[gpu.Side, gpu.Side],
) -> None:
    names = [one.name for one in gpu.problems_of_both(*both, performance_problems("nightly"))]
    assert sum(name.startswith("performance/published_fp8.") for name in names) == 20
    assert "performance/decode.q1k4096b2" not in names
    with pytest.raises(InconclusiveError, match="none of the problems has a kernel of V3 and one of V2"):
        gpu.problems_of_both(*both, problems("performance/published_setters.q1024k1024"))


def test_two_libraries_are_not_called_two_versions() -> None:
    side = library()
    gate = gpu.compare(device(), side, side, problems("performance/v3.full-tensor"), SETTINGS)
    assert V3_AGAINST_V2 not in gate.provenance


def test_one_command_answers_row_by_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Measure 1 ms / 0.7 ms on the documents' device, where 47.7 / 43.1 was published."""
    here = device(*[{**KNOWN, "gpu": MI355X}] * 2)
    monkeypatch.setattr("ckpm.attention.launch.device.choose", lambda *_: here)
    monkeypatch.setattr(gpu, "side", lambda device, path: library())
    monkeypatch.setattr(compare_command, "library", lambda toolchain, work: work / "lib.so")
    monkeypatch.setattr(compare_command, "read_settings", lambda: SETTINGS)
    output = tmp_path / "gpu.json"
    assert main(["compare", *UPSTREAM, "--tier", "nightly", "--case", "*tensor-q1k", "--output", str(output)]) == 0
    text = capsys.readouterr().out
    assert f"{ONE_K}: V3/V2 1.43, published 1.11; at least as published: yes" in text
    assert Gate.read(output).provenance["gpu"] == MI355X


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "give --baseline and --candidate, or --upstream ckpm-v3 and neither of them"),
        (("--baseline", "a.so"), "give --baseline and --candidate"),
        ((*UPSTREAM, "--baseline", "a.so"), "and neither of them"),
        (("--upstream", "ckpm"), "only ckpm-v3 on gfx950 has V3 before V2"),
        ((*UPSTREAM, "--arch", "gfx942"), "only ckpm-v3 on gfx950 has V3 before V2"),
    ],
)
def test_words_that_name_no_two_sides(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], message: str
) -> None:
    assert main(["compare", *words, "--output", str(tmp_path / "gpu.json")]) == 2
    assert message in capsys.readouterr().err


def test_what_tables_build_serves_every_row() -> None:
    """Four kernels of each version; without one of them a problem of the documents has no row."""
    where = Selection(archs=("gfx950",), tier="full", where=(tables.WHERE,))
    chosen = tuple(select(dialect("prefill-v3"), where))
    assert [sum(is_v3(key.pipeline) == v3 for key in chosen) for v3 in (True, False)] == [4, 4]
    published = [one for one in performance_problems("nightly") if one.name.startswith("performance/published_fp8.")]

    def rows(keys: Sequence[Key]) -> int:
        v2, v3 = (
            gpu.Side(library=library().library, keys=[key for key in keys if is_v3(key.pipeline) == v3], file_facts={})
            for v3 in (False, True)
        )
        return len(gpu.problems_of_both(v2, v3, published))

    assert rows(chosen) == 20
    assert all(rows([key for key in chosen if key is not left]) < 20 for left in chosen)
