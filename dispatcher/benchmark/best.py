"""The best kernel of each shape, how far the default choice is from it, and both into the tuning database.

A shape in batch and in group mode is two problems. The default is the first that ran of a shape's kernels in dispatch
order: of what was benchmarked, a library with all of these kernels would take it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from dispatcher.benchmark.cases import Case
from dispatcher.benchmark.columns import Row
from dispatcher.benchmark.record import Results
from dispatcher.problems.shapes import from_shape
from dispatcher.tuning import Measurement, TuningDatabase

UNITS = {"latency_ms": "ms", "modelled_cycles": "modelled cycles"}  # columns by which kernels are compared


@dataclass(frozen=True, slots=True, kw_only=True)
class Best:
    """Of one problem: the least value in ``unit``, and that of the default choice."""

    problem: str
    mode: str
    kernel: str
    value: float
    unit: str
    default: str
    default_value: float
    compared: int

    @property
    def behind(self) -> float:
        """How much longer the default takes, as a fraction of the best."""
        return self.default_value / self.value - 1


def best(rows: Sequence[Row]) -> tuple[Best, ...]:
    """Of each problem that has a time, or on the emulator modelled cycles. Rows whose numbers are wrong don't count."""
    problems: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row.get("agrees") is not False and _value(row) is not None:
            problems.setdefault((str(row["problem_name"]), str(row["mode"])), []).append(row)
    return tuple(_of_problem(name, mode, group) for (name, mode), group in problems.items())


def _value(row: Row) -> tuple[str, float] | None:
    """A row's unit and number."""
    for column, unit in UNITS.items():
        if isinstance(number := row.get(column), int | float):
            return unit, float(number)
    return None


def _number(row: Row) -> float:
    value = _value(row)
    assert value is not None, "rows without a number are sorted out before"
    return value[1]


def _of_problem(problem: str, mode: str, rows: Sequence[Row]) -> Best:
    least = min(rows, key=_number)
    default = min(rows, key=lambda row: int(row["dispatch_order"] or 0))
    value = _value(least)
    assert value is not None, "rows without a number are sorted out before"
    return Best(
        problem=problem, mode=mode, kernel=str(least["kernel"]), value=value[1], unit=value[0],
        default=str(default["kernel"]), default_value=_number(default), compared=len(rows),
    )  # fmt: skip


def table(rows: Sequence[Best]) -> Table:
    """A line for each problem, the default that is furthest behind first."""
    shown = Table(box=None, pad_edge=False)
    for column in ("problem", "mode", "best kernel"):
        shown.add_column(column, overflow="fold")
    for column in ("value", "unit", "of", "default behind"):
        shown.add_column(column, justify="right", no_wrap=True)
    for one in sorted(rows, key=lambda one: -one.behind):
        figures = (f"{one.value:.6g}", one.unit, str(one.compared), f"{100 * one.behind:.1f} %")
        shown.add_row(one.problem, one.mode, one.kernel, *figures)
    return shown


def tune(file: Path, results: Results, cases: Sequence[Case]) -> int:
    """Put the results into a tuning database, a problem at a time; how many problems.

    Raises TuningLockedError, TuningCorruptError, TuningVersionError, OutputError.
    """
    base, by_identity = TuningDatabase(file), {case.identity: case for case in cases}
    problems: dict[str, tuple[Case, list[Measurement]]] = {}
    for row in results.rows:
        case, value = by_identity.get((str(row["problem_name"]), str(row["kernel"]))), _value(row)
        if case is None or value is None or row.get("agrees") is False:
            continue
        measured = Measurement(kernel=case.key.name, value=value[1], unit=value[0], library=str(row["library"] or ""))
        problems.setdefault(f"{case.shape!r} {case.key.family}", (case, []))[1].append(measured)
    for case, measurements in problems.values():
        problem = from_shape(case.shape, case.key.family, results.asked["arch"])
        base.add(problem, results.asked["device"], measurements)
    return len(problems)


def summary(results: Results, answers: Sequence[Best]) -> Mapping[str, int]:
    """Counts for a line of words."""
    return {
        "kernels": results.kernels,
        "cases": results.cases,
        "ran": len(results.rows),
        "left out": len(results.left_out),
        "differ": sum(row.get("agrees") is False for row in results.rows),
        "of these known defects": sum(bool(row.get("known_defect")) for row in results.rows),
        "defaults that are best": sum(one.behind == 0 for one in answers),
    }
