"""The best kernel of each shape, and how far the default choice is from it.

A shape in batch and in group mode is two problems. The default is the first that ran of a shape's kernels in dispatch
order: of what was benchmarked, a library with all of these kernels would take it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ckpm.attention.sweeps.stored.columns import Row

UNITS = {"latency_ms": "ms", "modelled_cycles": "modelled cycles"}  # columns by which kernels are compared
_Measured = tuple[Row, str, float]  # with its unit and number


@dataclass(frozen=True, slots=True, kw_only=True)
class Best:
    """The best kernel of one problem: the least value in ``unit``, and that of the default choice."""

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
        """The time that the default takes beyond the best, as a fraction of the best."""
        return self.default_value / self.value - 1


def best(rows: Sequence[Row]) -> tuple[Best, ...]:
    """The best kernel of each problem that has a time, or on the emulator modelled cycles.

    Rows whose numbers are wrong don't count.
    """
    problems: dict[tuple[str, str], list[_Measured]] = {}
    for row in rows:
        if row.get("agrees") is not False and (value := value_of(row)) is not None:
            problems.setdefault((str(row["problem_name"]), str(row["mode"])), []).append((row, *value))
    return tuple(_of_problem(name, mode, group) for (name, mode), group in problems.items())


def value_of(row: Row) -> tuple[str, float] | None:
    """A row's unit and number."""
    for column, unit in UNITS.items():
        if isinstance(number := row.get(column), int | float):
            return unit, float(number)
    return None


def _of_problem(problem: str, mode: str, measured: Sequence[_Measured]) -> Best:
    least, unit, value = min(measured, key=lambda one: one[2])
    default, _, default_value = min(measured, key=lambda one: int(one[0]["dispatch_order"] or 0))
    return Best(
        problem=problem, mode=mode, kernel=str(least["kernel"]), value=value, unit=unit,
        default=str(default["kernel"]), default_value=default_value, compared=len(measured),
    )  # fmt: skip
