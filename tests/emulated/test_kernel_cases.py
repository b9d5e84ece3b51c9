"""The suite that runs every kernel of a library of fwd's families: on the library of test_fwd.py, and seen to fail."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any
from unittest import mock

from ckpm import commands as cli
from ckpm.attention.launch.buffers import LaunchInputs
from ckpm.attention.launch.fwd_launching import laid_out
from ckpm.attention.reference import Expected, exact
from ckpm.base.results import Results
from ckpm.kernels.abi import FwdArguments
from ckpm.matrix.problems.case import SuiteCase
from ckpm.reports.page.inputs import gather
from ckpm.suites import fwd_cases
from ckpm.suites.checks import CaseBench
from ckpm.suites.kernel_cases import run_kernel
from ckpm.suites.suites import manifest_keys
from ckpm_emulator.device import EmulatedGpu
from emulator_child import on_device
from tests.emulated.emulator_fwd import around
from tests.emulated.test_fwd import library as library


def bench_of(device: EmulatedGpu, library: Path) -> CaseBench:
    here = around(device)
    opened = here.load(library, FwdArguments)
    return CaseBench(
        device=here, library=opened, keys=manifest_keys(library.with_name("manifest.json"), opened.kernels)
    )


def test_every_kernel_of_library_has_reported_case(library: Path) -> None:
    work = library.parents[3]
    assert cli.main(["test", "--suite", "kernels", "--family", "fwd", "--device", "emulator", "--work", str(work)]) == 0
    results = Results.read(library.with_name("kernels.json"))
    kernels = json.loads(library.with_name("manifest.json").read_text())["kernels"]
    assert {case.name for case in results.cases} == {f"kernels/{name}" for name in kernels}
    assert {case.outcome for case in results.cases} == {"passed"}
    assert all("lds_races True" in case.text and "O agrees" in case.text for case in results.cases)
    shown = gather(work / "build")
    assert sorted(row.case.name for row in shown.cases) == sorted(case.name for case in results.cases)


def test_library_of_another_family_is_refused(library: Path) -> None:
    output = ["test", "--suite", "kernels", "--device", "emulator", "--work", str(library.parents[3])]
    assert cli.main([*output, "--family", "fwd_v3"]) == 6
    assert cli.main(output) == cli.main([*output, "--family", "fwd_splitkv_combine"]) == 2


@on_device("gfx950")
def test_wrong_number_fails_case(device: EmulatedGpu, library: Path) -> None:
    """Planted on either side: a reference of another scale, and keys that are not those of the reference."""
    bench = bench_of(device, library)
    for key in bench.keys:

        def scale(inputs: LaunchInputs, random: Any = None) -> Expected:
            p = dataclasses.replace(inputs.problem, scale=inputs.problem.softmax_scale * 1.1)
            return exact(dataclasses.replace(inputs, problem=p), random)

        def move(problem: SuiteCase, tensors: Any) -> Any:
            arrays = laid_out(problem, tensors)
            arrays["k"] = arrays["k"][::-1].copy()
            return arrays

        with mock.patch.object(fwd_cases, "exact", scale):
            assert_wrong(bench, key.name)
        with mock.patch("ckpm.attention.launch.fwd_launching.laid_out", move):
            assert_wrong(bench, key.name)


def assert_wrong(bench: CaseBench, name: str) -> None:
    result = run_kernel(bench, name)
    assert result.outcome == "wrong"
    assert "elements differ" in result.message


@on_device("gfx950")
def test_fault_is_reported_as_emulator_saw_it(device: EmulatedGpu, library: Path) -> None:
    bench = bench_of(device, library)

    def cut(problem: SuiteCase, tensors: Any) -> Any:
        arrays = laid_out(problem, tensors)
        return {**arrays, "k": arrays["k"][:1]}

    key = next(key for key in bench.keys if key.mode == "group")
    with mock.patch("ckpm.attention.launch.fwd_launching.laid_out", cut):
        result = run_kernel(bench, key.name)
    assert (result.outcome, bool(result.fault)) == ("fault", True)
    assert "k" in result.message
    assert run_kernel(bench, key.name).outcome == "passed"


@on_device("gfx950")
def test_what_dispatch_sends_elsewhere_is_not_passed(device: EmulatedGpu, library: Path) -> None:
    """A kernel by another name, which the library doesn't hold: its problems go to the one that it was made of."""
    bench = bench_of(device, library)
    small = next(key for key in bench.keys if key.tile.bm0 == 16)
    other = dataclasses.replace(small, name=small.name.replace("_b16x", "_b64x"))
    result = run_kernel(dataclasses.replace(bench, keys=(*bench.keys, other)), other.name)
    assert (result.outcome, result.message) == ("unsupported", f"dispatch sends every candidate to {small.name}")
