"""The timing model's compute unit of each arch (machine.yaml), and replays of a device's recording on it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ckpm.base.errors import MeasureError
from ckpm.base.paths import data
from ckpm.base.tablefile import Record, read_table

if TYPE_CHECKING:
    from ckpm.attention.launch.device import EmulatedDevice

TABLE = data("reports", "timing", "machine.yaml")
_BINS, _PASSES, _LEAST_BIN = 240, 2, 4


class NumberRow(Record, frozen=True):
    """A number of the model by arch. Its other fields are described in the head of machine.yaml."""

    about: str
    source: str
    values: dict[str, int]
    doubtful: bool = False
    switch: bool = False


class TimingMachine(Record, frozen=True):
    """machine.yaml. ``launches`` are caches of the GPU, ``cannot_see`` lists effects that the model leaves out."""

    numbers: dict[str, NumberRow]
    launches: dict[str, NumberRow]
    cannot_see: tuple[str, ...]


class ModelNumber(NamedTuple):
    """A number of one arch. ``doubtful``: no document of this arch has it. ``switch``: it is 0 or 1."""

    value: int
    doubtful: bool
    switch: bool


def numbers(arch: str, file: Path = TABLE) -> dict[str, ModelNumber]:
    """An arch's numbers by name. Raise InconclusiveError if the table lacks the arch."""
    return _of_arch(read_table(file, TimingMachine).record.numbers, arch, file)


def launch_numbers(arch: str) -> dict[str, ModelNumber]:
    """Sizes and latencies of an arch's caches."""
    return _of_arch(read_table(TABLE, TimingMachine).record.launches, arch, TABLE)


def _of_arch(rows: Mapping[str, NumberRow], arch: str, file: Path) -> dict[str, ModelNumber]:
    if any(arch not in row.values for row in rows.values()):
        raise MeasureError(f"the timing model has no numbers of {arch}: add them to {file.name}, with sources.")
    return {name: ModelNumber(row.values[arch], row.doubtful, row.switch) for name, row in rows.items()}


def cannot_see() -> tuple[str, ...]:
    """List the effects that the model leaves out."""
    return read_table(TABLE, TimingMachine).record.cannot_see


def values(machine: Mapping[str, ModelNumber], workgroups: int = 1, offset: int = 0) -> dict[str, int]:
    """Arguments of a device's replay of so many copies of the workgroup, without timelines.

    A copy starts ``offset`` cycles after the copy before it.
    """
    shown = {"timeline_from": 0, "timeline_bin": 1, "timeline_bins": 0}
    copies = {"workgroups": workgroups, "start_offset": offset}
    return {**{name: number.value for name, number in machine.items()}, **copies, **shown}


OFFSETS = 20  # start offsets, evenly spaced over the first quarter of the time of one copy
_OFFSETS_SHARE = 4


def cycles_together(
    device: EmulatedDevice, machine: Mapping[str, ModelNumber], copies: int, alone: float
) -> tuple[int, ...]:
    """Cycles of so many copies from the start of the last to the end, for each start offset.

    ``alone`` are the cycles of one copy.
    """
    offsets = [round(alone * step / (OFFSETS * _OFFSETS_SHARE)) for step in range(OFFSETS)]
    return tuple(
        int(device.replay(values(machine, copies, offset))["cycles"]) - (copies - 1) * offset for offset in offsets
    )


def replay(
    device: EmulatedDevice, machine: Mapping[str, ModelNumber], resident: int
) -> tuple[Mapping[str, Any], int, int]:
    """Replay on the device. Return the result, the cycle at which the timelines begin, and the cycles of a letter."""
    arguments = values(machine, resident)
    first = device.replay(arguments)
    begin, width = _window(first)
    shown = {"timeline_from": begin, "timeline_bin": width, "timeline_bins": _BINS}
    return device.replay({**arguments, **shown}), begin, width


def neighbours(number: ModelNumber) -> tuple[int, int]:
    """A fifth less and a fifth more than the value, by at least 1; of a switch, off and on."""
    if number.switch:
        return 0, 1
    step = max(1, round(number.value / 5))
    return max(number.value - step, 1), number.value + step


def sensitivity(
    device: EmulatedDevice, machine: Mapping[str, ModelNumber], resident: int
) -> dict[str, tuple[int, int]]:
    """The cycles at the neighbours of each doubtful figure."""
    arguments, sensitivities = values(machine, resident), {}
    for name, number in machine.items():
        if number.doubtful:
            low, high = (int(device.replay({**arguments, name: value})["cycles"]) for value in neighbours(number))
            sensitivities[name] = low, high
    return sensitivities


def _window(replayed: Mapping[str, Any]) -> tuple[int, int]:
    """Two passes in the middle of the hot loop; without a loop, everything."""
    loops = [wave["loop"] for wave in replayed["waves"] if wave["loop"]["passes"] > _PASSES]
    if not loops:
        return 0, max(-(-replayed["cycles"] // _BINS), _LEAST_BIN)
    longest = max(loops, key=lambda loop: int(loop["passes"]))
    pass_cycles = (longest["end"] - longest["begin"]) // (longest["passes"] - 1)
    begin = longest["begin"] + (longest["passes"] - _PASSES) // 2 * pass_cycles
    return begin, max(-(-_PASSES * pass_cycles // _BINS), _LEAST_BIN)
