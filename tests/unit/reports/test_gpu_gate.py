"""The GPU gate's way from launches to a verdict, on a device and libraries whose times are known."""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from ckpm.attention.launch import gpu_context
from ckpm.attention.launch.c_abi import Launch, Library
from ckpm.attention.launch.device import Device
from ckpm.attention.launch.hip_api import Memory
from ckpm.base.errors import InconclusiveError
from ckpm.base.outputs import write_output
from ckpm.commands import main
from ckpm.kernels.abi import LaunchArguments, Status
from ckpm.matrix.problems.case import SuiteCase
from ckpm.reports.gates.gpu import Side, compare
from ckpm.reports.gates.statistics import COLD, CONTEXT, WARM, read_settings

SETTINGS = msgspec.structs.replace(read_settings(), cold_bytes=64)
ONE = SuiteCase(name="performance/one", suite="performance", tier="smoke", group="g")
KNOWN = dict.fromkeys(CONTEXT, "known")
BUS = "0000:c1:00.0"


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
    found = SimpleNamespace(
        hip=Hip(), arch="gfx950", context=lambda: next(printed), sensors=lambda: {"clock": "2100"}, fault=lambda: None
    )
    return cast(Device, found)


def side(milliseconds: float, serves: bool = True, status: Status = Status.OK) -> Side:
    """A library that takes so long, with 1 % of noise."""
    noise = random.Random(milliseconds)

    def launch(given: Any, kernel: str | None) -> Launch:
        time = milliseconds * noise.lognormvariate(0, 0.01)
        return Launch(status=status, message="a reason", kernels=("k",), milliseconds=time)

    class Served(Side):
        def serves(self, problem: SuiteCase) -> bool:
            return serves

    loaded = SimpleNamespace(launch=launch, path=Path("lib.so"), family="batch_prefill", arguments=LaunchArguments)
    return Served(
        library=cast(Library, loaded),
        keys=(),
        file_facts={"library sha256": "ab"},
    )


@pytest.mark.parametrize(("candidate", "verdict"), [(1.0001, "unchanged"), (1.05, "regressed"), (0.9, "improved")])
def test_verdict_is_of_times(candidate: float, verdict: str) -> None:
    here = device()
    gate = compare(here, side(1.0), side(candidate), [ONE], SETTINGS)
    assert [(row.subject, row.metric, row.verdict) for row in gate.rows] == [
        (ONE.name, WARM, verdict),
        (ONE.name, COLD, verdict),
    ]
    assert gate.rows[0].baseline == pytest.approx(1000, rel=0.01)
    assert cast(Any, here.hip).filled == 3 * (SETTINGS.rounds + SETTINGS.warm_up)
    assert (gate.provenance["gpu"], gate.provenance["clock_after"]) == ("known", "2100")


def test_changed_clock_policy_is_not_comparable() -> None:
    gate = compare(device(KNOWN, {**KNOWN, "clock_policy": "low"}), side(1.0), side(1.0), [ONE], SETTINGS)
    assert gate.verdict == "not comparable"


def test_problem_that_candidate_lost_is_regression() -> None:
    two = dataclasses.replace(ONE, name="performance/two")

    class Loses(Side):
        def serves(self, problem: SuiteCase) -> bool:
            return problem is ONE

    gate = compare(
        device(), side(1.0), Loses(library=side(1.0001).library, keys=(), file_facts={}), [ONE, two], SETTINGS
    )
    assert [(row.subject, row.verdict) for row in gate.failing] == [("performance/two", "regressed")]


def test_nothing_to_compare_is_not_pass() -> None:
    with pytest.raises(InconclusiveError, match="no problem was run"):
        compare(device(), side(1.0, serves=False), side(1.0, serves=False), [ONE], SETTINGS)


def test_launch_that_fails_stops_gate() -> None:
    with pytest.raises(InconclusiveError, match=r"performance/one: lib.so: a reason"):
        compare(device(), side(1.0), side(1.0, status=Status.HIP_ERROR), [ONE], SETTINGS)


def test_timer_that_does_not_run_stops_gate() -> None:
    with pytest.raises(InconclusiveError, match=r"candidate\[0\]: 0.0 is not a time"):
        compare(device(), side(1.0), side(0.0), [ONE], SETTINGS)


def test_library_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = ("--baseline", str(tmp_path / "a.so"), "--candidate", str(tmp_path / "b.so"))
    result = tmp_path / "gate.json"
    write_output(result, b"an older verdict")
    assert main(["compare", "--device", "nonsense", *paths, "--output", str(result)]) == 2
    assert "unknown device 'nonsense'" in capsys.readouterr().err
    assert not result.exists()


@pytest.fixture
def card(tmp_path: Path) -> Callable[[str, str], None]:
    """Writes a file of the one card's folder."""
    place = tmp_path / "devices" / BUS
    place.mkdir(parents=True)
    (tmp_path / "drm/card1").mkdir(parents=True)
    (tmp_path / "drm/card1/device").symlink_to(place)

    def write(name: str, text: str) -> None:
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text)

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
def test_card_not_there_is_no_known(tmp_path: Path, card: Callable[[str, str], None], bus: str) -> None:
    card("power_dpm_force_performance_level", "auto")
    found = gpu_context.settings(bus, tmp_path / "drm", tmp_path / "version")
    assert (found["clock_policy"], found["compute_partition"]) == ("", "")


def test_result_is_not_overwritten_by_its_own_junit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = tmp_path / "gpu.xml"
    result.write_text("somebody's file")
    paths = ("--baseline", str(tmp_path / "a.so"), "--candidate", str(tmp_path / "b.so"))
    assert main(["compare", *paths, "--output", str(result)]) == 2
    assert "the result is JSON; its JUnit goes beside it, as gpu.xml" in capsys.readouterr().err
    assert result.read_text() == "somebody's file"
