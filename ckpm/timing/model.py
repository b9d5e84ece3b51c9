"""A model of time from counts: cycles of a workgroup and of the grid, their bound, and the point on the roofline.

It compares builds; it doesn't predict a GPU. The timing model (ckpm/timing) replays one workgroup instruction by
instruction; it has no grid, no HBM and no roofline. The rules, with the numbers of model.yaml:

- A workgroup's waves are spread over the four SIMDs of its compute unit. Of an average workgroup, ``matrix`` is the
MFMA cycles of a SIMD. ``vector`` is the cycles of its vector instructions (transcendental ones are slower). ``lds`` is
the cycles of the unit's LDS (bytes over width, and bank conflicts), ``l1`` the cycles of its vector L1.
- ``serial`` is a wave alone: the sum of its instructions' cycles on their units.
- With R workgroups on a compute unit, a round takes max(serial, R x each unit): waves overlap, a wave doesn't.
  R is what registers and LDS allow (the kernel's occupancy), or fewer if the grid is small.
- The grid takes ceil(workgroups / (compute units x R)) rounds, and at least the time of its compulsory bytes (Q, K, V
  and O once) at HBM's peak.
- ``steady`` is the cost of one more workgroup in cycles of its compute unit on a full GPU, with as many resident as the
  kernel's occupancy allows. The gate's small grids don't show it.

model.yaml lists what the model leaves out (``cannot_see``); the report shows that list beside the figures.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ckpm.attention.launch.counters import Measured
from ckpm.base.errors import GateError
from ckpm.base.paths import data
from ckpm.base.tablefile import Later, Positive, Record, add_names, read_table
from ckpm.matrix.dialects import compute_units

TABLE = data("reports", "gates", "model.yaml")
_ONE_AFTER_THE_OTHER = ("salu", "smem", "vmem", "lds", "branch", "wait", "barrier", "other")


class Machine(Record, frozen=True):
    """One arch: fields and units as in model.yaml."""

    product: str
    clock_mhz: Positive
    compute_units: Positive
    hbm_gb_s: Positive
    vector_cycles: Positive
    transcendental_cycles: Positive
    issue_cycles: Positive
    lds_read: Positive
    lds_write: Positive
    l1: Positive
    matrix_flops: Positive
    arch: Later = ""

    @property
    def hbm_bytes_a_cycle(self) -> float:
        return self.hbm_gb_s * 1e3 / self.clock_mhz

    def peak_tflops(self, dtype: str) -> float:
        """Peak of the matrix cores, dense, for operands of a dtype."""
        return self.matrix_flops * (2 if dtype.startswith("fp8") else 1) * self.compute_units * self.clock_mhz / 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Cycles of an average workgroup by unit, and of the grid.

    ``bound`` names the unit that decides the grid's time; it may be ``serial`` or ``hbm``. ``tflops`` (of this grid),
    ``steady_tflops`` (of a full GPU) and ``roof_tflops`` are of the MFMA work. ``intensity`` is the MFMA work in flop
    for each compulsory byte.
    """

    units: Mapping[str, float]  # matrix, vector, lds, l1, serial: cycles of one workgroup alone
    bound: str
    resident: int
    workgroup_cycles: float
    steady_cycles: float
    grid_cycles: float
    microseconds: float
    tflops: float
    steady_tflops: float
    intensity: float
    roof_tflops: float

    @property
    def of_roof(self) -> float:
        """Share of the roofline that the model reaches on a full GPU."""
        return self.steady_tflops / self.roof_tflops


class MachineTable(Record, frozen=True):
    """The record of model.yaml."""

    archs: dict[str, Machine]
    cannot_see: tuple[str, ...]


def machines(file: Path = TABLE) -> dict[str, Machine]:
    """Read the machines by arch."""
    return add_names(read_table(file, MachineTable).record.archs, "arch")


