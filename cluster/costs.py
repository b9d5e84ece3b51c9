"""What a unit costs: processor seconds and bytes of kernels that were measured, from costs.yaml."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ckpm.base.tablefile import Field, load
from ckpm.cluster.schedule import Work
from ckpm.kernels.families.units import Unit
from ckpm.matrix.keys import Key

TABLE = Path(__file__).resolve().parent / "costs.yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelCost:
    """One kernel for one arch, beyond its unit's cost; ``rows`` of its tile (kM0), head dim of Q."""

    rows: int
    hdim: int
    seconds: float
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """See costs.yaml."""

    unit_seconds: float
    arch_seconds: float
    unit_bytes: int
    kernels: tuple[KernelCost, ...]
    library_seconds: float
    library_seconds_per_megabyte: float
    processors: int
    memory: int
    network: int

    def work(self, unit: Unit, archs: int) -> Work:
        """A unit that one compiler makes for ``archs`` archs."""
        costs = [self._of(key) for key in unit.keys]
        return Work(
            seconds=self.unit_seconds + archs * (self.arch_seconds + sum(cost.seconds for cost in costs)),
            bytes=self.unit_bytes + archs * sum(cost.bytes for cost in costs),
        )

    def host_work(self) -> Work:
        """Dispatch or harness: a source without kernels."""
        return Work(seconds=self.unit_seconds, bytes=self.unit_bytes)

    def final_seconds(self, units: Sequence[Work]) -> float:
        """Link and manifest of a library."""
        megabytes = sum(unit.bytes for unit in units) / 1e6
        return self.library_seconds + self.library_seconds_per_megabyte * megabytes

    def _of(self, key: Key) -> KernelCost:
        """Of the tile that is nearest in size, if the kernel's own is not in the table."""
        size = key.tile.bm0 * key.hdim_q
        return min(self.kernels, key=lambda cost: (abs(cost.rows * cost.hdim - size), abs(cost.rows - key.tile.bm0)))


def read_costs(file: Path = TABLE) -> Costs:
    """Raises TableError."""
    table = load(file)
    table.allow(("unit", "kernels", "library", "machine"))
    unit, library, machine = (table.get(name) for name in ("unit", "library", "machine"))
    unit.allow(("seconds", "seconds_per_arch", "bytes", "source"))
    library.allow(("seconds", "seconds_per_megabyte", "source"))
    machine.allow(("processors", "memory", "network", "source"))
    return Costs(
        unit_seconds=_positive(unit.get("seconds")),
        arch_seconds=_positive(unit.get("seconds_per_arch")),
        unit_bytes=unit.get("bytes").integer(),
        kernels=tuple(map(_kernel, table.get("kernels").items())),
        library_seconds=_positive(library.get("seconds")),
        library_seconds_per_megabyte=_positive(library.get("seconds_per_megabyte")),
        processors=machine.get("processors").integer(),
        memory=machine.get("memory").integer(),
        network=machine.get("network").integer(),
    )


def _kernel(row: Field) -> KernelCost:
    row.allow(("rows", "hdim", "seconds", "bytes", "source"))
    row.get("source").text()
    return KernelCost(
        rows=row.get("rows").integer(),
        hdim=row.get("hdim").integer(),
        seconds=_positive(row.get("seconds")),
        bytes=row.get("bytes").integer(),
    )


def _positive(field: Field) -> float:
    value = field.value
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        raise field.fail("must be a number above 0")
    return float(value)
