"""The timing model's score: modelled figures beside published ones, and the errors.

Groups: A is free of the clock (cycles, shares), B are TFLOP/s, C ratios of two kernels' TFLOP/s on one board.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import groupby
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from ckpm.base.errors import RecordError
from ckpm.base.files import write_atomically
from ckpm.base.paths import data
from ckpm.base.records import Source, as_text
from ckpm.base.tablefile import Record, read_table
from ckpm.timing.clock import LAUNCH_SECONDS, Clock, fit_clocks
from ckpm.timing.machine import launch_numbers, numbers
from ckpm.timing.model import machines
from ckpm.timing.published import PublishedFigure

ACCEPTED = data("reports", "timing", "accepted.yaml")
OWN = "own"  # the group of times of a board that ran `nox -s first-gpu-run`
GROUPS = {"A": "cycles and shares, free of the clock", "B": "TFLOP/s", "C": "ratios of pairs on one board"}
TITLES = {**GROUPS, OWN: "TFLOP/s of a board of ours"}
TIERS: Mapping[str, tuple[str, ...]] = {"smoke": ("stream", "asm"), "full": ("stream", "asm", "fwd")}
SCORE = "model-score.json"
_FORMAT = 1
_SLACK = 5e-4  # of a figure, for other machines' floating point


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreRow:
    """A published figure. ``modelled`` is None with a ``reason``; ``least`` and ``most`` are of other start offsets."""

    group: str
    kernel: str
    label: str
    gpu: str
    metric: str
    role: str
    published: float
    modelled: float | None = None
    least: float | None = None
    most: float | None = None
    matrix_share: float | None = None
    ghz: float | None = None
    reason: str = ""
    source: str = ""

    @property
    def error(self) -> float | None:
        """Relative difference; None without a modelled figure, and for a published 0, which is a wrong result's."""
        return self.modelled / self.published - 1 if self.modelled is not None and self.published else None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupScore:
    """Errors of a group's scored rows.

    ``error`` is the WMAPE: the sum of absolute errors over the sum of published figures. In group A, where units
    differ, it is the mean of relative errors. ``rank`` is Spearman's correlation, the least of the metrics. ``signs``:
    the share of ratios on the same side of 1. ``log_error``: the mean absolute logarithm of modelled over published.
    """

    rows: int
    error: float
    rank: float
    log_error: float
    signs: float


class AcceptedScore(Record, frozen=True):
    """Figures of a group that a run must reach."""

    error: float
    rank: float
    signs: float


