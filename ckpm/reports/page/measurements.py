"""Results as rows with the tile engine's columns: problem, kernel identity, time, TFLOP/s, GB/s; as CSV or JSON.

The columns have the order of the tile engine's README: the problem's, the kernel's, the measured ones. Outcome, arch
and upstream come last. A figure that was not measured is empty (null in JSON), never 0.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ckpm.base.errors import NameSyntaxError, RecordError, UnknownWordError, UsageError
from ckpm.base.files import write_atomically
from ckpm.base.rows import to_csv
from ckpm.matrix.problems.case import SuiteCase
from ckpm.matrix.problems.performance import compulsory_bytes
from ckpm.reports.page.inputs import LibraryResults, ReportInputs, measured_seconds
from ckpm.reports.problems import flops, known_problems

PROBLEM_COLUMNS = (
    "problem_name", "batch", "seqlen_q", "seqlen_k", "nhead_q", "nhead_k", "hdim_q", "hdim_v", "dtype",
)  # fmt: skip
_TILE = {
    "tile_m0": "bm0", "tile_n0": "bn0", "tile_k0": "bk0", "tile_n1": "bn1", "tile_k1": "bk1", "tile_k0max": "bk0max",
    "wave_m0": "rm0", "wave_n0": "rn0", "wave_k0": "rk0", "wave_m1": "rm1", "wave_n1": "rn1", "wave_k1": "rk1",
    "warp_m0": "wm0", "warp_n0": "wn0", "warp_k0": "wk0", "warp_m1": "wm1", "warp_n1": "wn1", "warp_k1": "wk1",
}  # fmt: skip
_KEY = (
    "pad", "mask", "bias", "lse", "dropout", "logits", "sink", "skip", "qscale", "vlayout", "page_size", "kv_layout",
    "kv_table", "load",
)  # fmt: skip
_RENAMED = {"skip": "skip_min_seqlen_q"}
KERNEL_COLUMNS = ("kernel", "family", "mode", "pipeline", *_TILE, *(_RENAMED.get(name, name) for name in _KEY))
MEASURED_COLUMNS = ("latency_ms", "tflops", "bandwidth_gb_s")
COLUMNS = (*PROBLEM_COLUMNS, *KERNEL_COLUMNS, *MEASURED_COLUMNS, "outcome", "arch", "upstream")


def write_measurements(inputs: ReportInputs, file: Path) -> int:
    """Write a ``.csv`` or ``.json`` file. Return the number of rows."""
    if file.suffix not in (".csv", ".json"):
        raise UsageError(f"--output {file}: a file that ends with .csv or .json is needed")
    measured = rows(inputs)
    text = to_csv(COLUMNS, measured) if file.suffix == ".csv" else _json(inputs, measured)
    write_atomically(file, text.encode())
    return len(measured)


def rows(inputs: ReportInputs) -> list[dict[str, Any]]:
    """A row for each case and each measured problem whose kernel is known. Lengths are the longest of the batch."""
    ran = [
        (tested.library, tested.case.arch, tested.case.name, tested.case.kernel, tested.case.status)
        for tested in inputs.cases
    ]
    for library in inputs.libraries:
        if library.measured:
            arch = library.measured.provenance["arch"]
            ran += [
                (library, arch, problem.problem, problem.kernel, "measured") for problem in library.measured.problems
            ]
    keys: dict[tuple[Path, str], Mapping[str, Any]] = {}
    times = {
        (library.manifest_file, arch): measured_seconds(inputs, library, arch)
        for library in inputs.libraries
        for arch in library.manifest.archs
    }
    table = []
    for library, arch, name, kernel, outcome in ran:
        problem = known_problems().get(name)
        if problem is None or kernel not in library.manifest.kernels:
            continue
        if (library.manifest_file, kernel) not in keys:
            keys[library.manifest_file, kernel] = _kernel(library, kernel)
        table.append(
            {
                **_problem(problem),
                **keys[library.manifest_file, kernel],
                **_measured_columns(problem, times.get((library.manifest_file, arch), {}).get(name)),
                "outcome": outcome,
                "arch": arch,
                "upstream": library.upstream,
            }
        )
    return table


def _problem(problem: SuiteCase) -> dict[str, Any]:
    return {
        "problem_name": problem.name,
        "batch": problem.batch,
        "seqlen_q": max(problem.seqlens_q),
        "seqlen_k": max(problem.seqlens_k),
        **{name: getattr(problem, name) for name in ("nhead_q", "nhead_k", "hdim_q", "hdim_v", "dtype")},
    }


def _kernel(library: LibraryResults, name: str) -> dict[str, Any]:
    try:
        (key,) = library.manifest.keys([name])
    except (UnknownWordError, NameSyntaxError) as error:
        raise RecordError(
            f"{library.manifest_file}: kernels.{name}: can't be read: {error}. {library.manifest.remedy}",
            kind="manifest",
        ) from error
    return {
        "kernel": name,
        "family": key.family,
        "mode": key.mode,
        "pipeline": key.pipeline,
        **{column: getattr(key.tile, part) for column, part in _TILE.items()},
        **{_RENAMED.get(part, part): getattr(key, part) for part in _KEY},
    }


def _measured_columns(problem: SuiteCase, seconds: float | None) -> dict[str, float | None]:
    if seconds is None:
        return dict.fromkeys(MEASURED_COLUMNS)
    return {
        "latency_ms": seconds * 1e3,
        "tflops": flops(problem) / seconds / 1e12,
        "bandwidth_gb_s": compulsory_bytes(problem) / seconds / 1e9,
    }


def _json(inputs: ReportInputs, table: list[dict[str, Any]]) -> str:
    metadata = {
        "arch": sorted({row["arch"] for row in table}),
        "total_kernels": sum(len(library.manifest.kernels) for library in inputs.libraries),
        "shapes_benchmarked": len({row["problem_name"] for row in table}),
        "total_measurements": sum(row["latency_ms"] is not None for row in table),
    }
    body = ",\n".join(json.dumps(row) for row in table)
    return f'{{"metadata": {json.dumps(metadata)},\n"results": [\n{body}\n]}}\n'
