"""The GPU gate's way from launches to a verdict, on a device and libraries whose times are known.

`ckpm compare` times V3 against V2 of one library.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from ckpm.attention.launch import gpu_context
from ckpm.attention.launch.c_abi import Launch, Library
from ckpm.attention.launch.device import Device
from ckpm.attention.launch.hip_api import Memory
from ckpm.base.errors import InconclusiveError, UsageError
from ckpm.base.outputs import write_output
from ckpm.kernels.abi import LaunchArguments, Status
from ckpm.matrix.dialects import dialect
from ckpm.matrix.keys import Key, is_v3
from ckpm.matrix.problems.case import SuiteCase
from ckpm.matrix.problems.performance import performance_problems
from ckpm.matrix.selection import Selection, select
from ckpm.reports.gates import compare_command, gpu
from ckpm.reports.gates.gpu import Side, compare
from ckpm.reports.gates.statistics import CONTEXT, read_settings
from ckpm.reports.verdicts import COLD, V3_AGAINST_V2, WARM, Gate, demand
from ckpm.timing import tables
from tests.unit.shared import Run

SETTINGS = msgspec.structs.replace(read_settings(), cold_bytes=64)
ONE = SuiteCase(name="performance/one", suite="performance", tier="smoke", group="g")
KNOWN = dict.fromkeys(CONTEXT, "known")
BUS = "0000:c1:00.0"
UPSTREAM = ("--upstream", "ckpm", "--profile", "v3")
KEYS = tuple(select(dialect("prefill-v3"), Selection(archs=("gfx950",), tier="full")))
ONE_K = "performance/published_fp8.tensor-q1k"
MI355X = "AMD Instinct MI355X"


class Hip:
    """Memory that is not read; counts how often the cache was emptied."""

    def __init__(self) -> None:
        self.filled, self._addresses = 0, itertools.count(1 << 20, 1 << 20)

    def malloc(self, size: int) -> Memory:
        return Memory(next(self._addresses), size)

    def fill(self, memory: Memory, byte: int) -> None:
        self.filled += memory.size == SETTINGS.cold_bytes

    def free(self, memory: Memory) -> None: ...
    def write(self, memory: Memory, data: Any, offset: int = 0) -> None: ...
    def synchronize(self) -> None: ...


def device(*contexts: Mapping[str, str]) -> Device:
    """A device in these circumstances, one after the other."""
    printed = iter(contexts or (KNOWN, KNOWN))
    fake_device = SimpleNamespace(
        hip=Hip(), arch="gfx950", context=lambda: next(printed), sensors=lambda: {"clock": "2100"}, fault=lambda: None
    )
    return cast(Device, fake_device)


def make_library(launch: Callable[[Any, str | None], Launch]) -> Library:
    """A library that is launched by ``launch``."""
    fields = {"launch": launch, "path": Path("lib.so"), "family": "batch_prefill", "arguments": LaunchArguments}
    return cast(Library, SimpleNamespace(**fields))


def side(milliseconds: float, serves: Sequence[SuiteCase] | None = None, status: Status = Status.OK) -> Side:
    """A library that takes so long, with 1 % of noise. It serves every problem, or those of ``serves``."""
    noise = random.Random(milliseconds)

    def launch(arguments: Any, kernel: str | None) -> Launch:
        time = milliseconds * noise.lognormvariate(0, 0.01)
        return Launch(status=status, message="a reason", kernels=("k",), milliseconds=time)

    class Served(Side):
        def serves(self, problem: SuiteCase) -> bool:
            return serves is None or problem in serves

    return Served(library=make_library(launch), keys=(), file_facts={"library sha256": "ab"})


@pytest.mark.parametrize(
    ("candidate", "verdict", "rounds"), [(1.0001, "unchanged", 18), (1.05, "regressed", 8), (0.9, "improved", 8)]
)
def test_verdict_is_of_times_and_clear_case_ends_early(candidate: float, verdict: str, rounds: int) -> None:
    here = device()
    gate = compare(here, side(1.0), side(candidate), [ONE], SETTINGS)
    assert [(row.subject, row.metric, row.verdict) for row in gate.rows] == [
        (ONE.name, WARM, verdict),
        (ONE.name, COLD, verdict),
    ]
    assert gate.rows[0].baseline == pytest.approx(1000, rel=0.01)
    assert cast(Any, here.hip).filled == 3 * (rounds + SETTINGS.warm_up)
    assert [len(samples.again) for samples in gate.samples] == [rounds, rounds]
    assert (gate.provenance["gpu"], gate.provenance["clock_after"]) == ("known", "2100")


def test_slower_baseline_than_earlier_is_hardware_shift() -> None:
    two = [ONE, dataclasses.replace(ONE, name="performance/two")]
    earlier = compare(device(), side(1.0), side(1.0001), two, SETTINGS)
    gate = compare(device(*[{**KNOWN, "driver": "new"}] * 2), side(1.1), side(1.1001), two, SETTINGS, earlier)
    row = gate.rows[-1]
    assert row.verdict == "hardware shift"
    assert row.note == "2 of 2 times moved alike: the hardware or its clock did; driver: known / new"
    assert row.candidate == pytest.approx(1.1, rel=0.01)
    demand(gate)
    with pytest.raises(UsageError, match="the earlier comparison has another baseline"):
        compare(device(), side(1.0), side(1.0), two, SETTINGS, dataclasses.replace(earlier, provenance=KNOWN))


def test_earlier_comparison_is_refused_before_times_are_taken() -> None:
    other = dataclasses.replace(ONE, name="performance/two")
    earlier = compare(device(), side(1.0), side(1.0001), [other], SETTINGS)
    here = device()
    with pytest.raises(UsageError, match="the earlier comparison has no time of these problems"):
        compare(here, side(1.0), side(1.0), [ONE], SETTINGS, earlier)
    assert cast(Any, here.hip).filled == 0


def test_one_time_that_moved_is_called_one() -> None:
    earlier = compare(device(), side(1.0), side(1.0001), [ONE], SETTINGS)
    row = compare(device(), side(1.2), side(1.2001), [ONE], SETTINGS, earlier).rows[-1]
    assert row.verdict == "inconclusive"
    assert row.note.startswith("only one time to compare: performance/one +")


def test_show_prints_samples_of_result(tmp_path: Path, run: Run) -> None:
    result = tmp_path / "gpu.json"
    gate = compare(device(), side(1.0), side(1.05), [ONE], SETTINGS)
    gate.write(result)
    code, out, _ = run("compare", "--output", result, "--show", "one")
    assert code == 0
    printed = out.splitlines()
    assert printed[0].startswith("regressed: time: ")
    assert printed[1].split() == ["round", "baseline", "candidate", "again"]
    first = gate.samples[0]
    assert printed[2].split() == ["1", *(f"{times[0]:.2f}" for times in (first.baseline, first.candidate, first.again))]
    assert run("compare", "--output", result, "--show", "two")[0] == 2


def test_changed_clock_policy_is_not_comparable() -> None:
    gate = compare(device(KNOWN, {**KNOWN, "clock_policy": "low"}), side(1.0), side(1.0), [ONE], SETTINGS)
    assert gate.verdict == "not comparable"


def test_problem_that_candidate_lost_is_regression() -> None:
    two = dataclasses.replace(ONE, name="performance/two")
    gate = compare(device(), side(1.0), side(1.0001, serves=[ONE]), [ONE, two], SETTINGS)
    assert [(row.subject, row.verdict) for row in gate.failing] == [("performance/two", "regressed")]
    alone = compare(device(), side(1.0), side(1.0, serves=[]), [ONE], SETTINGS)
    assert [(row.subject, row.verdict) for row in alone.rows] == [(ONE.name, "regressed")]
    with pytest.raises(InconclusiveError, match="no times were taken"):
        compare(device(), side(1.0, serves=[]), side(1.0), [ONE], SETTINGS)


def test_launch_that_fails_stops_gate() -> None:
    with pytest.raises(InconclusiveError, match=r"performance/one: lib.so: a reason"):
        compare(device(), side(1.0), side(1.0, status=Status.HIP_ERROR), [ONE], SETTINGS)


def test_compare_without_gpu_removes_old_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    monkeypatch.setattr("ckpm.base.rocm_places.runtime", lambda: None)
    result = tmp_path / "gate.json"
    write_output(result, b"an older verdict")
    code, _, err = run("compare", "--rocm", "--baseline", "a.so", "--candidate", "b.so", "--output", result)
    assert (code, "libamdhip64.so is nowhere where the loader looks" in err) == (7, True)
    assert not result.exists()


@pytest.fixture
def card(tmp_path: Path) -> Callable[[str, str], None]:
    """Writes a file of the one card's folder."""
    card_folder = tmp_path / "devices" / BUS
    card_folder.mkdir(parents=True)
    (tmp_path / "drm/card1").mkdir(parents=True)
    (tmp_path / "drm/card1/device").symlink_to(card_folder)

    def write(name: str, text: str) -> None:
        (card_folder / name).parent.mkdir(parents=True, exist_ok=True)
        (card_folder / name).write_text(text)

    return write


