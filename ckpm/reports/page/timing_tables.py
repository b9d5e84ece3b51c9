"""The report's tables of the timing model: workgroups, stalls by phase, V2 against V3, and the model's score."""

from __future__ import annotations

from collections.abc import Iterable

from ckpm.matrix.keys import V3_PIPELINE
from ckpm.reports.gates.versions import (
    Pair,
    PublishedRow,
    has_versions,
    launch,
    published_rows,
    show_published,
    show_range,
    version_of,
)
from ckpm.reports.page.inputs import ReportInputs
from ckpm.reports.page.report_table import Cell, Folded, ReportTable, columns
from ckpm.reports.verdicts import V3_AGAINST_V2
from ckpm.timing.machine import cannot_see as unseen
from ckpm.timing.record import CAUSES, PHASES, Timings
from ckpm.timing.score import TITLES


def timing(files: Iterable[tuple[str, Timings]]) -> ReportTable:
    """Cycles, the matrix units' share and the launch on a GPU, of each problem of labelled files."""
    rows: list[list[Cell]] = []
    details: dict[int, list[str]] = {}
    for label, timings in files:
        for problem in timings.problems:
            causes = sorted(problem.stalls(loop=True).items(), key=lambda pair: -pair[1])
            details[len(rows)] = [f"{cause} {share:.1%}: {CAUSES[cause]}" for cause, share in causes if share]
            whole = launch(problem, timings.provenance["arch"], timings.problems)
            rows.append(
                [
                    problem.problem, label, problem.cycles, problem.resident, round(problem.cycles / problem.resident),
                    round(problem.pass_cycles), round(100 * problem.matrix_share, 1),
                    round(100 * problem.loop_share, 1),
                    round(whole.expected) if whole else None, round(whole.ghz, 2) if whole else None,
                    show_range(whole) if whole else "",
                    show_published(whole) if whole else "",
                    causes[0][0] if causes[0][1] else "none", round(100 * causes[0][1], 1), problem.kernel,
                ]
            )  # fmt: skip
    counted = (
        "cycles", "copies", "cycles of one", "cycles of a pass", "% matrix", "% matrix in the loop",
        "expected TFLOP/s", "GHz", "% of that",
    )  # fmt: skip
    return ReportTable(
        id="timing",
        short="Timing",
        title="Workgroups on the timing model",
        columns=columns(
            problem="name", library_or_file="choice", **dict.fromkeys(counted[:8], "number"), range="word",
            published="word", most_stalls="choice", **{counted[8]: "number"}, kernel="kernel",
        ),
        rows=rows,
        details=details,
        note="Executed instructions replayed through an issue model of one compute unit; no measurement. TFLOP/s are "
        "expected at the clock of published launches. Their range is of start offsets and boards, not of the model's "
        "error. Published ones are of other code. A row's details are the stalls of its loop.",
        folded=(Folded(title="What the timing model cannot see", lines=unseen()),) if rows else (),
    )  # fmt: skip


def score(inputs: ReportInputs) -> ReportTable:
    """Published measurements beside modelled figures, and the errors by group."""
    model_score = inputs.score
    rows: list[list[Cell]] = [
        [
            row.kernel, row.label, row.gpu, row.group, row.role, row.metric, round(row.published, 2),
            None if row.modelled is None else round(row.modelled, 2),
            None if row.error is None else round(100 * row.error, 1),
            None if row.ghz is None else round(row.ghz, 2), row.reason, row.source,
        ]
        for row in (model_score.rows if model_score else ())
    ]  # fmt: skip
    errors = [
        f"{name} ({TITLES[name]}): {group.error:.1%} of {group.rows} rows, rank correlation {group.rank:.2f}"
        for name, group in (model_score.groups.items() if model_score else ())
    ]
    about = (
        f"{'; '.join(errors)}. Numbers of the model come from documents, rows of role calibrate, and assumptions. "
        "Errors are in percent. GHz is the clock at which TFLOP/s are expected."
    )
    return ReportTable(
        id="timing-score",
        short="Timing scored",
        title="The timing model's score on published measurements",
        columns=columns(
            kernel_there="name", row="text", gpu="choice", group="choice", role="choice", metric="choice",
            published="number", modelled="number", error="number", ghz="number", not_modelled_because="prose",
            document="prose",
        ),
        rows=rows,
        note=about if rows else "",
    )  # fmt: skip


