"""Published figures (references.yaml) beside measured ones of the same problem on the same hardware.

They are not a baseline: they may come from another ROCm, other clocks, or another way to count flops under a mask. So
no verdict follows from a ratio. Fields that a document leaves open are left open here as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from ckpm.base.paths import data
from ckpm.base.tablefile import Record, Table, Text, read_table
from ckpm.matrix.problems.case import CHOICES, SuiteCase
from ckpm.reports.problems import flops, known_problems
from ckpm.reports.verdicts import WARM, Gate, VerdictRow

REFERENCES = data("reports", "gates", "references.yaml")
MATCHED = ("tflops", "time_ratio")  # metrics that a gate's times can be held against
_MICROSECONDS = 1e-6
_CAUSAL = ("top_left", "bottom_right")  # equal if both lengths are equal


class ReferenceSource(Record, frozen=True):
    """A document. ``rocm`` is None if the document doesn't name it."""

    title: Text
    hardware: Text
    rocm: str | None
    method: Text

    def is_on(self, gpu: str) -> bool:
        """True if a GPU, as ROCm's runtime names it, is of the document's hardware. The emulator never is."""
        return not gpu.startswith("emulated") and self.hardware.lower() in gpu.lower()


class ReferenceShape(Record, frozen=True):
    """A problem as a document describes it; fields that it leaves open are None.

    Features that it doesn't mention are off: no window, no bias, no dropout, no LSE. ``seqlen`` is of Q and K, for
    every sequence.
    """

    seqlen: int | None = None
    causal: bool | None = None
    heads: tuple[int, int] | None = None
    dtype: str | None = None
    qscale: str | None = None
    page_size: int | None = None
    kv_table: str | None = None
    kv_layout: str | None = None
    logits_soft_cap: float | None = None

    def is_of(self, problem: SuiteCase) -> bool:
        p = problem
        return (
            set(p.seqlens_q) == set(p.seqlens_k) == {self.seqlen}
            and (p.mask in _CAUSAL if self.causal else p.mask == "no")
            and (p.window_left, p.sink_size, p.bias, p.p_drop, p.lse) == (-1, 0, "no", 0.0, False)
            and p.logits_soft_cap == (self.logits_soft_cap or 0.0)
            and self.heads in (None, (p.nhead_q, p.nhead_k))
            and all(
                getattr(self, name) in (None, getattr(p, name))
                for name in ("dtype", "qscale", "page_size", "kv_table", "kv_layout")
            )
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """One figure. ``name`` is the table's entry, ``label`` the document's own, ``variant`` one of two kernels.

    ``assumed`` names the fields of the shape that the document leaves open; '' if it has all of them.
    """

    name: str
    source: ReferenceSource
    about: str
    label: str
    variant: str
    metric: str
    value: float
    unit: str
    tolerance: float
    shape: ReferenceShape | None
    assumed: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """A measured figure and a published one. ``rocm`` is the measuring machine's version."""

    subject: str
    measured: float
    reference: Reference
    rocm: str

    @property
    def ratio(self) -> float:
        return self.measured / self.reference.value

    @property
    def word(self) -> str:
        if abs(self.ratio - 1) <= self.reference.tolerance:
            return "as published"
        return "above" if self.ratio > 1 else "below"

    def __str__(self) -> str:
        reference = self.reference
        here = f", ROCm {self.rocm} here" if self.rocm != (reference.source.rocm or "") else ""
        there = f"ROCm {reference.source.rocm}" if reference.source.rocm else "ROCm not stated"
        whence = f"{reference.name}: {reference.label}, {reference.source.hardware}, {there}{here}"
        return (
            f"{self.subject}: {reference.metric} {self.measured:.5g} {reference.unit}, "
            f"published for {reference.variant} {reference.value:g}: "
            f"ratio {self.ratio:.3f}, {self.word} ({'; '.join(filter(None, (whence, reference.assumed)))})"
        )


def compare_with_references(gate: Gate) -> list[Beside]:
    """Compare times of the GPU gate with a warm cache with published figures; empty on other hardware."""
    gpu, rocm = gate.provenance.get("gpu", ""), gate.provenance.get("rocm", "")
    references = [reference for reference in read_references() if reference.shape and reference.source.is_on(gpu)]
    comparisons = []
    for row in gate.rows:
        problem = known_problems().get(row.subject)
        if row.gate != "gpu" or row.metric != WARM or problem is None:
            continue
        for reference in references:
            measured = _value_of(reference.metric, row, problem)
            if reference.shape and reference.shape.is_of(problem) and measured is not None:
                comparisons.append(Beside(subject=row.subject, measured=measured, reference=reference, rocm=rocm))
    return comparisons


def _value_of(metric: str, row: VerdictRow, problem: SuiteCase) -> float | None:
    if not row.candidate or row.unit != "us":
        return None
    if metric == "time_ratio":
        return row.candidate / row.baseline if row.baseline else None
    return flops(problem) / (row.candidate * _MICROSECONDS) / 1e12


class _ReferenceRow(Record, frozen=True):
    label: Text
    values: dict[str, Annotated[float, Meta(ge=0)]]
    shape: ReferenceShape | None = None
    assumed: Text = ""


class _Figures(Record, frozen=True):
    source: str
    about: Text
    metric: Text
    unit: str
    tolerance: Annotated[float, Meta(ge=0, lt=1)]
    why_tolerance: Text
    shape: ReferenceShape | None
    rows: tuple[_ReferenceRow, ...]


class ReferenceTable(Record, frozen=True):
    """The record of references.yaml."""

    sources: dict[str, ReferenceSource]
    figures: dict[str, _Figures]


@cache
def read_references(file: Path = REFERENCES) -> tuple[Reference, ...]:
    """Read every figure, in the file's order."""
    table = read_table(file, ReferenceTable)
    references = []
    for name, figures in table.record.figures.items():
        table.demand_known(figures.source, table.record.sources, "figures", name, "source")
        common = {field: getattr(figures, field) for field in ("about", "metric", "unit", "tolerance")}
        common |= {"name": name, "source": table.record.sources[figures.source]}
        for at, row in enumerate(figures.rows):
            own = {**common, "shape": _shape(table, figures, row, "figures", name, "rows", at)}
            for variant, value in row.values.items():
                if value == 0 and figures.metric in MATCHED:
                    raise table.fail("must be above 0", "figures", name, "rows", at, "values", variant)
                references.append(Reference(label=row.label, variant=variant, value=value, assumed=row.assumed, **own))
    return tuple(references)


def _shape(
    table: Table[ReferenceTable], figures: _Figures, row: _ReferenceRow, *path: str | int
) -> ReferenceShape | None:
    """The shape of a row: common fields and its own; None if no problem is described."""
    if figures.shape is None or row.shape is None:
        return None
    if figures.metric not in MATCHED:
        raise table.fail(f"metric {figures.metric} is listed only; one of {', '.join(MATCHED)} can have a shape", *path)
    both = {name: getattr(row.shape, name) for name in ReferenceShape.__struct_fields__}
    shape = ReferenceShape(
        **{name: getattr(figures.shape, name) if value is None else value for name, value in both.items()}
    )
    if shape.seqlen is None or shape.causal is None:
        raise table.fail("needs seqlen and causal", *path, "shape")
    for name in ("dtype", "qscale", "kv_table", "kv_layout"):
        if word := getattr(shape, name):
            table.demand_known(word, CHOICES[name], *path, "shape")
    return shape
