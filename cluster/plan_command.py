"""``python -m kernels cluster-plan``: what a build would take on so many machines, from measured costs of kernels."""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass

from rich.table import Table

from ckpm.base.console import console
from ckpm.base.display import show
from ckpm.base.errors import UsageError
from ckpm.base.jobs import UNIT_BYTES
from ckpm.cluster.costs import Costs, read_costs
from ckpm.cluster.schedule import Schedule, simulate
from ckpm.kernels.families.units import DEFAULT_SIZE
from ckpm.kernels.families.units import plan as plan_units
from ckpm.matrix.defects import split
from ckpm.matrix.dialects import Dialect
from ckpm.matrix.options import add_selection_options, selection_from
from ckpm.matrix.selection import Selection, select_some

_MACHINES = (1, 16, 256)
_HOUR = 3600.0
_DIGITS = 6
_HOST_FILES = 2  # dispatch and harness


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """A build of ``kernels`` in ``units`` on ``machines`` with ``slots`` compilers each.

    ``bytes`` go into the object cache when nothing is in it, and out of it when everything is; ``warm`` are the seconds
    that the latter takes.
    """

    kernels: int
    units: int
    unit_size: int
    machines: int
    slots: int
    bytes: int
    warm: float
    schedule: Schedule

    @property
    def machine_hours(self) -> float:
        """All machines are held until the library is finished."""
        return self.machines * self.schedule.finished / _HOUR


def predict(chosen: Dialect, selection: Selection, costs: Costs, *, unit_size: int, machines: int) -> Prediction:
    """Raises EmptySelectionError and the other errors of a selection."""
    keys, _ = split(select_some(chosen, selection), chosen.name)
    units = plan_units(keys, unit_size)
    work = [*(costs.work(unit, len(selection.archs)) for unit in units), *[costs.host_work()] * _HOST_FILES]
    slots = max(1, min(costs.processors, costs.memory // UNIT_BYTES))
    final = costs.final_seconds(work)
    size = sum(unit.bytes for unit in work)
    return Prediction(
        kernels=len(keys),
        units=len(units),
        unit_size=unit_size,
        machines=machines,
        slots=slots,
        bytes=size,
        warm=size / costs.network + final,
        schedule=simulate(work, slots=machines * slots, network=costs.network, final=final),
    )


def add_options(parser: argparse.ArgumentParser) -> None:
    add_selection_options(parser)
    many = "repeat it or separate by commas"
    parser.add_argument("--machines", action="append", metavar="N", help=f"{many} (default: 1,16,256)")
    parser.add_argument("--unit-size", action="append", metavar="N", help=f"{many} (default: {DEFAULT_SIZE})")
    parser.add_argument("--processors", type=int, default=None, metavar="N", help="of a machine (default: costs.yaml)")
    parser.add_argument("--price", type=price, default=None, metavar="X", help="of a machine for an hour")
    parser.add_argument("--format", choices=["text", "json"], default="text")


def run(args: argparse.Namespace) -> int:
    """Print one row for each number of machines and size of units. Exit code 0, or raises."""
    chosen, selection = selection_from(args)
    costs = read_costs()
    if args.processors is not None:
        if args.processors < 1:
            raise UsageError("--processors must be at least 1")
        # memory is bought with processors
        memory = costs.memory * args.processors // costs.processors
        costs = dataclasses.replace(costs, processors=args.processors, memory=memory)
    machines = _counts("--machines", args.machines, _MACHINES)
    sizes = _counts("--unit-size", args.unit_size, (DEFAULT_SIZE,))
    rows = [
        predict(chosen, selection, costs, unit_size=size, machines=count)
        for count, size in itertools.product(machines, sizes)
    ]
    if args.format == "json":
        show(json.dumps([_facts(row, args.price) for row in rows], indent=1))
    else:
        title = f"{rows[0].kernels} kernels of {chosen.name} for {', '.join(selection.archs)}"
        console().print(_table(title, rows, args.price))
    return 0


def price(text: str) -> float:
    """Raises ValueError."""
    if not 0 <= (asked := float(text)) < math.inf:
        raise ValueError("no price")
    return asked


def _counts(option: str, given: Sequence[str] | None, default: tuple[int, ...]) -> tuple[int, ...]:
    if not given:
        return default
    texts = [text for words in given for text in words.split(",")]
    if not all(text.isdecimal() and len(text) <= _DIGITS and int(text) for text in texts):
        raise UsageError(f"{option} {','.join(texts)}: expected whole numbers above 0, of {_DIGITS} digits at most")
    return tuple(map(int, texts))


def _facts(row: Prediction, price: float | None) -> dict[str, float | None]:
    schedule = row.schedule
    return {
        "machines": row.machines,
        "compilers": row.machines * row.slots,
        "unit_size": row.unit_size,
        "units": row.units,
        "wall_seconds": schedule.finished,
        "critical_seconds": schedule.critical,
        "used": schedule.busy / (row.machines * row.slots * schedule.finished),
        "warm_seconds": row.warm,
        "cache_bytes": row.bytes,
        "machine_hours": row.machine_hours,
        "cost": None if price is None else price * row.machine_hours,
    }


def _table(title: str, rows: Sequence[Prediction], price: float | None) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    columns = ("machines", "compilers", "unit size", "units", "wall", "critical path", "used", "warm cache", "traffic")
    for column in (*columns, "machine hours", *(["cost"] if price is not None else [])):
        table.add_column(column, justify="right", no_wrap=True)
    for row in rows:
        facts = _facts(row, price)
        words = [str(facts[name]) for name in ("machines", "compilers", "unit_size", "units")]
        words += [_time(row.schedule.finished), _time(row.schedule.critical), f"{facts['used']:.0%}", _time(row.warm)]
        words += [f"{row.bytes / 1e9:.2f} GB", f"{row.machine_hours:.1f}"]
        table.add_row(*words, *([f"{facts['cost']:.2f}"] if price is not None else []))
    return table


def _time(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"
