"""An output folder as builds, suites and gates leave it, small enough to read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ckpm.attention.launch.counters import LIBRARY_FACTS
from ckpm.base.results import CaseFault, CaseResult, LedgerUse, NearestAllocation, Results
from ckpm.reports.verdicts import Gate, VerdictRow
from tests.unit import manifests
from tests.unit.manifests import write_library

KERNEL = (
    "fmha_batch_prefill_d128_bf16_group_b64x128x64x128x64x128_r4x1x1_r4x1x1_w16x16x16_w16x16x16"
    "_qr_async_vr_psskddv_nlogits_nbias_nmask_nlse_ndropout_nsquant"
)
PROBLEM = "batch-prefill/plain.m64-full-q64k128"  # 2 heads of 128 over 1
FIGURES = manifests.FIGURES
FAULT = CaseFault(
    kind="memory", pc=1152, instruction="global_load_dword(v[8])", address=0x10F4872F5010, lane=8,
    message="load of 4 bytes outside\n  pc 0x480\n  nearest: 12 bytes past the end of allocation 245",
    nearest=NearestAllocation(
        id=245, base=0x10F4872F5000, bytes=4, kind="device", label="table", freed=False, distance=12, overrun=0
    ),
)  # fmt: skip


def manifest(kernels: int = 1) -> dict[str, Any]:
    """Manifest of a library with ``kernels`` kernels, as JSON."""
    return manifests.document({KERNEL if not n else f"{KERNEL}_{n}": {} for n in range(kernels)})


def case(
    name: str = PROBLEM, outcome: str = "passed", message: str = "", *lines: str, kernel: str = KERNEL, **more: Any
) -> CaseResult:
    suite = name.partition("/")[0]
    return CaseResult(
        suite=suite, arch="gfx950", upstream="aiter", classname=suite, name=name, outcome=outcome, message=message,
        text="\n".join(lines), kernel=kernel, **more,
    )  # fmt: skip


FACTS = {name: str(manifest()[name]) for name in LIBRARY_FACTS}
AGREES = "O agrees; largest error 0.1 (0.2 relative), 0.19 of its tolerance at [0, 0, 0]"
KNOWN = case(
    "page-fault/lengths.m64-q64k1",
    ledger=LedgerUse(name="table-read-past-end", location="ledger.yaml:37", reason="reads on"),
    fault=FAULT,
)
SLOWER = VerdictRow(
    gate="gpu", subject=PROBLEM, metric="time", unit="us", baseline=4.0, candidate=5.0, threshold="2 %",
    verdict="regressed", note="",
)  # fmt: skip


def write(
    folder: Path, suites: dict[str, list[CaseResult]] | None = None, rows: list[VerdictRow] | None = None
) -> Path:
    """``folder``, filled: a library, its suites' results and, if there are rows, its gate."""
    library_folder = folder / "gfx950" / "aiter"
    write_library(library_folder, manifest())
    (library_folder / "plan.json").write_text("{}")  # what reports don't read
    cases_by_suite = (
        {"batch-prefill": [case(PROBLEM, "passed", "", AGREES, tolerance_used=0.19)], "page-fault": [KNOWN]}
        if suites is None
        else suites
    )
    for suite, cases in cases_by_suite.items():
        Results(tuple(cases)).write(library_folder / f"{suite}.json")
    if rows:
        Gate.of(rows, {"arch": "gfx950", "upstream": "aiter"}).write(library_folder / "gate.json")
    return folder
