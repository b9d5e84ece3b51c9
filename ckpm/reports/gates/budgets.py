"""Budgets: limits of a kernel's registers, spills and waves, by selector, and an allow-list that expires
(budgets.yaml).
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from ckpm.base.errors import WhereError
from ckpm.base.paths import data
from ckpm.base.rocm_choice import TOOLCHAINS
from ckpm.base.tablefile import Record, Table, Text, Words, read_table, word_list
from ckpm.matrix.dialects import archs, upstreams
from ckpm.matrix.keys import Key
from ckpm.matrix.where import Predicate, compile_where
from ckpm.reports.gates.comparing import Threshold
from ckpm.reports.verdicts import STATIC, VerdictRow

BUDGETS = data("reports", "gates", "budgets.yaml")


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltLibrary:
    """Arch, upstream and toolchain of a library."""

    arch: str
    upstream: str
    toolchain: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A metric's largest allowed value ``bound``, or its smallest if ``least``."""

    metric: str
    bound: float
    least: bool

    def __str__(self) -> str:
        return f"at {'least' if self.least else 'most'} {self.bound:g}"

    def holds(self, value: float) -> bool:
        return value >= self.bound if self.least else value <= self.bound


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Limits for the kernels that ``selects`` picks of some archs, upstreams and toolchains (``*``: all)."""

    name: str
    archs: tuple[str, ...]
    upstreams: tuple[str, ...]
    toolchains: tuple[str, ...]
    selects: Predicate
    limits: tuple[Limit, ...]
    reason: str

    def covers(self, key: Key, built: BuiltLibrary) -> bool:
        facts = ((self.archs, built.arch), (self.upstreams, built.upstream), (self.toolchains, built.toolchain))
        return all("*" in names or fact in names for names, fact in facts) and self.selects(key)


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance(Budget):
    """Wider limits of one budget for some kernels, until ``expires`` (inclusive). ``location`` is its file:line."""

    location: str
    budget: str
    expires: datetime.date

    def allows(self, key: Key, built: BuiltLibrary, budget: Budget, limit: Limit, value: float) -> bool:
        return (
            self.budget == budget.name
            and any(own.metric == limit.metric and own.holds(value) for own in self.limits)
            and self.covers(key, built)
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
        built: BuiltLibrary,
        today: datetime.date,
    ) -> tuple[VerdictRow, ...]:
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
            row = VerdictRow(
                gate=STATIC,
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
        self, key: Key, built: BuiltLibrary, budget: Budget, limit: Limit, value: float, today: datetime.date
    ) -> tuple[str, str]:
        """Verdict and note of a figure beyond its limit."""
        entries = [entry for entry in self.allowed if entry.allows(key, built, budget, limit, value)]
        for entry in entries:
            if today <= entry.expires:
                return "unchanged", f"allowed until {entry.expires}: {entry.reason} ({entry.name}, {entry.location})"
        if entries:
            late = entries[0]
            return ("regressed", f"{late.name} ({late.location}) expired on {late.expires}: fix it or extend the entry")
        return "regressed", budget.reason


class _Limit(Record, frozen=True):
    at_most: int | None = None
    at_least: int | None = None


class _Budget(Record, frozen=True, kw_only=True):
    archs: Words
    limits: Annotated[dict[str, _Limit], Meta(min_length=1)]
    reason: Text
    upstreams: Words = "*"
    toolchains: Words = "*"
    where: str | None = None


class _Allowance(_Budget, frozen=True, kw_only=True):
    budget: str
    expires: datetime.date


class BudgetTable(Record, frozen=True):
    """The record of budgets.yaml."""

    budgets: dict[str, _Budget]
    allowed: dict[str, _Allowance]


def read_budgets(thresholds: Mapping[str, Threshold], file: Path = BUDGETS) -> Budgets:
    """Read budgets and allowances."""
    table = read_table(file, BudgetTable)
    budgets, allowed = [], []
    for name, row in table.record.budgets.items():
        budgets.append(Budget(**_shared_fields(table, row, thresholds, "budgets", name)))
    for name, entry in table.record.allowed.items():
        table.demand_known(entry.budget, table.record.budgets, "allowed", name, "budget")
        fields, item = _shared_fields(table, entry, thresholds, "allowed", name), table.at("allowed", name)
        location = f"{item.file.name}:{item.line}"
        allowed.append(Allowance(**fields, location=location, budget=entry.budget, expires=entry.expires))
    return Budgets(budgets=tuple(budgets), allowed=tuple(allowed))


def _shared_fields(table: Table[BudgetTable], row: _Budget, metrics: Collection[str], *path: str) -> dict[str, Any]:
    """Fields of a budget or an allowance."""
    choices = {"archs": archs(), "upstreams": (*upstreams(), "checkout"), "toolchains": TOOLCHAINS}
    for name, names in choices.items():
        table.demand_known(getattr(row, name), (*names, "*"), *path, name)
    limits = []
    for metric, limit in row.limits.items():
        table.demand_known(metric, metrics, *path, "limits", metric)
        bounds = [bound for bound in (limit.at_most, limit.at_least) if bound is not None]
        if len(bounds) != 1:
            raise table.fail("must be either {at_most: N} or {at_least: N}", *path, "limits", metric)
        limits.append(Limit(metric=metric, bound=bounds[0], least=limit.at_least is not None))
    try:
        selects = compile_where(row.where) if row.where is not None else lambda key: True
    except WhereError as error:
        raise table.fail(str(error), *path, "where") from error
    return {
        **{name: word_list(getattr(row, name)) for name in choices},
        "name": path[-1],
        "selects": selects,
        "limits": tuple(limits),
        "reason": " ".join(row.reason.split()),
    }
