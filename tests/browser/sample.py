"""An output folder with something of everything: more rows than a page, failures, faults, gates, a history, parity."""

from __future__ import annotations

import dataclasses
import datetime
import json
from dataclasses import dataclass
from pathlib import Path

from ckpm.attention.launch.counters import LIBRARY_FACTS, METRICS, Measured, Measurements
from ckpm.base.results import CaseResult, LedgerUse, Results
from ckpm.reports.page.html import html
from ckpm.reports.page.inputs import gather
from ckpm.reports.page.overall import overall
from ckpm.reports.problems import known_problems
from ckpm.reports.verdicts import Gate, VerdictRow
from tests.unit.manifests import write_library
from tests.unit.reports.report_samples import AGREES, FAULT, FIGURES, KERNEL, PROBLEM, SLOWER, manifest

WRITTEN = datetime.datetime(2026, 11, 20, 12, 0, tzinfo=datetime.UTC)
_MESSAGES = {
    "failed": "O differs: 12 of 8192 elements",
    "error": "worker ended by signal 9",
    "skipped": "no kernel: dtype fp32",
    "passed": "",
}
_LEDGER = LedgerUse(name="table-read-past-end", location="ledger.yaml:37", reason="reads on")


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel of the manifest, and of the expectations."""

    name: str
    vgpr: int
    spills: int


def kernels(count: int = 60) -> list[Kernel]:
    """Names that sort otherwise as numbers than as text, figures that repeat."""
    return [
        Kernel(KERNEL.replace("bf16", "fp16" if n % 3 else "bf16").replace("nbias", f"b{n}"), 64 + n * 37 % 193, n % 7)
        for n in range(count)
    ]


def cases(count: int = 130, kernel_count: int = 60) -> list[CaseResult]:
    """Cases of real problems with every outcome; every tenth is a known defect that ended in a fault."""
    names = [name for name in known_problems() if name.startswith(("batch-prefill/", "page-fault/"))]
    used = kernels(kernel_count)
    all_cases = []
    for n in range(count):
        name = names[n * 7 % len(names)] if n < len(names) else f"batch-prefill/more.q{n}"
        outcome = {3: "failed", 17: "error"}.get(n % 40, "skipped" if n % 9 == 5 else "passed")
        known_defect = outcome == "passed" and n % 10 == 0
        compared = outcome in ("passed", "failed") and not known_defect
        suite = name.partition("/")[0]
        all_cases.append(
            CaseResult(
                suite=suite, arch="gfx950", upstream="aiter", classname=suite, name=name, outcome=outcome,
                message=_MESSAGES[outcome], text=AGREES if compared else "", seconds=n % 31 / 8,
                kernel="" if outcome == "skipped" else used[n % kernel_count].name,
                ledger=_LEDGER if known_defect else None,
                fault=dataclasses.replace(FAULT, pc=1000 + n) if known_defect else None,
                tolerance_used=n % 23 / 10 if compared else None,
            )
        )  # fmt: skip
    return all_cases


def status(case: CaseResult) -> str:
    return "known defect" if case.fault else case.outcome


def row_text(case: CaseResult) -> str:
    """All text of a case's row, in small letters."""
    cells = [status(case), case.name, case.message, case.classname, "gfx950/aiter", case.kernel]
    return " ".join([*cells, "table-read-past-end" if status(case) == "known defect" else ""]).lower()


