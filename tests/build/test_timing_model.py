"""A real kernel on the timing model: 256 queries, 1024 keys, 4 heads, head dim 128; and the published figures."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ckpm.base.errors import InconclusiveError
from ckpm.base.paths import PROJECT
from ckpm.kernels.library.request import LIBRARY
from ckpm.timing.published import published_figures
from ckpm.timing.record import Timings
from ckpm.timing.score import score_model
from tests.build.real_kernel import NAME

PROBLEM = "performance/prefill.m64-full-q256k1024"


def run(library: Path, output: Path, *options: str, arch: str = "gfx950") -> subprocess.CompletedProcess[str]:
    """Run in another process: a process has one emulated device."""
    command = (
        sys.executable,
        "-m",
        "ckpm",
        "timing",
        "model",
        "--library",
        str(library),
        "--arch",
        arch,
        "--problem",
        PROBLEM,
    )
    return subprocess.run(
        (*command, "--output", str(output), *options), cwd=PROJECT, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_matrix_work_follows_problem_and_file_repeats(built: Path, tmp_path: Path, arch: str) -> None:
    files = [tmp_path / name for name in ("first.json", "again.json")]
    for file in files:
        assert run(built / LIBRARY, file, arch=arch).returncode == 0
    assert files[0].read_bytes() == files[1].read_bytes()
    (timed,) = Timings.read(files[0]).problems
    assert (timed.kernel, timed.launched, timed.resident, timed.tile_rows) == (NAME, 4 * 256 // 64, 1, 64)
    # 64 rows, S = QK and O = PV: 8,192 flop an MFMA of 16x16x16, which takes 16 cycles; on four waves
    assert [wave.whole.matrix for wave in timed.waves] == [2 * 64 * 1024 * (128 + 128) // 8192 * 16 // 4] * 4
    assert all(wave.whole.issued + sum(wave.whole.stalls.values()) == wave.whole.end for wave in timed.waves)
    assert all(wave.passes >= 1024 // 128 - 1 and len(wave.timeline) == 240 for wave in timed.waves)
    assert 0 < timed.matrix_share < timed.loop_share < 1


def test_workgroup_option_models_workgroup_and_copies(built: Path, tmp_path: Path) -> None:
    """All workgroups are alike; two copies share the unit, and take longer than one and less than two."""
    outputs = {name: tmp_path / f"{name}.json" for name in ("longest", "chosen", "two")}
    assert run(built / LIBRARY, outputs["longest"]).returncode == 0
    assert run(built / LIBRARY, outputs["chosen"], "--workgroup", "5").returncode == 0
    assert run(built / LIBRARY, outputs["two"], "--resident", "2", "--sensitivity").returncode == 0
    longest, chosen, two = (Timings.read(file).problems[0] for file in outputs.values())
    assert (longest.workgroup, chosen.workgroup) == (0, 5)
    assert abs(longest.cycles - chosen.cycles) < 0.05 * longest.cycles  # the first one's addresses differ
    assert longest.cycles < two.cycles < 2 * longest.cycles
    assert len(two.waves) == 8
    assert two.sensitivity["memory_latency"][0] < two.cycles < two.sensitivity["memory_latency"][1]
    beyond = run(built / LIBRARY, tmp_path / "none.json", "--workgroup", "16")
    assert beyond.returncode == InconclusiveError.exit_code
    assert "has no workgroup 16" in beyond.stderr


def test_streams_have_errors_that_page_shows() -> None:
    figures = [figure for figure in published_figures() if figure.model in ("", "stream")]
    rows = [row for row in score_model(figures, (), "smoke", None).rows if row.modelled is not None]
    modelled = {row.label: row.modelled or 0.0 for row in rows}
    errors = {row.label: row.error for row in rows}
    exact = ("matrix-rate", "matrix-rate-small", "lds-b128", "lds-b64", "lds-one-4", "lds-four-2")
    assert {name: errors[name] for name in exact} == dict.fromkeys(exact, 0)
    assert modelled["first-dot"] == pytest.approx(100 * 512 / 592)
    assert modelled["second-dot"] == pytest.approx(100 * 512 / (16 * 8 + 54 * 4 + 33 * 8))
    tiles = [error for name, error in errors.items() if name.startswith("tile-") and error is not None]
    assert len(tiles) == 8
    assert min(tiles) > -0.11
    assert max(tiles) < 0
    page = (PROJECT / "docs" / "reference" / "timing.md").read_text()
    assert all(f"{round(modelled[f'tile-{tile}'], 1)} %" in page for tile in ("256x256", "128x128", "128x64"))


def test_file_names_library(built: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.json"
    assert run(built / LIBRARY, output, "--workgroup", "0").returncode == 0
    manifest = json.loads((built / "manifest.json").read_text())
    assert Timings.read(output).provenance["identity"] == manifest["identity"]
