"""Compare figures with a baseline's by the threshold of each metric (thresholds.yaml, emulated_thresholds.yaml)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import Meta

from ckpm.base.errors import GateError
from ckpm.base.paths import data
from ckpm.base.tablefile import Record, read_table
from ckpm.reports.gates.baseline import Figures
from ckpm.reports.verdicts import EMULATED, STATIC, SUITES, VerdictRow

_TABLES = {STATIC: "thresholds.yaml", EMULATED: "emulated_thresholds.yaml", SUITES: "emulated_thresholds.yaml"}
BUILT = "built"  # the metric of a subject that only one side has


class Threshold(Record, frozen=True):
    """``percent`` of the baseline may change without a verdict; ``better`` is the direction of an improvement."""

    unit: str
    better: Literal["lower", "higher"]
    percent: Annotated[float, Meta(ge=0, le=100)]

    def __str__(self) -> str:
        return f"{self.percent:g} %" if self.percent else "no change"

    def judge(self, baseline: float, candidate: float) -> str:
        """``regressed``, ``improved`` or ``unchanged``."""
        if abs(candidate - baseline) <= abs(baseline) * self.percent / 100:
            return "unchanged"
        return "improved" if (candidate < baseline) == (self.better == "lower") else "regressed"


class ThresholdTable(Record, frozen=True):
    """The record of thresholds.yaml and emulated_thresholds.yaml."""

    metrics: dict[str, Threshold]


def read_thresholds(gate: str) -> dict[str, Threshold]:
    """Read a gate's thresholds by metric."""
    return read_table(data("reports", "gates", _TABLES[gate]), ThresholdTable).record.metrics


def compare(
    gate: str,
    baseline: Figures,
    candidate: Figures,
    thresholds: Mapping[str, Threshold],
    notes: Mapping[str, str] | None = None,
) -> tuple[VerdictRow, ...]:
    """Compare each figure of the baseline, in the order of subjects. The rows of a subject end with its note.

    A subject that only the baseline has is a regression. A new subject, or a metric that only one of the two has, is
    ``missing``, which fails until it is accepted.
    """
    rows: list[VerdictRow] = []
    for subject in sorted({*baseline, *candidate}):
        old, new = baseline.get(subject), candidate.get(subject)
        if old is None or new is None:
            note = "in the baseline, but no longer built" if new is None else "not in the baseline"
            rows.append(presence(gate, subject, built=new is not None, note=note))
            continue
        for metric in [*old, *(metric for metric in new if metric not in old)]:
            if metric not in thresholds:
                raise GateError(f"metric '{metric}' of {subject} has no threshold: add it to {_TABLES[gate]}.")
            rows.append(_row(gate, subject, metric, old.get(metric), new.get(metric), thresholds[metric]))
    endings = notes or {}
    texts = ("; ".join(filter(None, (row.note, endings.get(row.subject)))) for row in rows)
    return tuple(dataclasses.replace(row, note=text) for row, text in zip(rows, texts, strict=True))


def presence(gate: str, subject: str, *, built: bool, note: str) -> VerdictRow:
    """The row of a subject that only the candidate has (``built``), or only the baseline."""
    return VerdictRow(
        gate=gate,
        subject=subject,
        metric=BUILT,
        baseline=float(not built),
        candidate=float(built),
        threshold="no change",
        verdict="missing" if built else "regressed",
        note=note,
    )


def _row(
    gate: str, subject: str, metric: str, old: float | None, new: float | None, threshold: Threshold
) -> VerdictRow:
    for value in (old, new):
        if value is not None and not math.isfinite(value):
            raise GateError(f"{subject}: {metric}: {value} is not a finite number, and can't be compared.")
    note = ""
    if old is None or new is None:
        verdict, note = "missing", f"no figure in the {'baseline' if old is None else 'candidate'}"
    else:
        verdict = threshold.judge(old, new)
    return VerdictRow(
        gate=gate,
        subject=subject,
        metric=metric,
        unit=threshold.unit,
        baseline=old,
        candidate=new,
        threshold=str(threshold),
        verdict=verdict,
        note=note,
    )
