"""The tile engine's fwd_ci.json (rocm-libraries pull request 5260) whole: aiter's kernels compiled, run, compared.

Objects come from the user's cache where they are there; else this compiles for more than an hour on two processors.
"""

from __future__ import annotations

import csv
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ckpm.attention.tuning import TuningDatabase
from ckpm.timing.sweeps.results import SweepResults

ROOT = Path(__file__).resolve().parents[2]
CONFIG = ROOT / "tests/sweeps/fwd_ci.json"
KERNELS = 264  # of fp16, qr_async, without mask and bias, on gfx950: ckpm count --sweep FILE


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("benchmark")


def benchmark(folder: Path, *options: str) -> SweepResults:
    line = [sys.executable, "-m", "ckpm", "sweep", "run", str(CONFIG), "--arch", "gfx950", "--device", "emulator"]
    outputs = ["--work", str(folder / "work"), "--json", str(folder / "r.json"), "--csv", str(folder / "r.csv")]
    subprocess.run([*line, *outputs, *options], cwd=ROOT, check=True)
    return SweepResults.read(folder / "r.json")


def tiles_fill(problem: str, kernel: str) -> bool:
    """True if seqlen_k of -q100k256- is a multiple of the kernel's kN0, the second number of _b128x64x16x...

    CK's dispatch takes a qr_async kernel that pads seqlen_k only where it is none (codegen/ops/fmha_fwd.py, skcheck).
    """
    seqlen_k, tile = re.search(r"-q\d+k(\d+)-", problem), re.search(r"_b\d+x(\d+)x", kernel)
    assert seqlen_k is not None
    assert tile is not None
    return int(seqlen_k[1]) % int(tile[1]) == 0


def test_kernels_agree_or_have_known_defect(folder: Path) -> None:
    results = benchmark(folder, "--verify")
    assert (results.kernels, len(results.rows), dict(results.left_out)) == (KERNELS, KERNELS, {})
    differ = [row for row in results.rows if row["agrees"] is not True]
    assert {row["known_defect"] for row in differ} <= {"v-overwrites-the-last-slice-of-k"}
    assert {row["kernel_hdim_q"] for row in differ} <= {96, 192}  # with 3 and 6 slices of K
    for row in results.rows:
        assert min(int(row[name] or 0) for name in ("instructions", "mfma_flops", "modelled_cycles")) > 0
        assert row.get("latency_ms") is None  # an emulator has none
    with (folder / "r.csv").open() as file:
        assert len(list(csv.DictReader(file))) == KERNELS


def test_smoke_shapes_give_tuning_database(folder: Path) -> None:
    limit = ("--category", "smoke", "--most-instructions", "500000")
    results = benchmark(folder, *limit, "--verify", "--tuning", str(folder / "t.db"))
    assert results.finished
    assert len(results.rows) > 100
    refused = [case for case, why in results.left_out.items() if "--most-instructions" not in why]
    assert all("_psskddv_" in kernel and tiles_fill(problem, kernel) for problem, kernel in refused)
    assert all("no kernel of this library serves" in results.left_out[case] for case in refused)
    assert TuningDatabase(folder / "t.db").file.stat().st_size > 0
