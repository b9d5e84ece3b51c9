"""An output folder as builds, suites and gates leave it, small enough to read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kernels.base.results import Case, Results
from reports.verdicts import Gate, Row

KERNEL = (
    "fmha_batch_prefill_d128_bf16_group_b64x128x64x128x64x128_r4x1x1_r4x1x1_w16x16x16_w16x16x16"
    "_qr_async_vr_psskddv_nlogits_nbias_nmask_nlse_ndropout_nsquant"
)
PROBLEM = "batch-prefill/plain.m64-full-q64k128"  # 2 heads of 128 over 1
FIGURES = {
    "vgpr": 200, "agpr": 0, "sgpr": 100, "vgpr_spills": 0, "sgpr_spills": 0, "lds_bytes": 1024, "scratch_bytes": 0,
    "occupancy_waves": 2, "text_bytes": 4096,
}  # fmt: skip
FAULT = {
    "kind": "memory", "pc": 1152, "text": "global_load_dword(v[8])", "address": 0x10F4872F5010, "lane": 8,
    "message": "load of 4 bytes outside\n  pc 0x480\n  nearest: 12 bytes past the end of allocation 245",
    "nearest": {"id": 245, "base": 0x10F4872F5000},
}  # fmt: skip


def manifest(kernels: int = 1) -> dict[str, Any]:
    return {
        "archs": ["gfx950"],
        "upstream": "aiter",
        "dialect": "ck-2025-11",
        "mask_impl": "simplified",
        "identity": "clang 22",
        "kernel_count": kernels,
        "kernels": {
            KERNEL if not n else f"{KERNEL}_{n}": {"unit": "u", "archs": {"gfx950": FIGURES}} for n in range(kernels)
        },
        "artifacts": {"libckpm.so": "be77", "obj/a.o": "00"},
    }


def case(name: str = PROBLEM, outcome: str = "passed", message: str = "", *lines: str, kernel: str = KERNEL) -> Case:
    suite = name.partition("/")[0]
    text = "\n".join([f"kernel: {kernel}", *lines])
    return Case(suite=f"{suite}-gfx950-aiter", classname=suite, name=name, outcome=outcome, message=message, text=text)


AGREES = "O agrees; largest error 0.1 (0.2 relative), 0.19 of its tolerance at [0, 0, 0]"
KNOWN = Case(
    suite="page-fault-gfx950-aiter",
    classname="page-fault",
    name="page-fault/lengths.m64-q64k1",
    outcome="passed",
    text=f"ledger: table-read-past-end (ledger.yaml:37): reads on\nkernel: {KERNEL}\nfault: {json.dumps(FAULT)}",
)
SLOWER = Row(
    gate="gpu", subject=PROBLEM, metric="time", unit="us", baseline=4.0, candidate=5.0, threshold="2 %",
    verdict="regressed", note="",
)  # fmt: skip


def write(folder: Path, suites: dict[str, list[Case]] | None = None, rows: list[Row] | None = None) -> Path:
    """``folder``, filled: a library, its suites' results and, if there are rows, its gate."""
    place = folder / "gfx950" / "aiter"
    place.mkdir(parents=True)
    (place / "manifest.json").write_text(json.dumps(manifest()))
    (place / "plan.json").write_text("{}")  # what reports don't read
    found = (
        {"batch-prefill": [case(PROBLEM, "passed", "", AGREES)], "page-fault": [KNOWN]} if suites is None else suites
    )
    for suite, cases in found.items():
        Results(tuple(cases)).write(place / f"{suite}.json")
    if rows:
        Gate.of(rows, {"arch": "gfx950", "upstream": "aiter"}).write(place / "gate.json")
    return folder
