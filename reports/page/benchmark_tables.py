"""The report's table of benchmarks: the best kernel of each shape, and the distance of dispatch's choice from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from ckpm.attention.sweeps.results import best
from ckpm.reports.page.columns import Cell, Folded, Table, columns
from ckpm.reports.page.inputs import Inputs


def best_kernels(inputs: Inputs) -> Table:
    """Rows with the choice farthest below the best first. Kernels with wrong numbers are not compared."""
    rows: list[list[Cell]] = []
    for file, benchmark in inputs.benchmarks.items():
        for one in sorted(best(benchmark.rows), key=lambda one: -one.behind):
            same = one.kernel == one.default
            rows.append(
                [
                    one.problem, one.mode, file.stem, one.compared, round(100 * one.behind, 1), one.value,
                    one.default_value, one.unit, one.kernel, "" if same else one.default,
                ]
            )  # fmt: skip
    counted = ("kernels", "% below best", "best", "default")
    return Table(
        id="benchmarks",
        short="Benchmarks",
        title="Best kernels of benchmarks",
        columns=columns(
            "problem", "mode", "benchmark", *counted, "unit", "best kernel", "default, if another",
            problem="name", mode="choice", benchmark="choice", unit="choice", best_kernel="kernel",
            **{"default,_if_another": "kernel"}, **{name.replace(" ", "_"): "number" for name in counted},
        ),
        rows=rows,
        note="The default is the first in upstream's order of the kernels that ran: a library of all of them would "
        "take it. Modelled cycles are those of one workgroup on the timing model, no measurement." if rows else "",
        folded=tuple(
            Folded(title=f"Left out of {file.stem}", lines=_reasons(benchmark.left_out.values()))
            for file, benchmark in inputs.benchmarks.items()
            if benchmark.left_out
        ),
    )  # fmt: skip


def _reasons(reasons: Iterable[str]) -> list[str]:
    """Each reason once, with its count; the most frequent first."""
    return [f"{count}: {why}" for why, count in Counter(reasons).most_common()]
