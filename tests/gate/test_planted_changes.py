"""Changes planted in a checkout of CK or in this project are built for real, and perf-gate names kernel and metric.

The gate's own session, ``nox -s tests -- gate``: each change costs a minute of compiling on two processors unless the
objects are in the cache.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from ckpm.base.errors import CheckFailedError
from ckpm.reports.verdicts import Gate
from tests.gate.planted import MASKED, PLAIN, Copy

PIPELINE = Path("include/ck_tile/ops/fmha/pipeline/block_fmha_batch_prefill_pipeline_qr_ks_vs_async.hpp")
FLAGS = Path("ckpm/kernels/code/toolchains/base.py")
AXES = Path("matrix/dialects/ck-2025-11/batch_prefill.yaml")


@pytest.fixture
def copy(accepted: Copy) -> Iterator[Copy]:
    """The accepted build's folder. Planted changes are undone after the test."""
    planted = (accepted.ck / PIPELINE, accepted.project / FLAGS, accepted.project / AXES)
    files = {file: file.read_bytes() for file in planted}
    yield accepted
    for file, content in files.items():
        file.write_bytes(content)


def regressed_figures(copy: Copy) -> dict[tuple[str, str], tuple[float, float]]:
    """The figures of baseline and candidate that the gate reports, by subject and metric."""
    done = copy.gate()
    assert done.returncode == CheckFailedError.exit_code, done.stdout + done.stderr
    gate = Gate.read(copy.result)
    assert gate.verdict == "regressed"
    worst = gate.failing[0]
    assert f"regressed: {worst.change}\n" in done.stderr
    assert f"    {worst.subject}" in done.stderr
    return {
        (row.subject, row.metric): (row.baseline, row.candidate)
        for row in gate.failing
        if row.baseline is not None and row.candidate is not None  # a budget has none
    }


def test_equal_build_is_unchanged_in_every_metric(copy: Copy) -> None:
    shutil.rmtree(copy.work)
    copy.build("--no-cache")
    done = copy.gate()
    assert done.returncode == 0, done.stderr
    gate = Gate.read(copy.result)
    assert {row.verdict for row in gate.rows} == {"unchanged"}
    assert {row.gate for row in gate.rows} == {"static", "emulated"}
    assert {PLAIN, MASKED} <= {row.subject for row in gate.rows}


def test_weaker_optimisation_is_found(copy: Copy) -> None:
    """Builds with -Os, because CK does not compile at -O1 and all figures at -O2 are those of -O3.

    CK's inline assembler needs immediates, which become constants only by optimisation.
    """
    copy.plant(copy.project / FLAGS, '"-O3"', '"-Os"')
    copy.build()
    figures = regressed_figures(copy)
    for kernel in (PLAIN, MASKED):
        before, after = figures[kernel, "vgpr_spills"]
        assert after > before == 0
        assert (kernel, "loop_scratch") in figures


def test_one_more_wave_with_spills_is_found(copy: Copy) -> None:
    first = "            if constexpr(kQKHeaddim <= 32)\n"
    copy.plant(
        copy.ck / PIPELINE, first, f"            if constexpr(kQKHeaddim == 128)\n                return 3;\n{first}"
    )
    copy.build()
    figures = regressed_figures(copy)
    assert figures[MASKED, "vgpr_spills"][1] > 0


def test_repeated_work_in_loop_is_found(copy: Copy) -> None:
    """Repeats the second of the two steps of QK, 64 of the 128 columns.

    128 x 64 elements of K are 8 x 4 MFMA of 16 x 16 x 16 for a wave's 16 rows. Half of all flops are QK's, of which
    half are done twice.
    """
    tail = "            { // tail\n                gemm_0("
    copy.plant(copy.ck / PIPELINE, tail, f"            for(int twice = 0; twice < 2; ++twice)\n{tail}")
    copy.build()
    figures = regressed_figures(copy)
    for kernel in (PLAIN, MASKED):
        before, after = figures[kernel, "loop_mfma"]
        assert after == before + 8 * 4
    before, after = figures["performance/prefill.m64-full-q256k1024", "mfma_flops"]
    assert after == before * 1.25


def test_removed_kernel_is_found(copy: Copy) -> None:
    copy.plant(copy.project / AXES, "axes:\n", "masks: {simplified: [no], generic: [no]}\naxes:\n")
    copy.build()
    figures = regressed_figures(copy)
    assert figures[MASKED, "built"] == (1, 0)
