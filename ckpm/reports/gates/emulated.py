"""The emulated gates: counts of launches and the model's cycles, compared with the baseline.

Gate ``emulated`` counts each performance problem. Gate ``suites`` counts all cases of batch-prefill by kernel, if the
library passed them on the emulator: a loop that runs once too often may give the same numbers. It also counts basic
blocks that no case executed and for which matrix/unexecuted.yaml has no reason.

The counts are exact: two runs of one library give the same counts. So a change comes from the machine code, the
dispatch or the problems. Both gates read the files beside the library that ``ckpm measure`` and the suite wrote.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

from ckpm.attention.launch.counters import Measurements
from ckpm.base.files import sha256_of
from ckpm.base.results import LIBRARY_SHA256, SOME_CASES, Results
from ckpm.timing.measure import GATED_TIER
from ckpm.timing.model import Machine, estimate, machine_of

_COUNTED = "batch-prefill"
SUITE_METRICS = ("suite_cases", "suite_instructions", "suite_blocks")
DECODE_CYCLES = "timing_cycles_a_token"  # the decode kernels' metric of the timing model
MODEL_METRICS = ("model_workgroup_cycles", "model_steady_cycles", "model_grid_cycles")


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
    for name, cycles_a_token in measured.cycles_a_token.items():
        by_problem[name][DECODE_CYCLES] = cycles_a_token
    return by_problem


def notes(measured: Measurements) -> dict[str, str]:
    """The kernel of each problem, or the reason why none ran."""
    left_out = {problem: f"not run: {why}" for problem, why in measured.left_out.items()}
    return left_out | {problem.problem: f"kernel {problem.kernel}" for problem in measured.problems}


def no_suite_counts(library: Path) -> str:
    """The reason why a library has no counts of its suite, or ''."""
    file = library.with_name(f"{_COUNTED}.json")
    if not file.is_file():
        return f"suite {_COUNTED} was not run"
    facts = Results.read(file).facts
    if facts.get(LIBRARY_SHA256) != sha256_of(library):
        return f"suite {_COUNTED} was run on another build"
    if facts.get("device") != "emulator" or facts.get("tier") != GATED_TIER or SOME_CASES in facts:
        return f"suite {_COUNTED} was not run whole, tier {GATED_TIER}, on the emulator"
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