def write(folder: Path, kernel_count: int = 60, case_count: int = 130) -> Path:
    """The report of such a folder, in it."""
    library_folder = folder / "gfx950" / "aiter"
    facts = {**manifest(), "kernel_count": kernel_count}
    facts["kernels"] = {
        kernel.name: {"unit": "u", "archs": {"gfx950": {**FIGURES, "vgpr": kernel.vgpr, "vgpr_spills": kernel.spills}}}
        for kernel in kernels(kernel_count)
    }
    write_library(library_folder, facts)
    all_cases = cases(case_count, kernel_count)
    for suite in {case.classname for case in all_cases}:
        Results(tuple(case for case in all_cases if case.classname == suite)).write(library_folder / f"{suite}.json")
    Gate.of(_rows(kernel_count), {"arch": "gfx950", "upstream": "aiter"}).write(library_folder / "gate.json")
    _write_counters(library_folder / "counters.json", {name: str(facts[name]) for name in LIBRARY_FACTS})
    parity = [
        CaseResult(
            suite="parity",
            upstream=f"upstream {n % 2}",
            classname="p",
            name=f"gfx950 receipt {n}",
            outcome=outcome,
            message="",
            text="names",
        )
        for n, outcome in enumerate(("passed", "failed", "passed"))
    ]
    Results(tuple(parity)).write(folder / "parity.json")
    history = folder / "baselines" / "gfx950" / "embedded" / "aiter.history.jsonl"
    history.parent.mkdir(parents=True)
    lines = [
        {
            "date": f"2026-11-{day}T00:00:00Z",
            "gate": "static",
            "reason": "r",
            "identity": "clang 1",
            "upstream_identity": "aiter 1",
            "subjects": kernel_count,
            "sums": {"vgpr": 2300 + day % 3, "lds": 9},
        }
        for day in range(10, 20)
    ]
    history.write_text("".join(json.dumps(line) + "\n" for line in lines))
    inputs = gather(folder, today=WRITTEN.date(), baselines=folder / "baselines")
    report = folder / "report.html"
    report.write_text(html(inputs, overall(inputs), WRITTEN), encoding="utf-8")
    return report


def _rows(kernel_count: int) -> list[VerdictRow]:
    """Rows of every verdict: budgets exceeded with and without an excuse, times of a GPU that grew and shrank."""
    names = [kernel.name for kernel in kernels(kernel_count)]
    problems = [name for name in known_problems() if name.startswith("batch-prefill/")][:55]
    rows = [dataclasses.replace(_VGPRS, subject=name) for name in names]
    rows.append(
        _spills(names[0], 8.0, "unchanged", "allowed until 2027-06-30: its accumulators (tile, budgets.yaml:1)")
    )
    rows.append(_spills(names[1], 9.0, "regressed", "spills go to memory"))
    rows += [_time(name, n) for n, name in enumerate(problems)]
    rows.append(dataclasses.replace(_time(PROBLEM + "-gone", 4), candidate=None, verdict="missing"))
    return rows


_VGPRS = VerdictRow(
    gate="static", subject="", metric="vgpr", unit="registers", baseline=200.0, candidate=200.0,
    threshold="no change", verdict="unchanged",
)  # fmt: skip


def _spills(name: str, count: float, verdict: str, note: str) -> VerdictRow:
    return dataclasses.replace(
        _VGPRS, subject=name, metric="vgpr_spills", baseline=None, candidate=count,
        threshold="at most 0, budget no-spills", verdict=verdict, note=note,
    )  # fmt: skip


def _time(name: str, n: int) -> VerdictRow:
    after = 4.0 + (n % 9 - 4) / 10
    verdict = "unchanged" if n % 9 == 4 else "improved" if after < 4 else "inconclusive" if n % 2 else "regressed"
    return dataclasses.replace(SLOWER, subject=name, candidate=after, verdict=verdict)


def _write_counters(file: Path, facts: dict[str, str]) -> None:
    names = [name for name in known_problems() if name.startswith("performance/")][:8]
    counted = {"workgroups": 2, "early_out_workgroups": 0, "waves": 8}
    measured = tuple(
        Measured(
            problem=name, kernel=KERNEL, dtype="bf16", occupancy_waves=2, compulsory_bytes=131072 * (n + 1),
            counters=dict.fromkeys(METRICS, 10_000 * (n + 1)) | counted | {"mfma_flops": 30_000_000 * (8 - n)},
        )
        for n, name in enumerate(names)
    )  # fmt: skip
    Measurements(provenance={**facts, "arch": "gfx950", "tier": "smoke"}, problems=measured).write(file)
