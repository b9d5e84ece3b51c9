"""Published figures (references.yaml) beside measured ones of the same problem on the same hardware.

They are not a baseline: they may come from another ROCm, other clocks, or another way to count flops under a mask. So
no verdict follows from a ratio. Fields that a document leaves open are left open here as well.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ckpm.base.tablefile import Field, load
from ckpm.matrix.problems.case import CHOICES, SuiteCase
from ckpm.reports.gates.statistics import WARM
from ckpm.reports.problems import flops, known_problems
from ckpm.reports.verdicts import Gate, Row

REFERENCES = Path(__file__).with_name("references.yaml")
MATCHED = ("tflops", "time_ratio")  # metrics that a gate's times can be held against
_MICROSECONDS = 1e-6
_CAUSAL = ("top_left", "bottom_right")  # the same where both lengths are


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A document. ``rocm`` is '' if the document doesn't name it."""

    title: str
    hardware: str
    rocm: str
    method: str

    def is_on(self, gpu: str) -> bool:
        """True if a GPU, as ROCm's runtime names it, is of the document's hardware. The emulator never is."""
        return not gpu.startswith("emulated") and self.hardware.lower() in gpu.lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A problem as a document describes it; fields that it leaves open are None.

    Features that it doesn't mention are off: no window, no bias, no dropout, no LSE. ``seqlen`` is of Q and K, for
    every sequence.
    """

    seqlen: int
    causal: bool
    heads: tuple[int, int] | None = None
    dtype: str | None = None
    qscale: str | None = None
    page_size: int | None = None
    kv_table: str | None = None
    kv_layout: str | None = None
    logits_soft_cap: float = 0.0

    def is_of(self, problem: SuiteCase) -> bool:
        p = problem
        return (
            set(p.seqlens_q) == set(p.seqlens_k) == {self.seqlen}
            and (p.mask in _CAUSAL if self.causal else p.mask == "no")
            and (p.window_left, p.sink_size, p.bias, p.p_drop, p.lse) == (-1, 0, "no", 0.0, False)
            and p.logits_soft_cap == self.logits_soft_cap
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
    source: Source
    about: str
    label: str
    variant: str
    metric: str
    value: float
    unit: str
    tolerance: float
    shape: Shape | None
    assumed: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """A measured figure and a published one. ``rocm`` is that of the measuring machine."""

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
        one, here = self.reference, f", ROCm {self.rocm} here" if self.rocm != self.reference.source.rocm else ""
        there = f"ROCm {one.source.rocm}" if one.source.rocm else "ROCm not stated"
        whence = f"{one.name}: {one.label}, {one.source.hardware}, {there}{here}"
        return (
            f"{self.subject}: {one.metric} {self.measured:.5g} {one.unit}, published for {one.variant} {one.value:g}: "
            f"ratio {self.ratio:.3f}, {self.word} ({'; '.join(filter(None, (whence, one.assumed)))})"
        )


def compare_with_references(gate: Gate) -> list[Beside]:
    """Compare times of the GPU gate with a warm cache with published figures; empty on other hardware."""
    gpu, rocm = gate.provenance.get("gpu", ""), gate.provenance.get("rocm", "")
    references = [one for one in read_references() if one.shape and one.source.is_on(gpu)]
    comparisons = []
    for row in gate.rows:
        problem = known_problems().get(row.subject)
        if row.gate != "gpu" or row.metric != WARM or problem is None:
            continue
        for one in references:
            measured = _value_of(one.metric, row, problem)
            if one.shape and one.shape.is_of(problem) and measured is not None:
                comparisons.append(Beside(subject=row.subject, measured=measured, reference=one, rocm=rocm))
    return comparisons


def _value_of(metric: str, row: Row, problem: SuiteCase) -> float | None:
    if not row.candidate or row.unit != "us":
        return None
    if metric == "time_ratio":
        return row.candidate / row.baseline if row.baseline else None
    return flops(problem) / (row.candidate * _MICROSECONDS) / 1e12


@cache
def read_references(file: Path = REFERENCES) -> tuple[Reference, ...]:
    """Every figure, in the file's order. Raises TableError: a mistake in the file, with its line."""
    table = load(file)
    table.allow(("sources", "figures"))
    sources = table.get("sources").map(_source)
    return tuple(
        one for name, item in table.get("figures").mapping().items() for one in _read_figures(name, item, sources)
    )


def _source(item: Field) -> Source:
    item.allow(("title", "hardware", "rocm", "method"))
    rocm = item.get("rocm")
    words = {name: _read_text(item.get(name)) for name in ("title", "hardware", "method")}
    return Source(**words, rocm="" if rocm.value is None else _read_text(rocm))


def _read_figures(name: str, item: Field, sources: Mapping[str, Source]) -> Sequence[Reference]:
    item.allow(("source", "about", "metric", "unit", "tolerance", "why_tolerance", "shape", "rows"))
    source, metric = item.get("source"), _read_text(item.get("metric"))
    if source.text() not in sources:
        raise source.fail(f"no source {source.value!r}; known: {', '.join(sources)}")
    tolerance = _read_number(item.get("tolerance"))
    if not 0 <= tolerance < 1:
        raise item.get("tolerance").fail(f"must be 0 or more and below 1, not {tolerance:g}")
    _read_text(item.get("why_tolerance"))
    common = item.get("shape")
    references = []
    for row in item.get("rows").items():
        row.allow(("label", "shape", "assumed", "values"))
        own, assumed = row.find("shape"), row.find("assumed")
        described = common.value is not None and own is not None and own.value is not None
        if described and metric not in MATCHED:
            raise common.fail(f"metric {metric} is listed only; one of {', '.join(MATCHED)} can have a shape")
        for variant, value in row.get("values").mapping().items():
            references.append(
                Reference(
                    name=name,
                    source=sources[source.text()],
                    about=_read_text(item.get("about")),
                    label=_read_text(row.get("label")),
                    variant=variant,
                    metric=metric,
                    value=_read_value(value, metric),
                    unit=item.get("unit").text(),
                    tolerance=tolerance,
                    shape=_shape(common, own) if described and own else None,
                    assumed=_read_text(assumed) if assumed else "",
                )
            )
    return references


def _shape(common: Field, own: Field) -> Shape:
    """The shape of a row: common fields and its own. Raises TableError."""
    fields = {**common.mapping(), **own.mapping()}
    both = Field(fields, own.file, own.line, own.path)
    both.allow(Shape.__dataclass_fields__)
    read: dict[str, Any] = {"seqlen": both.get("seqlen").integer(), "causal": both.get("causal").boolean()}
    for name in ("dtype", "qscale", "kv_table", "kv_layout"):
        if field := both.find(name):
            if field.text() not in CHOICES[name]:
                raise field.fail(f"must be one of {', '.join(CHOICES[name])}, not {field.value!r}")
            read[name] = field.text()
    if field := both.find("page_size"):
        read["page_size"] = field.integer()
    if field := both.find("heads"):
        read["heads"] = field.integers(2)
    if field := both.find("logits_soft_cap"):
        read["logits_soft_cap"] = _read_number(field)
    return Shape(**read)


def _read_text(field: Field) -> str:
    text = field.text().strip()
    if not text:
        raise field.fail("must not be empty")
    return text


def _read_number(field: Field) -> float:
    value = field.value
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise field.fail(f"must be a number, not {value!r}")
    return float(value)


def _read_value(field: Field, metric: str) -> float:
    value = _read_number(field)
    if value < 0 or (value == 0 and metric in MATCHED):
        raise field.fail(f"must be {'above 0' if metric in MATCHED else '0 or more'}, not {value:g}")
    return value