def test_circumstances_are_read_from_driver(tmp_path: Path, card: Callable[[str, str], None]) -> None:
    card("power_dpm_force_performance_level", "perf_determinism\n")
    card("current_compute_partition", "SPX\n")
    card("hwmon/hwmon3/power1_cap", "1400000000\n")
    card("hwmon/hwmon3/temp2_input", "41000\n")
    (tmp_path / "version").write_text("6.16.6\n")
    assert gpu_context.settings(BUS.upper(), tmp_path / "drm", tmp_path / "version") == {
        "driver": "6.16.6",
        "clock_policy": "perf_determinism 1400000000",
        "compute_partition": "SPX",
        "memory_partition": "",
    }
    assert gpu_context.sensors(BUS, tmp_path / "drm") == {"temperature": "41000"}


@pytest.mark.parametrize("bus", ["0000:c2:00.0", ""])
def test_settings_of_missing_card_are_empty(tmp_path: Path, card: Callable[[str, str], None], bus: str) -> None:
    card("power_dpm_force_performance_level", "auto")
    card_settings = gpu_context.settings(bus, tmp_path / "drm", tmp_path / "version")
    assert (card_settings["clock_policy"], card_settings["compute_partition"]) == ("", "")


def test_result_is_not_overwritten_by_its_own_junit(tmp_path: Path, run: Run) -> None:
    result = tmp_path / "gpu.xml"
    result.write_text("somebody's file")
    code, _, err = run("compare", "--baseline", "a.so", "--candidate", "b.so", "--output", result)
    assert (code, "the result is JSON; its JUnit goes beside it, as gpu.xml" in err) == (2, True)
    assert result.read_text() == "somebody's file"


