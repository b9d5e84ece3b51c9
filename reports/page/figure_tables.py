"""The report's tables of figures: modelled by the emulated gate, judged by the gates, and published."""

from __future__ import annotations

from ckpm.reports.gates.model import cannot_see, estimate, machines
from ckpm.reports.gates.references import compare_with_references
from ckpm.reports.page.columns import GATE_SYMBOLS, Cell, Folded, Table, columns, severity
from ckpm.reports.page.inputs import Inputs, measured_seconds


def model(inputs: Inputs) -> Table:
    rows: list[list[Cell]] = []
    known = machines()
    for library in inputs.libraries:
        arch = library.measured.provenance["arch"] if library.measured else ""
        machine, seconds = known.get(arch), measured_seconds(inputs, library, arch)
        if library.measured is None or machine is None:
            continue
        for one in library.measured.problems:
            guess = estimate(one, machine)
            timed = seconds.get(one.problem)
            rows.append(
                [
                    one.problem, library.label, guess.bound, round(guess.workgroup_cycles),
                    round(guess.steady_cycles), round(guess.grid_cycles), round(guess.steady_tflops, 1),
                    round(100 * guess.of_roof, 1), round(guess.microseconds, 4),
                    None if timed is None else round(timed * 1e6, 4), round(guess.intensity, 1),
                    one.counters["instructions"], one.counters["lds_bank_conflicts"], one.compulsory_bytes, one.kernel,
                ]
            )  # fmt: skip
    numbers = (
        "workgroup cycles", "steady cycles", "grid cycles", "TFLOP/s, full GPU", "% of roof", "modelled us",
        "measured us", "flop/byte", "wave-instructions", "LDS conflict cycles", "bytes at least",
    )  # fmt: skip
    return Table(
        id="model",
        short="Model",
        title="Performance by the emulated gate's model",
        columns=columns(
            "problem", "library", "bound by", *numbers, "kernel",
            problem="name", library="choice", kernel="kernel", bound_by="choice",
            **{name.replace(" ", "_"): "number" for name in numbers},
        ),
        rows=rows,
        note="Cycles and modelled times come from counts of the emulator. Measured times are of a GPU (warm cache).",
        folded=(Folded(title="What the model cannot see", lines=cannot_see()),) if rows else (),
    )  # fmt: skip


def gate_rows(inputs: Inputs) -> Table:
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
    return Table(
        id="figures",
        short="Figures",
        title="Figures of the gates",
        columns=columns(
            "verdict", "gate", "subject", "metric", "unit", "baseline", "candidate", "ratio", "allowed", "note", "file",
            verdict="status", gate="choice", metric="choice", subject="name", baseline="number", candidate="number",
            ratio="number", file="choice", unit="word", note="prose",
        ),
        rows=rows,
        note=f"{left_out} unchanged figures of the static gate are left out; the table of kernels shows them. "
        "What has no baseline is beyond a budget."
        if left_out
        else "",
    )  # fmt: skip


def references(inputs: Inputs) -> Table:
    rows: list[list[Cell]] = [
        [
            one.subject, one.reference.metric, one.reference.variant, round(one.measured, 4),
            one.reference.value, one.reference.unit, round(one.ratio, 4), one.word, one.reference.label,
            one.reference.source.title, one.reference.source.hardware, one.reference.source.rocm or "not said",
            one.rocm, str(file.relative_to(inputs.folder)),
        ]
        for file, gate in inputs.gates.items()
        for one in compare_with_references(gate)
    ]  # fmt: skip
    return Table(
        id="references",
        short="References",
        title="Measured beside published figures",
        columns=columns(
            "problem", "metric", "of", "measured", "published", "unit", "ratio", "that is", "figure", "document",
            "hardware", "ROCm there", "ROCm here", "file",
            problem="name", metric="choice", of="choice", measured="number", published="number", ratio="number",
            that_is="choice", document="prose", hardware="choice", file="choice",
        ),
        rows=rows,
        note="Of the problems that a GPU of the document's kind was timed on. No verdict follows from them. "
        "ckpm model --references lists all figures and their documents.",
    )  # fmt: skip