def machine_of(arch: str, machines_by_arch: Mapping[str, Machine] | None = None) -> Machine:
    """The machine of an arch."""
    if machine := (machines_by_arch or machines()).get(arch):
        return machine
    raise GateError(no_numbers(arch))


def no_numbers(arch: str) -> str:
    """The reason why an arch can't be modelled."""
    return f"the model has no numbers of {arch}: add them to reports/gates/model.yaml"


def cannot_see(file: Path = TABLE) -> tuple[str, ...]:
    """List what the model leaves out."""
    return read_table(file, MachineTable).record.cannot_see


def estimate(measured: Measured, machine: Machine) -> Estimate:
    """Model one counted launch."""
    count = measured.counters
    groups = count["workgroups"] - count["early_out_workgroups"]
    for what, value in (
        ("workgroups that work", groups),
        ("waves", count["waves"]),
        ("mfma_flops", count["mfma_flops"]),
        ("mfma_cycles", count["mfma_cycles"]),
        ("compulsory_bytes", measured.compulsory_bytes),
        ("occupancy_waves", measured.occupancy_waves),
    ):
        if value <= 0:
            raise GateError(f"{measured.problem}: {what}: {value}. Nothing can be modelled; measure again.")
    waves = -(-count["waves"] // count["workgroups"])
    units = _units(count, machine, groups, waves)
    possible = max(measured.occupancy_waves * compute_units()[machine.arch].simds // waves, 1)
    resident = min(possible, -(-groups // machine.compute_units))
    rounds = -(-groups // (machine.compute_units * resident))
    times = {name: rounds * cycles for name, cycles in _round_cycles(units, resident).items()}
    times["hbm"] = measured.compulsory_bytes / machine.hbm_bytes_a_cycle
    bound = max(times, key=lambda name: times[name])
    seconds = times[bound] / (machine.clock_mhz * 1e6)
    intensity = count["mfma_flops"] / measured.compulsory_bytes
    roof = min(machine.peak_tflops(measured.dtype), intensity * machine.hbm_gb_s / 1e3)
    steady = max(_round_cycles(units, possible).values()) / possible
    full = count["mfma_flops"] / groups / steady * machine.compute_units * machine.clock_mhz / 1e6
    return Estimate(
        units=units,
        bound=bound,
        resident=resident,
        workgroup_cycles=max(units.values()),
        steady_cycles=steady,
        grid_cycles=times[bound],
        microseconds=seconds * 1e6,
        tflops=count["mfma_flops"] / seconds / 1e12,
        steady_tflops=min(full, roof),
        intensity=intensity,
        roof_tflops=roof,
    )


def _round_cycles(units: Mapping[str, float], resident: int) -> dict[str, float]:
    """Cycles of a round: resident workgroups share the units, each wave still runs its own instructions in order."""
    return {name: cycles if name == "serial" else resident * cycles for name, cycles in units.items()}


def _units(count: Mapping[str, int], machine: Machine, groups: int, waves: int) -> dict[str, float]:
    """Cycles of one average workgroup by unit."""
    simds = min(compute_units()[machine.arch].simds, waves)
    vector = (
        count["instructions_valu"] * machine.vector_cycles + count["instructions_trans"] * machine.transcendental_cycles
    )
    others = sum(count[f"instructions_{kind}"] for kind in _ONE_AFTER_THE_OTHER) * machine.issue_cycles
    stored = count["lds_store_bytes"] + count["lds_dma_bytes"]
    lds = count["lds_load_bytes"] / machine.lds_read + stored / machine.lds_write + count["lds_bank_conflicts"]
    moved = count["global_load_bytes"] + count["global_store_bytes"] + count["scratch_bytes"]
    return {
        "matrix": count["mfma_cycles"] / (groups * simds),
        "vector": vector / (groups * simds),
        "lds": lds / groups,
        "l1": moved / machine.l1 / groups,
        "serial": (count["mfma_cycles"] + vector + others) / (groups * waves),
    }
