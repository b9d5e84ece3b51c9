"""Published measurements of real GPUs (published.yaml) as rows."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from ckpm.base.paths import data
from ckpm.base.tablefile import Record, Table, read_table

TABLE = data("reports", "timing", "published.yaml")
ARCHS = {"MI300X": "gfx942", "MI355X": "gfx950"}
UNITS = {"cycles": "cycles", "share": "%", "flop_per_cycle": "flop/cycle", "tflops": "TFLOP/s"}
_SHAPE = re.compile(r"(\d+)x(\d+)/(\d+)x(\d+)")


class PublishedSource(Record, frozen=True):
    title: str


class PublishedAttention(Record, frozen=True):
    """The common part of the shapes in a set of attention."""

    head_dim: int
    causal: bool


class PublishedSet(Record, frozen=True):
    """Rows of one kernel on one GPU. The head of published.yaml describes the fields."""

    kernel: str
    gpu: Literal["MI300X", "MI355X"]
    metric: Literal["cycles", "share", "flop_per_cycle", "tflops"]
    role: Literal["calibrate", "score"]
    source: str
    rows: dict[str, Annotated[float, Meta(gt=0)]]
    measured: bool = True
    model: Literal["", "stream", "asm", "fwd"] = ""
    reason: str = ""
    attention: PublishedAttention | None = None
    bits: Literal[8, 16] = 16


class PublishedTable(Record, frozen=True):
    """published.yaml. ``pairs`` are kernels whose ratio is scored wherever one GPU has rows of both."""

    sources: dict[str, PublishedSource]
    sets: tuple[PublishedSet, ...]
    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedShape:
    """A problem of attention, as many queries as keys."""

    batch: int
    heads: int
    kv_heads: int
    length: int
    head_dim: int
    causal: bool

    @property
    def flops(self) -> float:
        """Operations of both products; a causal mask leaves half of them, as the publications count."""
        return 4.0 * self.batch * self.heads * self.length**2 * self.head_dim / (2 if self.causal else 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedFigure:
    """A figure. ``shape`` is the shape of attention, None for other figures."""

    kernel: str
    label: str
    gpu: str
    metric: str
    value: float
    role: str
    model: str
    reason: str
    source: str
    shape: PublishedShape | None
    bits: int  # of an element of the factors

    @property
    def arch(self) -> str:
        return ARCHS[self.gpu]


def published_figures(file: Path = TABLE) -> tuple[PublishedFigure, ...]:
    """All rows in the table's order."""
    table = read_table(file, PublishedTable)
    _check(table)
    record = table.record
    same = ("kernel", "gpu", "metric", "role", "model", "reason", "bits")
    return tuple(
        PublishedFigure(
            **{name: getattr(published_set, name) for name in same},
            label=label,
            value=value,
            source=record.sources[published_set.source].title,
            shape=_shape(label, published_set.attention) if published_set.attention else None,
        )
        for published_set in record.sets
        for label, value in published_set.rows.items()
    )


def published_pairs(file: Path = TABLE) -> tuple[tuple[str, str], ...]:
    """Kernels whose ratio is scored."""
    return read_table(file, PublishedTable).record.pairs


def _check(table: Table[PublishedTable]) -> None:
    roles: dict[str, str] = {}
    seen = set()
    for at, published_set in enumerate(table.record.sets):
        if roles.setdefault(published_set.kernel, published_set.role) != published_set.role:
            raise table.fail(f"'{published_set.kernel}' calibrates the model and is scored by it", "sets", at)
        if published_set.source not in table.record.sources:
            raise table.fail(f"there is no source '{published_set.source}'", "sets", at)
        if bool(published_set.model) == bool(published_set.reason):
            raise table.fail("give a model, or the reason why there is none", "sets", at)
        for label in published_set.rows:
            if (row := (published_set.kernel, published_set.gpu, published_set.metric, label)) in seen:
                raise table.fail(f"row '{label}' is given twice", "sets", at)
            seen.add(row)
            if published_set.attention and not _SHAPE.fullmatch(label):
                raise table.fail(f"'{label}' is not a shape BATCHxHEADS/KV_HEADSxLENGTH", "sets", at)
    for pair in table.record.pairs:
        if unknown := [kernel for kernel in pair if kernel not in roles]:
            raise table.fail(f"there is no kernel '{unknown[0]}'", "pairs")


def _shape(label: str, attention: PublishedAttention) -> PublishedShape:
    match = _SHAPE.fullmatch(label)
    assert match
    batch, heads, kv_heads, length = map(int, match.groups())
    return PublishedShape(
        batch=batch, heads=heads, kv_heads=kv_heads, length=length,
        head_dim=attention.head_dim, causal=attention.causal,
    )  # fmt: skip