class AcceptedTable(Record, frozen=True):
    """The record of accepted.yaml: groups by tier."""

    tiers: dict[str, dict[str, AcceptedScore]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Rows and errors. ``sensitivity``: the groups with a fifth less and a fifth more of each doubtful number."""

    tier: str
    rows: tuple[ScoreRow, ...]
    groups: Mapping[Annotated[str, Meta(pattern=f"^({'|'.join(TITLES)})$")], GroupScore]
    clocks: Mapping[str, Clock]
    sensitivity: Mapping[str, tuple[Mapping[str, GroupScore], Mapping[str, GroupScore]]] = dataclasses.field(
        default_factory=dict
    )

    def write(self, file: Path) -> None:
        """Replace ``file`` in one step."""
        write_atomically(file, as_text({"format": _FORMAT, **dataclasses.asdict(self)}))

    @classmethod
    def read(cls, file: Path) -> Score:
        """Read a written score."""
        document = Source(
            location=file, what="score", remedy="Score again: nox -s timing-score.", error=RecordError
        ).read()
        if document.get("format").count() != _FORMAT:
            raise document.source.fail(f"no score of format {_FORMAT}")
        facts = {name: value for name, value in document.value.items() if name != "format"}
        return dataclasses.replace(document, value=facts).record(cls)

    def worse(self, accepted: Mapping[str, AcceptedScore]) -> list[str]:
        """A line for each group that is worse than its accepted figures, or has none."""
        lines = []
        for name, bound in accepted.items():
            group = self.groups[name]
            if not group.rows:
                lines.append(f"group {name} has no row")
                continue
            for word, now, then, sign in (
                ("error", group.error, bound.error, 1),
                ("rank", group.rank, bound.rank, -1),
                ("signs", group.signs, bound.signs, -1),
            ):
                if sign * (now - then) > _SLACK:
                    lines.append(f"group {name}: {word} {now:.4f}, accepted {then:.4f}")
        return lines


def read_accepted(tier: str, file: Path = ACCEPTED) -> Mapping[str, AcceptedScore]:
    """Read a tier's accepted figures by group."""
    return read_table(file, AcceptedTable).record.tiers[tier]


def score_model(
    figures: Sequence[PublishedFigure],
    pairs: Sequence[tuple[str, str]],
    tier: str,
    ck: Path | None,
    changed: tuple[str, int] | None = None,
) -> Score:
    """Model every figure of the tier. ``ck``: a library of CK's kernels, for tier full. ``changed``: see answers."""
    clocks = fit_clocks(figures, machines())
    chosen = [figure for figure in figures if figure.model in TIERS[tier]]
    rows = [
        *_model(chosen, clocks, ck, changed),
        *(_row(figure, figure.reason or f"not in tier {tier}") for figure in figures if figure not in chosen),
    ]
    rows += _ratios(rows, pairs)
    scored = [row for row in rows if row.role == "score" and row.modelled is not None]
    groups = {name: score_of([row for row in scored if row.group == name]) for name in GROUPS}
    return Score(
        tier=tier,
        rows=tuple(rows),
        groups=groups,
        clocks={f"{gpu}, {bits} bits": clock for (gpu, bits), clock in clocks.items()},
    )


def _model(
    figures: Sequence[PublishedFigure],
    clocks: Mapping[tuple[str, int], Clock],
    ck: Path | None,
    changed: tuple[str, int] | None,
) -> list[ScoreRow]:
    from ckpm.timing.launches import answers  # only here: readers of a score do without the emulator

    by_arch = {
        arch: list(some)
        for arch, some in groupby(sorted(figures, key=lambda figure: figure.arch), lambda figure: figure.arch)
    }
    rows = []
    with ProcessPoolExecutor(len(by_arch), get_context("spawn"), max_tasks_per_child=1) as pool:
        running = {
            arch: pool.submit(
                answers, arch, machines()[arch].compute_units, some, ck if arch == "gfx950" else None, changed
            )
            for arch, some in by_arch.items()
        }
        for arch, some in by_arch.items():
            for figure, answer in zip(some, running[arch].result(), strict=True):
                row = _row(figure, "")
                if figure.shape is None:
                    rows.append(dataclasses.replace(row, modelled=answer.value))
                    continue
                ghz = clocks[figure.gpu, figure.bits].ghz(answer.matrix_share)
                rates = [
                    figure.shape.flops / (cycles / ghz / 1e9 + LAUNCH_SECONDS) / 1e12
                    for cycles in (answer.value, answer.most, answer.least)
                ]
                rows.append(
                    dataclasses.replace(
                        row, modelled=rates[0], least=rates[1], most=rates[2], matrix_share=answer.matrix_share, ghz=ghz
                    )
                )
    return rows


def vary(
    figures: Sequence[PublishedFigure], pairs: Sequence[tuple[str, str]], tier: str, ck: Path | None
) -> dict[str, tuple[Mapping[str, GroupScore], Mapping[str, GroupScore]]]:
    """The groups with a fifth less and a fifth more of each doubtful number."""
    groups = {}
    machine_numbers = {**numbers("gfx950"), **launch_numbers("gfx950")}
    for name in (name for name, number in machine_numbers.items() if number.doubtful):
        low, high = (score_model(figures, pairs, tier, ck, (name, side)).groups for side in (0, 1))
        groups[name] = low, high
    return groups


def _row(figure: PublishedFigure, reason: str) -> ScoreRow:
    same = {name: getattr(figure, name) for name in ("kernel", "label", "gpu", "metric", "role", "source")}
    group = "B" if figure.metric == "tflops" else "A"
    return ScoreRow(group=group, published=figure.value, reason=reason, **same)


def _ratios(rows: Sequence[ScoreRow], pairs: Sequence[tuple[str, str]]) -> list[ScoreRow]:
    """Ratios of modelled TFLOP/s of the pairs' kernels: the same shape, GPU and source."""
    modelled_rows = {
        (row.source, row.gpu, row.kernel, row.label): row for row in rows if row.group == "B" and row.modelled
    }
    ratios = []
    for first, second in pairs:
        for (source, gpu, kernel, label), row in modelled_rows.items():
            other = modelled_rows.get((source, gpu, second, label))
            if kernel != first or other is None or not (row.modelled and other.modelled):
                continue
            ratios.append(
                ScoreRow(
                    group="C", kernel=f"{first} / {second}", label=label, gpu=gpu, metric="ratio", role=row.role,
                    published=row.published / other.published, modelled=row.modelled / other.modelled, source=source,
                )
            )  # fmt: skip
    return ratios


def score_of(rows: Sequence[ScoreRow]) -> GroupScore:
    """The errors of rows of one group."""
    both = [(row.published, row.modelled or 0.0) for row in rows]
    if rows and rows[0].group == "A":
        error = sum(abs(modelled / published - 1) for published, modelled in both) / len(both)
    else:
        error = sum(abs(modelled - published) for published, modelled in both) / (
            sum(published for published, _ in both) or 1
        )
    metrics = sorted({row.metric for row in rows})
    ranks = [
        spearman([(row.published, row.modelled or 0.0) for row in rows if row.metric == metric]) for metric in metrics
    ]
    logs = [abs(math.log(modelled / published)) for published, modelled in both if modelled > 0]
    return GroupScore(
        rows=len(rows),
        error=error,
        rank=min(ranks, default=0.0),
        log_error=sum(logs) / (len(logs) or 1),
        signs=sum((published > 1) == (modelled > 1) for published, modelled in both) / (len(both) or 1),
    )


def spearman(both: Sequence[tuple[float, float]]) -> float:
    """Spearman's rank correlation; equal values have the mean of their ranks."""
    if len(both) < 2:
        return 1.0
    x, y = (_ranks([pair[at] for pair in both]) for at in (0, 1))
    middle = (len(both) + 1) / 2
    product = sum((a - middle) * (b - middle) for a, b in zip(x, y, strict=True))
    sizes = [math.sqrt(sum((rank - middle) ** 2 for rank in some)) for some in (x, y)]
    return product / (sizes[0] * sizes[1]) if all(sizes) else 0.0


def _ranks(values: Sequence[float]) -> list[float]:
    ordered = sorted(values)
    return [ordered.index(value) + (ordered.count(value) + 1) / 2 for value in values]
