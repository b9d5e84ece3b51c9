"""Budgets: limits of a kernel's registers, spills and waves, by selector, and an allow-list that expires
(budgets.yaml).
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from ckpm.base.errors import WhereError
from ckpm.base.tablefile import Field, load
from ckpm.kernels.code.toolchains import CHOICES
from ckpm.matrix.dialects import archs, upstreams
from ckpm.matrix.keys import Key
from ckpm.matrix.where import Predicate, compile_where
from ckpm.reports.gates.comparing import Threshold
from ckpm.reports.verdicts import Row

BUDGETS = Path(__file__).with_name("budgets.yaml")
_TOOLCHAINS = tuple(name for name in CHOICES if name != "auto")


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """Arch, upstream and toolchain of a library."""

    arch: str
    upstream: str
    toolchain: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """``bound`` is the most that a metric may be, or the least if ``least``."""

    metric: str
    bound: float
    least: bool

    def __str__(self) -> str:
        return f"at {'least' if self.least else 'most'} {self.bound:g}"

    def holds(self, value: float) -> bool:
        return value >= self.bound if self.least else value <= self.bound


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Limits for the kernels that ``selects`` picks of some upstreams on some archs (``*``: all)."""

    name: str
    upstreams: tuple[str, ...]
    archs: tuple[str, ...]
    selects: Predicate
    limits: tuple[Limit, ...]
    reason: str

    def covers(self, key: Key, built: Built) -> bool:
        return (
            ("*" in self.archs or built.arch in self.archs)
            and ("*" in self.upstreams or built.upstream in self.upstreams)
            and self.selects(key)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """Wider limits of one budget for some kernels, until ``expires`` (inclusive)."""

    name: str
    place: str
    budget: str
    upstreams: tuple[str, ...]
    toolchains: tuple[str, ...]
    archs: tuple[str, ...]
    selects: Predicate
    limits: tuple[Limit, ...]
    reason: str
    expires: datetime.date

    def covers(self, key: Key, built: Built, budget: Budget, limit: Limit, value: float) -> bool:
        return (
            self.budget == budget.name
            and ("*" in self.archs or built.arch in self.archs)
            and ("*" in self.upstreams or built.upstream in self.upstreams)
            and ("*" in self.toolchains or built.toolchain in self.toolchains)
            and any(own.metric == limit.metric and own.holds(value) for own in self.limits)
            and self.selects(key)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Budgets:
    budgets: tuple[Budget, ...]
    allowed: tuple[Allowance, ...]

    def rows(
        self,
        keys: Mapping[str, Key],
        figures: Mapping[str, Mapping[str, float]],
        thresholds: Mapping[str, Threshold],
        *,
        built: Built,
        today: datetime.date,
    ) -> tuple[Row, ...]:
        """A row for each figure beyond its limit: unchanged where it is allowed, else regressed.

        A metric that a kernel lacks is ``missing``: a limit that can't be checked fails.
        """
        rows = []
        limits = [
            (name, key, budget, limit)
            for name, key in sorted(keys.items())
            for budget in self.budgets
            if budget.covers(key, built)
            for limit in budget.limits
        ]
        for name, key, budget, limit in limits:
            value = figures[name].get(limit.metric)
            if value is not None and limit.holds(value):
                continue
            verdict, note = "missing", f"budget {budget.name}: no figure"
            if value is not None:
                verdict, note = self._excuse(key, built, budget, limit, value, today)
            row = Row(
                gate="static",
                subject=name,
                metric=limit.metric,
                unit=thresholds[limit.metric].unit,
                baseline=None,
                candidate=value,
                threshold=f"{limit}, budget {budget.name}",
                verdict=verdict,
                note=note,
            )
            rows.append(row)
        return tuple(rows)

    def _excuse(
        self, key: Key, built: Built, budget: Budget, limit: Limit, value: float, today: datetime.date
    ) -> tuple[str, str]:
        """Verdict and note of a figure beyond its limit."""
        entries = [entry for entry in self.allowed if entry.covers(key, built, budget, limit, value)]
        for entry in entries:
            if today <= entry.expires:
                return "unchanged", f"allowed until {entry.expires}: {entry.reason} ({entry.name}, {entry.place})"
        if entries:
            late = entries[0]
            return (
                "regressed",
                f"{late.name} ({late.place}) expired on {late.expires}: fix it or extend the entry",
            )
        return "regressed", budget.reason


def read_budgets(thresholds: Mapping[str, Threshold], file: Path = BUDGETS) -> Budgets:
    """The budgets as written. Raises TableError, with file, line and field."""
    table = load(file)
    table.allow(("budgets", "allowed"))
    budgets = tuple(_budget(name, item, thresholds) for name, item in table.get("budgets").mapping().items())
    names = [budget.name for budget in budgets]
    allowed = table.get("allowed").mapping().items()
    return Budgets(budgets=budgets, allowed=tuple(_allowance(name, item, names, thresholds) for name, item in allowed))


def _budget(name: str, item: Field, metrics: Collection[str]) -> Budget:
    item.allow(("where", "upstreams", "archs", "limits", "reason"))
    own = item.find("upstreams")
    return Budget(
        name=name,
        upstreams=_known(own, (*upstreams(), "checkout")) if own else ("*",),
        archs=_known(item.get("archs"), archs()),
        selects=_selects(item.find("where")),
        limits=_limits(item.get("limits"), metrics),
        reason=_reason(item.get("reason")),
    )


def _allowance(name: str, item: Field, budgets: Collection[str], metrics: Collection[str]) -> Allowance:
    item.allow(("budget", "upstreams", "toolchains", "archs", "where", "limits", "reason", "expires"))
    expires, toolchains = item.get("expires"), item.find("toolchains")
    if not isinstance(expires.value, datetime.date) or isinstance(expires.value, datetime.datetime):
        raise expires.fail(f"must be a date such as 2027-06-30, not {expires.value!r}")
    return Allowance(
        name=name,
        place=f"{item.file.name}:{item.line}",
        budget=_budget_name(item.get("budget"), budgets),
        upstreams=_known(item.get("upstreams"), (*upstreams(), "checkout")),
        toolchains=_known(toolchains, _TOOLCHAINS) if toolchains else ("*",),
        archs=_known(item.get("archs"), archs()),
        selects=_selects(item.get("where")),
        limits=_limits(item.get("limits"), metrics),
        reason=_reason(item.get("reason")),
        expires=expires.value,
    )


def _budget_name(field: Field, budgets: Collection[str]) -> str:
    if field.text() not in budgets:
        raise field.fail(f"unknown budget; known: {', '.join(budgets)}")
    return field.text()


def _limits(field: Field, metrics: Collection[str]) -> tuple[Limit, ...]:
    limits = []
    for metric, item in field.mapping().items():
        if metric not in metrics:
            raise item.fail(f"unknown metric; known: {', '.join(metrics)}")
        item.allow(("at_most", "at_least"))
        if len(item.mapping()) != 1:
            raise item.fail("must be either {at_most: N} or {at_least: N}")
        ((word, bound),) = item.mapping().items()
        limits.append(Limit(metric=metric, bound=bound.integer(), least=word == "at_least"))
    if not limits:
        raise field.fail("is empty: name a metric")
    return tuple(limits)


def _selects(field: Field | None) -> Predicate:
    if field is None:
        return lambda key: True
    try:
        return compile_where(field.text())
    except WhereError as error:
        raise field.fail(str(error)) from error


def _known(field: Field, known: Collection[str]) -> tuple[str, ...]:
    words = field.texts() if isinstance(field.value, list) else (field.text(),)
    if not words:
        raise field.fail("is empty")
    for word in words:
        if word != "*" and word not in known:
            raise field.fail(f"unknown '{word}'; known: {', '.join(known)}, or '*'")
    return words


def _reason(field: Field) -> str:
    text = " ".join(field.text().split())
    if not text:
        raise field.fail("is empty: say why")
    return text