def library(obeys: bool = True) -> gpu.Side:
    """A library whose V2 takes 1 ms and whose V3, unless CKPM_V3 is 0 and it ``obeys``, 0.7 ms."""

    def launch(arguments: Any, kernel: str | None) -> Launch:
        v3 = not obeys or os.environ.get("CKPM_V3") != "0"
        name = next(key.name for key in KEYS if is_v3(key.pipeline) == v3)
        return Launch(status=Status.OK, message="", kernels=(name,), milliseconds=0.7 if v3 else 1.0)

    return gpu.Side(library=make_library(launch), keys=KEYS, file_facts={})


@pytest.fixture
def both(monkeypatch: pytest.MonkeyPatch) -> tuple[gpu.Side, gpu.Side]:
    monkeypatch.setattr(gpu, "side", lambda device, path: library())
    return gpu.versions(device(), Path("lib.so"))


def problems(*names: str) -> list[SuiteCase]:
    return [problem for problem in performance_problems("nightly") if problem.name in names]


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


def test_problems_of_both_have_every_published_row(both: tuple[gpu.Side, gpu.Side]) -> None:
    names = [problem.name for problem in gpu.problems_of_both(*both, performance_problems("nightly"))]
    assert sum(name.startswith("performance/published_fp8.") for name in names) == 20
    assert "performance/decode.q1k4096b2" not in names
    with pytest.raises(InconclusiveError, match="none of the problems has a kernel of V3 and one of V2"):
        gpu.problems_of_both(*both, problems("performance/published_setters.q1024k1024"))


