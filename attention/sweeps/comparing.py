"""A benchmark's best kernels as a table, and all its kernels into the tuning database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.table import Table

from ckpm.attention.problems.shapes import from_shape
from ckpm.attention.sweeps.cases import Case
from ckpm.attention.sweeps.stored.best import Best, value_of
from ckpm.attention.sweeps.stored.record import Results
from ckpm.attention.tuning import Measurement, TuningDatabase


def table(rows: Sequence[Best]) -> Table:
    """A line for each problem, the slowest default first."""
    shown = Table(box=None, pad_edge=False)
    for column in ("problem", "mode", "best kernel"):
        shown.add_column(column, overflow="fold")
    for column in ("value", "unit", "of", "default slower by"):
        shown.add_column(column, justify="right", no_wrap=True)
    for one in sorted(rows, key=lambda one: -one.behind):
        figures = (f"{one.value:.6g}", one.unit, str(one.compared), f"{100 * one.behind:.1f} %")
        shown.add_row(one.problem, one.mode, one.kernel, *figures)
    return shown


def tune(file: Path, results: Results, cases: Sequence[Case]) -> int:
    """Put the results into a tuning database, a problem at a time; how many problems.

    Raises OutputError, RecordError.
    """
    base, by_identity = TuningDatabase(file), {case.identity: case for case in cases}
    problems: dict[str, tuple[Case, list[Measurement]]] = {}
    for row in results.rows:
        case, value = by_identity.get((str(row["problem_name"]), str(row["kernel"]))), value_of(row)
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
