"""The report's tables of figures: modelled, judged by the gates, published, of decode kernels and of benchmarks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from ckpm.reports.gates.emulated import DECODE_CYCLES
from ckpm.reports.gates.library_gates import DECODE
from ckpm.reports.gates.references import compare_with_references, read_references
from ckpm.reports.page.inputs import ReportInputs, measured_seconds
from ckpm.reports.page.report_table import GATE_SYMBOLS, Cell, Folded, ReportTable, columns, severity
from ckpm.reports.verdicts import Gate, worst
from ckpm.timing.model import cannot_see, estimate, machines
from ckpm.timing.sweeps.results import best

_SOURCE = "decode-"  # prefix of the published figures' names
_VARIANTS = {"resident": "before", "streaming": "after"}  # by a problem's form: the document's own words
_FIGURES = {"vgpr": "VGPRs", "vgpr_spills": "spills", "occupancy_waves": "waves"}
_ARCH, _BASE = "gfx950", "fp8"  # of the document's measurements


def model(inputs: ReportInputs) -> ReportTable:
    rows: list[list[Cell]] = []
    machines_by_arch = machines()
    for library in inputs.libraries:
        arch = library.measured.provenance["arch"] if library.measured else ""
        machine, seconds = machines_by_arch.get(arch), measured_seconds(inputs, library, arch)
        if library.measured is None or machine is None:
            continue
        for problem in library.measured.problems:
            guess = estimate(problem, machine)
            timed = seconds.get(problem.problem)
            rows.append(
                [
                    problem.problem, library.label, guess.bound, round(guess.workgroup_cycles),
                    round(guess.steady_cycles), round(guess.grid_cycles), round(guess.steady_tflops, 1),
                    round(100 * guess.of_roof, 1), round(guess.microseconds, 4),
                    None if timed is None else round(timed * 1e6, 4), round(guess.intensity, 1),
                    problem.counters["instructions"], problem.counters["lds_bank_conflicts"],
                    problem.compulsory_bytes, problem.kernel,
                ]
            )  # fmt: skip
    numbers = (
        "workgroup cycles", "steady cycles", "grid cycles", "modelled TFLOP/s, peak clock", "% of roof", "modelled us",
        "measured us", "flop/byte", "wave-instructions", "LDS conflict cycles", "bytes at least",
    )  # fmt: skip
    return ReportTable(
        id="model",
        short="Model",
        title="Performance by the emulated gate's model",
        columns=columns(
            problem="name", library="choice", bound_by="choice", **dict.fromkeys(numbers, "number"), kernel="kernel",
        ),
        rows=rows,
        note="Cycles, modelled TFLOP/s and modelled times come from counts of the emulator, at the peak clock and "
        "without latencies. They compare builds and predict no GPU: latencies and lower clocks make it slower, "
        "overlap within a wave and caches faster. Measured times are of a GPU (warm cache).",
        folded=(Folded(title="What the model cannot see", lines=cannot_see()),) if rows else (),
    )  # fmt: skip


def gate_rows(inputs: ReportInputs) -> ReportTable:
    rows: list[list[Cell]] = []
    left_out = 0
    for file, gate in inputs.gates.items():
        for row in gate.rows:
            if row.gate == "static" and row.verdict == "unchanged" and not row.note:
                left_out += 1
                continue
            ratio = row.candidate / row.baseline if row.baseline and row.candidate is not None else None
            rows.append(
                [
                    f"{GATE_SYMBOLS[row.verdict]} {row.verdict}", row.gate, row.subject, row.metric, row.unit,
                    row.baseline, row.candidate, None if ratio is None else round(ratio, 4), row.threshold,
                    "" if row.verdict == "unchanged" and row.note.startswith("kernel ") else row.note,
                    str(file.relative_to(inputs.folder)),
                ]
            )  # fmt: skip
    rows.sort(key=lambda row: severity(str(row[0])))
    return ReportTable(
        id="figures",
        short="Figures",
        title="Figures of the gates",
        columns=columns(
            verdict="status", gate="choice", subject="name", metric="choice", unit="word", baseline="number",
            candidate="number", ratio="number", allowed="text", note="prose", file="choice",
        ),
        rows=rows,
        note=f"{left_out} unchanged figures of the static gate are left out; the table of kernels shows them. "
        "What has no baseline is beyond a budget."
        if left_out
        else "",
    )  # fmt: skip


def references(inputs: ReportInputs) -> ReportTable:
    rows: list[list[Cell]] = [
        [
            comparison.subject, comparison.reference.metric, comparison.reference.variant,
            round(comparison.measured, 4), comparison.reference.value, comparison.reference.unit,
            round(comparison.ratio, 4), comparison.word, comparison.reference.label,
            comparison.reference.source.title, comparison.reference.source.hardware,
            comparison.reference.source.rocm or "not said", comparison.rocm, str(file.relative_to(inputs.folder)),
        ]
        for file, gate in inputs.gates.items()
        for comparison in compare_with_references(gate)
    ]  # fmt: skip
    return ReportTable(
        id="references",
        short="References",
        title="Measured beside published figures",
        columns=columns(
            problem="name", metric="choice", of="choice", measured="number", published="number", unit="text",
            ratio="number", that_is="choice", figure="text", document="prose", hardware="choice", ROCm_there="text",
            ROCm_here="text", file="choice",
        ),
        rows=rows,
        note="Of the problems that a GPU of the document's kind was timed on. No verdict follows from them. "
        "ckpm model --references lists all figures and their documents.",
    )  # fmt: skip


def best_kernels(inputs: ReportInputs) -> ReportTable:
    """Table of the best kernels, the default farthest below the best first. Kernels with wrong numbers are left out."""
    rows: list[list[Cell]] = []
    for file, benchmark in inputs.benchmarks.items():
        for winner in sorted(best(benchmark.rows), key=lambda winner: -winner.behind):
            same = winner.kernel == winner.default
            rows.append(
                [
                    winner.problem, winner.mode, file.stem, winner.compared, round(100 * winner.behind, 1),
                    winner.value, winner.default_value, winner.unit, winner.kernel, "" if same else winner.default,
                ]
            )  # fmt: skip
    counted = ("kernels", "% below best", "best", "default")
    return ReportTable(
        id="benchmarks",
        short="Benchmarks",
        title="Best kernels of benchmarks",
        columns=columns(
            problem="name", mode="choice", benchmark="choice", **dict.fromkeys(counted, "number"), unit="choice",
            best_kernel="kernel", **{"default, if another": "kernel"},
        ),
        rows=rows,
        note="The default is the first in upstream's order of the kernels that ran: a library of all of them would "
        "take it. Modelled cycles are those of one workgroup on the timing model, no measurement." if rows else "",
        folded=tuple(
            Folded(
                title=f"Left out of {file.stem}",
                lines=[f"{count}: {why}" for why, count in Counter(benchmark.left_out.values()).most_common()],
            )
            for file, benchmark in inputs.benchmarks.items()
            if benchmark.left_out
        ),
    )  # fmt: skip


def decode(inputs: ReportInputs) -> ReportTable:
    rows: list[list[Cell]] = []
    for gate in inputs.gates.values():
        if gate.provenance.get("upstream") == DECODE:
            rows += _rows(gate)
    published = _reference_cells()
    figures = (*_FIGURES.values(), "cycles a token", *(f"published {name}" for name in (*_FIGURES.values(), "us")))
    return ReportTable(
        id="decode",
        short="Decode",
        title="Decode kernels in Triton beside published figures",
        columns=columns(
            gates="status", problem="name", arch="choice", **dict.fromkeys(figures, "number"),
        ),
        rows=rows,
        note=f"Cycles are a compute unit's for each token, on the timing model: no times. {published['document']} has "
        f"times of an unnamed shape on {published['hardware']}: {published['before']:g} us for FP8 with all of K and V "
        f"in registers, {published['bf16']:g} us for BF16, {published['after']:g} us for FP8 with K streamed."
        if rows
        else "",
    )  # fmt: skip


def _rows(gate: Gate) -> list[list[Cell]]:
    by_subject: dict[str, dict[str, float | None]] = {}
    verdicts: dict[str, list[str]] = {}
    for row in gate.rows:
        by_subject.setdefault(row.subject, {})[row.metric] = row.candidate
        verdicts.setdefault(row.subject, []).append(row.verdict)
    rows: list[list[Cell]] = []
    for subject, own in by_subject.items():
        verdict = worst(verdicts[subject])
        form, _, kind = subject.partition("-")
        same = (gate.provenance["arch"], kind) == (_ARCH, _BASE) and form in _VARIANTS
        beside = _of(_VARIANTS[form]) if same else {}
        rows.append(
            [
                f"{GATE_SYMBOLS[verdict]} {verdict}", subject, gate.provenance["arch"],
                *(own.get(metric) for metric in _FIGURES), own.get(DECODE_CYCLES),
                *(beside.get(metric) for metric in (*_FIGURES, "time")),
            ]
        )  # fmt: skip
    return rows


def _of(variant: str) -> Mapping[str, float]:
    """The published figures of a variant, by metric."""
    return {
        reference.metric: reference.value
        for reference in read_references()
        if reference.name.startswith(_SOURCE) and reference.variant == variant and "BF16" not in reference.label
    }


def _reference_cells() -> Mapping[str, str | float]:
    times = [
        reference
        for reference in read_references()
        if reference.name.startswith(_SOURCE) and reference.metric == "time"
    ]
    return {
        "document": times[0].source.title,
        "hardware": times[0].source.hardware,
        "bf16": next(reference.value for reference in times if "BF16" in reference.label),
        **{reference.variant: reference.value for reference in times if "BF16" not in reference.label},
    }