def test_two_libraries_are_not_called_two_versions() -> None:
    side = library()
    gate = gpu.compare(device(), side, side, problems("performance/v3.full-tensor"), SETTINGS)
    assert V3_AGAINST_V2 not in gate.provenance


def test_one_command_answers_row_by_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    """Measure 1 ms / 0.7 ms on the documents' device, where 47.7 / 43.1 was published."""
    here = device(*[{**KNOWN, "gpu": MI355X}] * 2)
    monkeypatch.setattr("ckpm.attention.launch.device.choose", lambda *_: here)
    monkeypatch.setattr(gpu, "side", lambda device, path: library())
    monkeypatch.setattr(compare_command, "library", lambda toolchain, work: work / "lib.so")
    monkeypatch.setattr(compare_command, "read_settings", lambda: SETTINGS)
    output = tmp_path / "gpu.json"
    command = ["compare", *UPSTREAM, "--tier", "nightly", "--case", "*tensor-q1k", "--output"]
    code, text, _ = run(*command, output)
    assert (code, f"{ONE_K}: V3/V2 1.43, published 1.11: +" in text) == (0, True)
    assert Gate.read(output).provenance["gpu"] == MI355X
    here = device(*[{**KNOWN, "gpu": MI355X}] * 2)
    assert run(*command, tmp_path / "later.json", "--earlier", output)[0] == 0
    assert Gate.read(tmp_path / "later.json").rows[-1].note == "1 of 1 times as before"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "give --baseline and --candidate, or --upstream ckpm-v3 and neither of them"),
        (("--baseline", "a.so"), "give --baseline and --candidate"),
        ((*UPSTREAM, "--baseline", "a.so"), "and neither of them"),
        (("--upstream", "ckpm"), "only ckpm-v3 on gfx950 has V3 before V2"),
        ((*UPSTREAM, "--arch", "gfx942"), "only ckpm-v3 on gfx950 has V3 before V2"),
    ],
)
def test_compare_without_two_sides_is_refused(
    tmp_path: Path, run: Run, arguments: tuple[str, ...], message: str
) -> None:
    code, _, err = run("compare", *arguments, "--output", tmp_path / "gpu.json")
    assert (code, message in err) == (2, True)


def test_kernels_of_tables_serve_every_published_row() -> None:
    """Four kernels of each version; without one of them a problem of the documents has no row."""
    where = Selection(archs=("gfx950",), tier="full", where=(tables.WHERE,))
    chosen = tuple(select(dialect("prefill-v3"), where))
    assert [sum(is_v3(key.pipeline) == v3 for key in chosen) for v3 in (True, False)] == [4, 4]
    published = [
        problem for problem in performance_problems("nightly") if problem.name.startswith("performance/published_fp8.")
    ]

    def rows(keys: Sequence[Key]) -> int:
        v2, v3 = (
            gpu.Side(library=library().library, keys=[key for key in keys if is_v3(key.pipeline) == v3], file_facts={})
            for v3 in (False, True)
        )
        return len(gpu.problems_of_both(v2, v3, published))

    assert rows(chosen) == 20
    assert all(rows([key for key in chosen if key is not left]) < 20 for left in chosen)
