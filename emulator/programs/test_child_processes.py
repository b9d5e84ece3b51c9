"""Programs of several processes and threads on the emulated device: fork, exec, counters, traces and checks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from programs.program_builder import sample
from programs.test_programs import output

PARENT, CHILD = f"parent {128 * 5 * 7}", f"child {128 * 2 * 3}"
# Arguments of the program, with the lines that its processes print.
SAID = {"before": [CHILD, PARENT], "after": [PARENT, CHILD, "parent 35"], "again": [PARENT, CHILD]}


@pytest.mark.parametrize("how", SAID)
@pytest.mark.parametrize("checks", ["hazards", "all"])
def test_child_uses_device_like_parent(how: str, checks: str) -> None:
    assert output(sample("processes"), how, options=("--checks", checks)).decode().splitlines() == SAID[how]


def test_threads_launch_at_once() -> None:
    tokens = output(sample("processes"), "threads", options=("--threads", "2")).decode().split()
    assert [int(token) for token in tokens] == [128 * i * 11 for i in range(6)]


# Launches of two workgroups with 64 lanes that store 4 bytes each. A forked child has its parent's counts, too.
@pytest.mark.parametrize(("how", "launches"), [("before", [1, 1]), ("after", [1, 3]), ("again", [1, 1])])
def test_each_process_has_counters(tmp_path: Path, how: str, launches: list[int]) -> None:
    file = tmp_path / "counters.json"
    output(sample("processes"), how, options=("--counters", str(file)))
    (other,) = (path for path in tmp_path.iterdir() if path != file)
    assert other.name.removeprefix("counters.json.").isdecimal()
    for path, expected in zip((file, other), launches, strict=True):
        (counted,) = json.loads(path.read_text())["kernels"].values()
        assert (counted["launches"], counted["global_store_bytes"]) == (expected, expected * 128 * 4)


@pytest.mark.parametrize("how", SAID)
def test_each_process_has_trace(tmp_path: Path, how: str) -> None:
    file = tmp_path / "trace"
    output(sample("processes"), how, options=("--trace", str(file)))
    (other,) = (path for path in tmp_path.iterdir() if path != file)
    assert other.name.removeprefix("trace.").isdecimal()
    # Instructions are at the begin of a line, and a launch ends once.
    assert file.read_text().count("s_endpgm") == 1
    assert other.read_text().count("s_endpgm") == (2 if how == "after" else 1)
