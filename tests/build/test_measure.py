"""Counts of a real kernel against arithmetic: 256 queries, 1024 keys, 4 heads, head dim 128."""

from __future__ import annotations

import faulthandler
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ckpm import commands as cli
from ckpm.attention.launch.counters import Measurements
from ckpm.base.errors import LibraryError, UsageError
from ckpm.base.paths import PROJECT
from ckpm.kernels.library.request import LIBRARY
from ckpm.reports.gates.emulated import by_problem
from tests.build.real_kernel import NAME
from tests.fuzz import compiled


def measure(library: Path, arch: str, output: Path) -> bytes:
    command = (sys.executable, "-m", "ckpm", "measure", "--library", str(library), "--arch", arch)
    subprocess.run((*command, "--output", str(output)), cwd=PROJECT, check=True, capture_output=True)
    return output.read_bytes()


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_counts_follow_problem_and_repeat(built: Path, tmp_path: Path, arch: str) -> None:
    first, again = (measure(built / LIBRARY, arch, tmp_path / name) for name in ("first.json", "again.json"))
    assert first == again
    measurements = Measurements.read(tmp_path / "first.json")
    (problem,) = [
        problem for problem in measurements.problems if problem.problem == "performance/prefill.m64-full-q256k1024"
    ]
    count = problem.counters
    assert problem.kernel == NAME
    assert count["mfma_flops"] == 2 * 256 * 1024 * 4 * (128 + 128)  # multiply and add, of S = QK and O = PV
    assert (count["workgroups"], count["waves"]) == (4 * 256 // 64, 4 * 4 * 256 // 64)
    assert count["global_store_bytes"] == 256 * 4 * 128 * 2  # O once
    assert count["global_load_bytes"] >= (256 * 4 + 2 * 1024 * 4 * 256 // 64) * 128 * 2  # K and V once a workgroup
    assert (count["scratch_bytes"], count["early_out_workgroups"]) == (0, 0)
    assert (
        "no kernel with mask" in measurements.left_out["performance/pages.linear-vllm"]
    )  # the library's only one has none
    # 16 workgroups on 4 SIMDs, of which each executes at most 1024 flop a cycle (model.yaml: 4096 a compute unit)
    assert by_problem(measurements)[problem.problem]["model_workgroup_cycles"] >= count["mfma_flops"] / 16 / 4 / 1024


def test_measure_with_kernel_measures_no_other(built: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("measure", "--library", str(built / LIBRARY), "--output", str(tmp_path / "out.json"), "--kernel")
    assert cli.main([*options, NAME]) == 0
    measured = Measurements.read(tmp_path / "out.json")
    assert {problem.kernel for problem in measured.problems} == {measured.provenance["kernels"]} == {NAME}
    assert cli.main([*options, "*_gload_*"]) == UsageError.exit_code
    assert "none of the library's 1 kernels fits" in capsys.readouterr().err


@pytest.mark.parametrize(("code", "how"), [("__builtin_trap();", "SIG(ILL|TRAP)"), ("_exit(0);", "exit code 0")])
def test_measure_of_library_that_ends_process_names_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], code: str, how: str
) -> None:
    compiled.prepare_code(tmp_path / "code")
    constructor = f'extern "C" void _exit(int); __attribute__((constructor)) static void end() {{ {code} }}'
    compiled.prepare_loadable(tmp_path, tmp_path / "code" / "library.o", constructor)
    library, output = tmp_path / compiled.LIBRARY / LIBRARY, tmp_path / "out.json"
    faulthandler.disable()  # pytest's: its traceback of a process that dies on purpose looks like a crash
    try:
        ended = cli.main(["measure", "--library", str(library), "--output", str(output)])
    finally:
        faulthandler.enable(2)
    assert ended == LibraryError.exit_code
    message = rf"error: {re.escape(str(library))}: opening or running it ended the process \({how}\): "
    assert re.match(message, capsys.readouterr().err)
    assert not output.exists()
