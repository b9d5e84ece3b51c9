"""``python -m reports model``: the model's cycles from measured counts, and what the model can't see."""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console
from rich.table import Table

from kernels.base.console import console
from kernels.launch.counters import Measurements
from reports.errors import GateError
from reports.gates.model import cannot_see, estimate, machines

_UNITS = ("matrix", "vector", "lds", "l1", "serial")


def add_options(model: argparse.ArgumentParser) -> None:
    model.add_argument("counters", type=Path, metavar="FILE", help="of python -m kernels measure, or a gate's")
    model.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Raises RecordError, GateError, TableError."""
    show(Measurements.read(args.counters), console())


def show(measured: Measurements, out: Console) -> None:
    """A row a problem: cycles of an average workgroup by unit, of a full GPU and of the grid; the share of the roof.

    Raises:
        GateError: the model doesn't know the arch, or a count is 0 that can't be.
    """
    arch = measured.provenance["arch"]
    machine = machines().get(arch)
    if machine is None:
        raise GateError(f"the model knows nothing of {arch}: add it to reports/gates/model.yaml.")
    title = f"{measured.provenance['upstream']} on {arch} ({machine.product}), modelled from counts"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    table.add_column("problem", overflow="fold", min_width=28)
    for column in (*_UNITS, "steady", "grid", "bound", "flop/B", "TFLOP/s", "of roof"):
        table.add_column(column, justify="right", no_wrap=True)
    for one in measured.problems:
        estimated = estimate(one, machine)
        table.add_row(
            one.problem.partition("/")[2],
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
