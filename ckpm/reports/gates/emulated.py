"""The emulated gates: counts of launches and the model's cycles, compared with the baseline.

Gate ``emulated`` counts each performance problem. Gate ``suites`` counts all cases of batch-prefill by kernel, if the
library passed them on the emulator: a loop that runs once too often may give the same numbers. It also counts basic
blocks that no case executed and for which matrix/unexecuted.yaml has no reason.

The counts are exact: two runs of one library give the same counts. So a change comes from the machine code, the
dispatch or the problems. Changes below a threshold (emulated_thresholds.yaml) pass.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping
from pathlib import Path

from ckpm.attention.launch.counters import Measurements
from ckpm.base.files import sha256_of
from ckpm.base.paths import data
from ckpm.base.results import LIBRARY_SHA256, SOME_CASES, Results
from ckpm.reports.gates import baseline
from ckpm.reports.gates.comparing import Threshold, compare, read_thresholds
from ckpm.reports.verdicts import VerdictRow
from ckpm.timing import measure
from ckpm.timing.model import Machine, estimate, machine_of

GATE, SUITES = "emulated", "suites"
_COUNTED = "batch-prefill"
SUITE_METRICS = ("suite_cases", "suite_instructions", "suite_blocks")
TIER = "smoke"  # of the problems
COUNTERS = "counters.json"
THRESHOLDS = data("reports", "gates", "emulated_thresholds.yaml")
MODEL_METRICS = ("model_workgroup_cycles", "model_steady_cycles", "model_grid_cycles")


@functools.cache
def measure_library(library: Path, arch: str) -> Measurements:
    """Run the problems on the emulator, and write the counters beside the library, for the report."""
    measurements = measure.measure(library, arch, TIER)
    measurements.write(library.with_name(COUNTERS))
    return measurements


def by_problem(
    measured: Measurements, machines_by_arch: Mapping[str, Machine] | None = None
) -> dict[str, dict[str, float]]:
    """Counters and modelled cycles of every problem."""
    machine = machine_of(measured.provenance["arch"], machines_by_arch)
    by_problem: dict[str, dict[str, float]] = {}
    for problem in measured.problems:
        guess = estimate(problem, machine)
        modelled = (guess.workgroup_cycles, guess.steady_cycles, guess.grid_cycles)
        cycles = dict(zip(MODEL_METRICS, map(math.ceil, modelled), strict=True))
        by_problem[problem.problem] = {metric: float(value) for metric, value in {**problem.counters, **cycles}.items()}
    return by_problem


def rows(
    accepted: baseline.Baseline,
    new_figures: baseline.Figures,
    measured: Measurements,
    thresholds: Mapping[str, Threshold] | None = None,
) -> tuple[VerdictRow, ...]:
    """A row for each figure, with the kernel or the reason why none ran. A missing problem is a regression."""
    notes = {problem: f"not run: {why}" for problem, why in measured.left_out.items()}
    notes |= {problem.problem: f"kernel {problem.kernel}" for problem in measured.problems}
    compared = compare(GATE, accepted.figures, new_figures, thresholds or read_thresholds(THRESHOLDS))
    texts = ("; ".join(filter(None, (row.note, notes.get(row.subject)))) for row in compared)
    return tuple(dataclasses.replace(row, note=text) for row, text in zip(compared, texts, strict=True))


def no_suite_counts(library: Path) -> str:
    """The reason why a library has no counts of its suite, or ''."""
    file = library.with_name(f"{_COUNTED}.json")
    if not file.is_file():
        return f"suite {_COUNTED} was not run"
    facts = Results.read(file).facts
    if facts.get(LIBRARY_SHA256) != sha256_of(library):
        return f"suite {_COUNTED} was run on another build"
    if facts.get("device") != "emulator" or facts.get("tier") != TIER or SOME_CASES in facts:
        return f"suite {_COUNTED} was not run whole, tier {TIER}, on the emulator"
    return ""


def count_suite(library: Path) -> dict[str, dict[str, float]]:
    """Passed cases, executed instructions, and basic blocks without a case or a reason, for each kernel."""
    results = Results.read(library.with_name(f"{_COUNTED}.json"))
    counts = {
        name: dict(zip(SUITE_METRICS, (0.0, 0.0, len(some)), strict=True)) for name, some in results.unexecuted.items()
    }
    for case in results.cases:
        if case.instructions:
            kernel_counts = counts.setdefault(case.kernel, dict.fromkeys(SUITE_METRICS, 0.0))
            for metric, more in zip(SUITE_METRICS, (1, case.instructions, 0), strict=True):
                kernel_counts[metric] += more
    return counts


def suite_rows(accepted: baseline.Baseline, counts: baseline.Figures) -> tuple[VerdictRow, ...]:
    """A row for each count of a kernel."""
    return compare(SUITES, accepted.figures, counts, read_thresholds(THRESHOLDS))
