"""``ckpm model``: modelled cycles from counts, what the model leaves out, and published figures."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from ckpm.attention.launch.counters import Measured, Measurements
from ckpm.base.console import console
from ckpm.base.errors import GateError, UsageError
from ckpm.reports.gates.references import read_references
from ckpm.timing.model import Estimate, cannot_see, estimate, machine_of

_UNITS = ("matrix", "vector", "lds", "l1", "serial")


def add_options(model: argparse.ArgumentParser) -> None:
    model.add_argument("counters", type=Path, nargs="?", metavar="FILE", help="of ckpm measure, or a gate's")
    model.add_argument("--against", type=Path, default=None, metavar="FILE", help="compare with another library's")
    model.add_argument("--references", action="store_true", help="list published figures and their documents instead")
    model.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Show one file, compare two, or list published figures."""
    if args.references:
        return show_references()
    if args.counters is None:
        raise UsageError("name a FILE of ckpm measure, or give --references.")
    measured = Measurements.read(args.counters)
    if args.against is None:
        return show(measured, console())
    return show_against(measured, Measurements.read(args.against), console())


def show(measured: Measurements, out: Console) -> None:
    """Print a row for each problem: cycles of an average workgroup by unit, of a full GPU and of the grid."""
    arch = measured.provenance["arch"]
    machine = machine_of(arch)
    title = f"{measured.provenance['upstream']} on {arch} ({machine.product}), modelled from counts"
    table = _table(title)
    for column in (*_UNITS, "steady", "grid", "bound", "flop/B", "TFLOP/s", "of roof"):
        table.add_column(column, justify="right", no_wrap=True)
    for problem in measured.problems:
        estimated = estimate(problem, machine)
        table.add_row(
            problem.problem.partition("/")[2],
            *(f"{estimated.units[unit]:.0f}" for unit in _UNITS),
            f"{estimated.steady_cycles:.0f}",
            f"{estimated.grid_cycles:.0f}",
            estimated.bound,
            f"{estimated.intensity:.0f}",
            f"{estimated.steady_tflops:.0f}",
            f"{estimated.of_roof:.0%}",
        )
    out.print(table)
    out.print("Cycles of the engine clock; TFLOP/s and the roof are of a full GPU. The model can't see:")
    for line in cannot_see():
        out.print(f"- {line}")


def pairs_of(first: Any, second: Any) -> list[tuple[Any, Any]]:
    """Problems that two files of counts, or of modelled times, share."""
    archs = [document.provenance["arch"] for document in (first, second)]
    if archs[0] != archs[1]:
        raise GateError(f"one file is of {archs[0]}, the other of {archs[1]}. Make both for one arch.")
    others = {problem.problem: problem for problem in second.problems}
    if pairs := [(problem, others[problem.problem]) for problem in first.problems if problem.problem in others]:
        return pairs
    raise GateError("the two files share no problem. Take libraries that serve the same ones.")


def show_against(measured: Measurements, other: Measurements, out: Console) -> None:
    """Print a row for each problem of both: instructions of all waves, cycles of a wave alone and on a full GPU."""
    arch = measured.provenance["arch"]
    machine = machine_of(arch)
    named = f"{measured.provenance['upstream']} against {other.provenance['upstream']}"
    table = _table(f"{named} on {arch} ({machine.product}), modelled from counts")
    for column in ("instructions", "", "serial", "", "steady", ""):
        table.add_column(column, justify="right", no_wrap=True)
    for first, second in pairs_of(measured, other):
        both = [_cells(each, estimate(each, machine)) for each in (first, second)]
        cells = (cell for candidate, baseline in zip(*both, strict=True) for cell in _change(candidate, baseline))
        table.add_row(first.problem.partition("/")[2], *cells)
    out.print(table)
    out.print("Cycles of the engine clock: serial of a wave alone, steady of a workgroup on a full GPU.")


def _cells(measured: Measured, estimated: Estimate) -> tuple[float, float, float]:
    return measured.counters["instructions"], estimated.units["serial"], estimated.steady_cycles


def _change(candidate: float, baseline: float) -> tuple[str, str]:
    return f"{candidate:.0f}", f"{candidate / baseline - 1:+.2%}"


def _table(title: str) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    table.add_column("problem", overflow="fold", min_width=28)
    return table


def show_references() -> None:
    """Print a table for each entry: its document, hardware, ROCm, and a row for each figure."""
    references, out = read_references(), console()
    for name in dict.fromkeys(reference.name for reference in references):
        figures = [reference for reference in references if reference.name == name]
        first = figures[0]
        source = first.source
        out.print(f"{name}: {first.about}", style="bold")
        table = Table(box=None, pad_edge=False)
        for column in ("figure", "of", first.metric, "unit", "compared"):
            table.add_column(column, justify="right" if column == first.metric else "left")
        for figure in figures:
            compared = f"within {figure.tolerance:.2g}" if figure.shape else "listed only"
            table.add_row(figure.label, figure.variant, f"{figure.value:g}", figure.unit, compared)
        out.print(table)
        for text in dict.fromkeys(f"{figure.label}: {figure.assumed}" for figure in figures if figure.assumed):
            out.print(text)
        rocm = f"ROCm {source.rocm}" if source.rocm else "ROCm not stated"
        out.print(f"{source.title}\n{source.hardware}, {rocm}; {source.method}\n")
