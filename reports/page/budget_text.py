"""Verdicts of the static gate and excesses of budgets, as text for the report's table of kernels."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from ckpm.reports.page.inputs import Inputs, LibraryResults, gates_of
from ckpm.reports.verdicts import Row


def static_rows(inputs: Inputs, library: LibraryResults, arch: str) -> Mapping[str, list[Row]]:
    """Verdict of the static gate for each kernel of a library."""
    by_subject: defaultdict[str, list[Row]] = defaultdict(list)
    for gate in gates_of(inputs, library, arch):
        for row in gate.rows:
            if row.gate == "static":
                by_subject[row.subject].append(row)
    return by_subject


def beyond_budget(rows: Iterable[Row]) -> list[Row]:
    """Rows of the static gate for a kernel's budgets. They have no baseline."""
    return [row for row in rows if ", budget " in row.threshold]


def excesses(beyond: Iterable[Row]) -> list[str]:
    """Excesses of budgets as text; those that are allowed until the same day share a part."""
    by_excuse: defaultdict[str, list[str]] = defaultdict(list)
    for row in beyond:
        excused = row.note.partition(":")[0] if row.verdict == "unchanged" else row.verdict
        limit = row.threshold.partition(", budget ")[0]
        by_excuse[excused].append(f"{row.metric} {_number(row.candidate)} ({limit})")
    return [f"{', '.join(figures)}: {excused}" for excused, figures in by_excuse.items()]


def hot_loop(rows: Iterable[Row]) -> list[str]:
    """Its instructions by class, in a line."""
    counts = {row.metric.removeprefix("loop_"): row.candidate for row in rows if row.metric.startswith("loop_")}
    listed = ", ".join(f"{name.replace('_', ' ')} {_number(count)}" for name, count in counts.items())
    return [f"instructions of the hot loop: {listed}"] if listed else []


def limits(inputs: Inputs) -> Sequence[str]:
    """The limits of reports/gates/budgets.yaml, each with its reason."""
    return [
        f"{one.name} ({', '.join(one.archs).replace('*', 'every arch')}): "
        f"{', '.join(f'{limit.metric} {limit}' for limit in one.limits)}: {one.reason}"
        for one in inputs.budgets.budgets
    ]


def excuses(inputs: Inputs) -> Sequence[str]:
    """Allowed excesses: kernels, limits, expiry."""
    return [
        f"{one.name}: {one.budget} up to {', '.join(f'{limit.metric} {limit}' for limit in one.limits)}, "
        f"until {one.expires}{' (expired)' if one.expires < inputs.today else ''}: {one.reason} ({one.place})"
        for one in inputs.budgets.allowed
    ]


def _number(value: float | None) -> str:
    return "no figure" if value is None else f"{value:g}"
