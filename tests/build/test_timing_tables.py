"""V2 and V3 built and modelled for real: 1,024 queries and keys, causal, of both tables. Splits over keys."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from ckpm.base.paths import PROJECT
from ckpm.timing import splits
from ckpm.timing.record import Timed, Timings

pytestmark = pytest.mark.nightly  # twelve kernels are compiled
TILES = 1024 // 64  # of keys, which V3's last workgroup goes through
WAVES, ROWS = 8, 32  # of V3's workgroup, and queries of a wave


@pytest.fixture(scope="module")
def timings(tmp_path_factory: pytest.TempPathFactory) -> Timings:
    folder = tmp_path_factory.mktemp("tables")
    options = ("--problem", "*-q1k", "--work", str(folder), "--output", str(folder / "timing-tables.json"))
    command = (sys.executable, "-m", "ckpm", "timing", "tables", *options)
    ended = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return Timings.read(folder / "timing-tables.json")


@pytest.fixture(scope="module")
def rows(timings: Timings) -> Mapping[tuple[str, str], Timed]:
    return {(timed.problem[-10:-4], "V3" if "_v3_" in timed.kernel else "V2"): timed for timed in timings.problems}


def test_tables_have_v2_and_v3(rows: Mapping[tuple[str, str], Timed]) -> None:
    """6 heads, and a workgroup for each 256 or 128 queries. The modelled one has the last queries: V3's first."""
    launched = {name: (timed.launched, timed.workgroup) for name, timed in rows.items()}
    v3, v2 = (6 * 4, 0), (6 * 8, 7)
    assert launched == {
        ("tensor", "V3"): v3, ("tensor", "V2"): v2, ("8.page", "V3"): v3, ("8.page", "V2"): v2,
    }  # fmt: skip


def test_v3_is_faster_than_v2(rows: Mapping[tuple[str, str], Timed]) -> None:
    for table in ("tensor", "8.page"):
        assert rows[table, "V3"].cycles < rows[table, "V2"].cycles


@pytest.mark.parametrize("table", ["tensor", "8.page"])
def test_v3_waves_multiply_and_make_weights_in_turn(rows: Mapping[tuple[str, str], Timed], table: str) -> None:
    """A turn for each tile after the first, with a part for products and one for weights (pipeline.hpp of V3).

    Before the turns are the products of the first scores, after them those of the last O. One of these parts has
    weights, too. So has a turn that makes weights again, because a score ran ahead: it adds the weights up twice.
    """
    timed = rows[table, "V3"]
    phases = {share.phase: share for share in timed.phases()}
    assert set(phases) <= {"prologue", "matrix", "softmax", "mixed", "other", "epilogue"}
    assert phases["matrix"].parts + phases["mixed"].parts == WAVES * (TILES + 1)
    assert phases["softmax"].parts == WAVES * (TILES - 1)
    assert phases["softmax"].matrix == phases["prologue"].matrix == phases["epilogue"].matrix == 0
    # S = QK and O = PV of 64 keys and 32 queries, 128 dims each: an MFMA of 32x32x64 has 131,072 flop and 64 cycles. An
    # MFMA of 16x16x128 adds up the weights, in 32 cycles.
    repeated = phases["mixed"].parts - WAVES
    cycles = WAVES * TILES * (2 * 2 * ROWS * 64 * 128 // 131072) * 64 + (WAVES * TILES + repeated) * 32
    assert sum(phase.matrix for wave in timed.waves for phase in wave.phases.values()) == cycles
    assert all(sum(phase.cycles for phase in wave.phases.values()) == wave.whole.end for wave in timed.waves)


def test_v2_mixes_matrix_and_softmax(rows: Mapping[tuple[str, str], Timed]) -> None:
    assert max(rows["tensor", "V2"].phases(), key=lambda share: share.cycles).phase == "mixed"


def test_splits_are_modelled_for_every_problem(tmp_path: Path) -> None:
    command = (sys.executable, "-m", "ckpm", "timing", "splits", "--work", str(tmp_path))
    ended = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    rows = re.findall(r"^(\d) queries, .*: \d+ workgroups of \d+ keys: .* cycles, ", ended.stdout, re.MULTILINE)
    assert rows == [str(number) for _ in splits.PROBLEMS for number in splits.QUERIES]
