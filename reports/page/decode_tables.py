"""The report's table of the decode kernels: both forms as built and modelled, beside what was published of them."""

from __future__ import annotations

from collections.abc import Mapping

from ckpm.reports.gates.judged.what import DECODE, DECODE_CYCLES
from ckpm.reports.gates.references import read_references
from ckpm.reports.page.columns import GATE_SYMBOLS, Cell, Table, columns
from ckpm.reports.page.inputs import Inputs
from ckpm.reports.verdicts import Gate, worst

_SOURCE = "decode-"  # how the published figures' names begin
_VARIANTS = {"resident": "before", "streaming": "after"}  # by a problem's form: the document's own words
_FIGURES = {"vgpr": "VGPRs", "vgpr_spills": "spills", "occupancy_waves": "waves"}
_ARCH, _BASE = "gfx950", "fp8"  # what the document measured


def decode(inputs: Inputs) -> Table:
    rows: list[list[Cell]] = []
    for gate in inputs.gates.values():
        if gate.provenance.get("upstream") == DECODE:
            rows += _rows(gate)
    published = _reference_cells()
    figures = (*_FIGURES.values(), "cycles a token", *(f"published {name}" for name in (*_FIGURES.values(), "us")))
    return Table(
        id="decode",
        short="Decode",
        title="Decode kernels in Triton beside published figures",
        columns=columns(
            "gates", "problem", "arch", *figures,
            gates="status", problem="name", arch="choice", **{name.replace(" ", "_"): "number" for name in figures},
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
        one.metric: one.value
        for one in read_references()
        if one.name.startswith(_SOURCE) and one.variant == variant and not _is_bf16(one.label)
    }


def _is_bf16(label: str) -> bool:
    return "BF16" in label


def _reference_cells() -> Mapping[str, str | float]:
    times = [one for one in read_references() if one.name.startswith(_SOURCE) and one.metric == "time"]
    return {
        "document": times[0].source.title,
        "hardware": times[0].source.hardware,
        "bf16": next(one.value for one in times if _is_bf16(one.label)),
        **{one.variant: one.value for one in times if not _is_bf16(one.label)},
    }
