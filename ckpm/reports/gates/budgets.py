"""Budgets: limits of a kernel's registers, spills and waves, by selector, and an allow-list that expires
(budgets.yaml).
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeVar

from msgspec import Meta, structs

from ckpm.base.errors import WhereError
from ckpm.base.paths import data
from ckpm.base.rocm_choice import TOOLCHAINS
from ckpm.base.tablefile import Later, Record, Table, Text, Words, add_names, read_table, word_list
from ckpm.matrix.dialects import archs, upstreams
from ckpm.matrix.keys import Key
from ckpm.matrix.where import compile_where
from ckpm.reports.gates.comparing import Threshold
from ckpm.reports.verdicts import STATIC, VerdictRow

BUDGETS = data("reports", "gates", "budgets.yaml")
B = TypeVar("B", bound="Budget")


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltLibrary:
    """Arch, upstream and toolchain of a library."""

    arch: str
    upstream: str
    toolchain: str


class Limit(Record, frozen=True):
    """A metric's largest allowed value or its smallest."""

    at_most: int | None = None
    at_least: int | None = None
    metric: Later = ""

    def __str__(self) -> str:
        return f"at most {self.at_most:g}" if self.at_most is not None else f"at least {self.at_least:g}"

    def holds(self, value: float) -> bool:
        return (self.at_most is None or value <= self.at_most) and (self.at_least is None or value >= self.at_least)


class Budget(Record, frozen=True, kw_only=True):
    """Limits for the kernels that ``where`` picks of some archs, upstreams and toolchains (``*``: all)."""

    archs: Words
    limits: Annotated[dict[str, Limit], Meta(min_length=1)]
    reason: Text
    upstreams: Words = "*"
    toolchains: Words = "*"
    where: str | None = None
    name: Later = ""

    def covers(self, key: Key, built: BuiltLibrary) -> bool:
        facts = ((self.archs, built.arch), (self.upstreams, built.upstream), (self.toolchains, built.toolchain))
        is_of = all(not {"*", fact}.isdisjoint(word_list(names)) for names, fact in facts)
        return is_of and (self.where is None or compile_where(self.where)(key))


class Allowance(Budget, frozen=True, kw_only=True):
    """Wider limits of one budget for some kernels, until ``expires`` (inclusive). ``location`` is its file:line."""

    budget: str
    expires: datetime.date
    location: Later = ""

    def allows(self, key: Key, built: BuiltLibrary, budget: Budget, limit: Limit, value: float) -> bool:
        own = self.limits.get(limit.metric)
        return self.budget == budget.name and own is not None and own.holds(value) and self.covers(key, built)


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
            for limit in budget.limits.values()
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


class BudgetTable(Record, frozen=True):
    """The record of budgets.yaml."""

    budgets: dict[str, Budget]
    allowed: dict[str, Allowance]


def read_budgets(thresholds: Mapping[str, Threshold], file: Path = BUDGETS) -> Budgets:
    """Read budgets and allowances."""
    table = read_table(file, BudgetTable)
    budgets = [_check_budget(table, row, thresholds, "budgets") for row in add_names(table.record.budgets).values()]
    allowed = []
    for name, entry in add_names(table.record.allowed).items():
        table.demand_known(entry.budget, table.record.budgets, "allowed", name, "budget")
        item = table.at("allowed", name)
        entry = _check_budget(table, entry, thresholds, "allowed")
        allowed.append(structs.replace(entry, location=f"{item.file.name}:{item.line}"))
    return Budgets(budgets=tuple(budgets), allowed=tuple(allowed))


def _check_budget(table: Table[BudgetTable], row: B, metrics: Collection[str], section: str) -> B:
    """The budget or allowance after a check of its words, with its reason on one line."""
    path = (section, row.name)
    choices = {"archs": archs(), "upstreams": (*upstreams(), "checkout"), "toolchains": TOOLCHAINS}
    for name, names in choices.items():
        table.demand_known(getattr(row, name), (*names, "*"), *path, name)
    for metric, limit in row.limits.items():
        table.demand_known(metric, metrics, *path, "limits", metric)
        if (limit.at_most is None) == (limit.at_least is None):
            raise table.fail("must be either {at_most: N} or {at_least: N}", *path, "limits", metric)
    if row.where is not None:
        try:
            compile_where(row.where)
        except WhereError as error:
            raise table.fail(str(error), *path, "where") from error
    return structs.replace(row, limits=add_names(row.limits, "metric"), reason=" ".join(row.reason.split()))
