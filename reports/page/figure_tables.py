"""The report's tables of figures: the model's, the gates', and published ones."""

from __future__ import annotations

from kernels.timing.machine import cannot_see as unseen
from kernels.timing.record import CAUSES
from reports.gates.model import cannot_see, estimate, machines
from reports.gates.references import beside
from reports.page.columns import GATE_SYMBOLS, Cell, Folded, Table, columns, severity
from reports.page.inputs import Inputs
from reports.timing.command import origin
from reports.timing.grid import launch, published


def model(inputs: Inputs) -> Table:
    rows: list[list[Cell]] = []
    known = machines()
    for library in inputs.libraries:
        for one in library.measured.problems if library.measured else ():
            machine = known.get(library.measured.provenance["arch"]) if library.measured else None
            if machine is None:
                continue
            guess = estimate(one, machine)
            rows.append(
                [
                    one.problem, library.label, guess.bound, round(guess.workgroup_cycles),
                    round(guess.steady_cycles), round(guess.grid_cycles), round(guess.steady_tflops, 1),
                    round(100 * guess.of_roof, 1), round(guess.intensity, 1), one.counters["instructions"],
                    one.counters["lds_bank_conflicts"], one.compulsory_bytes, one.kernel,
                ]
            )  # fmt: skip
    numbers = (
        "workgroup cycles", "steady cycles", "grid cycles", "TFLOP/s, full GPU", "% of roof", "flop/byte",
        "wave-instructions", "LDS conflict cycles", "bytes at least",
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
        note="Cycles from what the emulator counts: a model, no measurement.",
        folded=(Folded(title="What the model cannot see", lines=cannot_see()),) if rows else (),
    )  # fmt: skip


def timing(inputs: Inputs) -> Table:
    rows: list[list[Cell]] = []
    details: dict[int, list[str]] = {}
    for library in inputs.libraries:
        for one in library.timings.problems if library.timings else ():
            causes = sorted(one.stalls(loop=True).items(), key=lambda pair: -pair[1])
            details[len(rows)] = [f"{cause} {share:.1%}: {CAUSES[cause]}" for cause, share in causes if share]
            whole = launch(one, library.timings.provenance["arch"]) if library.timings else None
            rows.append(
                [
                    one.problem, library.label, one.cycles, one.resident, round(one.cycles / one.resident),
                    round(one.pass_cycles), round(100 * one.matrix_share, 1), round(100 * one.loop_share, 1),
                    round(whole.tflops, 1) if whole else None, published(whole) if whole else "",
                    causes[0][0] if causes[0][1] else "none", round(100 * causes[0][1], 1), one.kernel,
                ]
            )  # fmt: skip
    counted = (
        "cycles", "copies", "cycles of one", "cycles of a pass", "% matrix", "% matrix in the loop", "TFLOP/s",
        "% of that",
    )  # fmt: skip
    return Table(
        id="timing",
        short="Timing",
        title="Workgroups on the timing model",
        columns=columns(
            "problem", "library", *counted[:7], "published", "most stalls", counted[7], "kernel",
            problem="name", library="choice", kernel="kernel", most_stalls="choice", published="word",
            **{name.replace(" ", "_"): "number" for name in counted},
        ),
        rows=rows,
        details=details,
        note="Executed instructions replayed through an issue model of one compute unit; no measurement. TFLOP/s are "
        "the launch's at the peak clock, published ones in the same unit. A row's details are the stalls of its loop.",
        folded=(Folded(title="What the timing model cannot see", lines=unseen()),) if rows else (),
    )  # fmt: skip


def timing_checks(inputs: Inputs) -> Table:
    rows: list[list[Cell]] = [
        [
            one.name, one.published, one.modelled, one.unit, round(100 * one.error, 1), *origin(one), one.about,
            one.source, library.label,
        ]
        for library in inputs.libraries
        for one in (library.timings.checks if library.timings else ())
    ]  # fmt: skip
    return Table(
        id="timing-checks",
        short="Timing checked",
        title="The timing model beside published figures",
        columns=columns(
            "check", "published", "modelled", "unit", "error", "published is", "for the model", "of", "document",
            "library", published="number", modelled="number", unit="word", error="number", published_is="choice",
            for_the_model="choice", of="prose", document="prose", library="choice",
        ),
        rows=rows,
        note="Streams of instructions, each modelled once; errors in percent. What is an input of the model shows that "
        "it does what it was told, and no more.",
    )  # fmt: skip


def figures(inputs: Inputs) -> Table:
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
        for one in beside(gate)
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
        "python -m reports references lists all figures and what their documents say.",
    )  # fmt: skip