def phases(files: Iterable[tuple[str, Timings]]) -> ReportTable:
    """Stalls by phase and cause, in percent of the phase's cycles."""
    rows: list[list[Cell]] = [
        [
            problem.problem, label, version_of(problem), share.phase, share.parts, round(100 * share.cycles, 1),
            round(100 * share.matrix, 1), round(100 * share.issued, 1),
            *(round(100 * share.stalls[cause], 1) for cause in CAUSES), problem.kernel,
        ]
        for label, timings in files
        for problem in timings.problems
        for share in problem.phases()
    ]  # fmt: skip
    causes = [cause.replace("_", " ") for cause in CAUSES]
    counted = ("parts", "% of the waves", "% matrix at work", "% issued", *causes)
    return ReportTable(
        id="timing-phases",
        short="Timing by phase",
        title="Where waves stall, by phase",
        columns=columns(
            problem="name", library_or_file="choice", kernel_of="choice", phase="choice",
            **dict.fromkeys(counted, "number"), kernel="kernel",
        ),
        rows=rows,
        note="A part lies between one s_barrier or s_setprio and the next. Causes are percent of the phase's cycles, "
        "all waves together; of a phase, cycles issued and causes add up to 100.",
        folded=(
            Folded(title="Phases", lines=[f"{name}: {text}" for name, text in PHASES.items()]),
            Folded(title="Causes", lines=[f"{name.replace('_', ' ')}: {text}" for name, text in CAUSES.items()]),
        ) if rows else (),
    )  # fmt: skip


def rows_of_versions(inputs: ReportInputs) -> list[PublishedRow]:
    """Rows of the documents' tables, if any input is of V3."""
    files = [timings for _, timings in inputs.timings() if has_versions(timings)]
    compared = any(V3_AGAINST_V2 in gate.provenance for gate in inputs.gates.values())
    built = any(f"_{V3_PIPELINE}_" in name for library in inputs.libraries for name in library.manifest.kernels)
    return published_rows(files, inputs.gates.values()) if files or compared or built else []


def versions(published: Iterable[PublishedRow]) -> ReportTable:
    """Table of the documents' rows: V2 and V3 as modelled, as measured, and as published."""
    rows: list[list[Cell]] = []
    for row in published:
        modelled, measured = row.modelled, row.measured
        rows.append(
            [
                row.about, row.label, _ratio(modelled), _ratio(row.published), row.error(modelled), _ratio(measured),
                row.error(measured), *_cycles(modelled), *_speeds(modelled), *_speeds(row.published),
                *_speeds(measured), row.assumed, row.problem,
            ]
        )  # fmt: skip
    ratios = ("V3/V2 modelled, cycles", "V3/V2 published, TFLOP/s", "V3/V2 on a GPU, TFLOP/s")
    errors = ("modelled, error %", "on a GPU, error %")
    figures = (
        "V2 loop %", "V3 loop %", "V2 cycles", "V3 cycles", "V2 modelled TFLOP/s", "V3 modelled TFLOP/s",
        "published V2", "published V3", "V2 on a GPU", "V3 on a GPU",
    )  # fmt: skip
    return ReportTable(
        id="v3",
        short="V3 against V2",
        title="V3 against V2, modelled, measured and as published",
        columns=columns(
            table="choice", row="word", **dict.fromkeys((*ratios[:2], errors[0]), "number"),
            **dict.fromkeys((ratios[2], errors[1]), "number"), **dict.fromkeys(figures, "number"),
            assumed="prose", problem="name",
        ),
        rows=rows,
        note="CK's pull request 6054 has the rows and the published figures, of its own V2 and V3 on MI355X; the "
        "kernels here are ours. Modelled ratios are of cycles, at equal clock. The others are of TFLOP/s, so the error "
        "of a modelled ratio contains the clock. Modelled TFLOP/s are at the clock of published launches. Loop % is "
        "the matrix units' share in the hot loop. The model leaves out caches and HBM. "
        "No verdict of this report follows from it." if rows else "",
    )  # fmt: skip


def _ratio(pair: Pair | None) -> float | None:
    return None if pair is None else round(pair.ratio, 2)


def _cycles(pair: Pair | None) -> tuple[Cell, Cell, Cell, Cell]:
    """Percent of the hot loop and cycles of the launch, V2's and V3's."""
    if pair is None:
        return None, None, None, None
    v2, v3 = pair.v2, pair.v3
    return round(100 * v2.loop, 1), round(100 * v3.loop, 1), round(v2.cycles), round(v3.cycles)


def _speeds(pair: Pair | None) -> tuple[Cell, Cell]:
    """TFLOP/s of V2 and of V3."""
    return (None, None) if pair is None else (round(pair.v2.tflops, 1), round(pair.v3.tflops, 1))
