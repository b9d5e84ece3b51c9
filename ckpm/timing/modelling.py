"""Model workgroups of a library: launch a problem on the emulator, record the launch, and replay it.

This module imports NumPy and the emulator. Commands that need neither don't import it.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ckpm.attention.launch.buffers import prepare
from ckpm.attention.launch.c_abi import Library
from ckpm.attention.launch.device import EmulatedDevice, choose
from ckpm.attention.launch.launching import LaunchOutcome, run_problem
from ckpm.base.errors import CkPrefillError, MeasureError, UsageError
from ckpm.base.results import LIBRARY_SHA256
from ckpm.kernels.families.libraries import host
from ckpm.kernels.library.manifest import Manifest, identity_facts, keys_of, manifest_of
from ckpm.matrix.dialects import DEFAULT_FAMILY, compute_units
from ckpm.matrix.keys import Key
from ckpm.matrix.problems.case import SuiteCase
from ckpm.timing.machine import ModelNumber, cycles_together, numbers, replay, sensitivity, values
from ckpm.timing.measure import GPU_PAGE, provenance
from ckpm.timing.record import SIMDS, Copies, Timed, wave_of


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """The part of a launch to replay: workgroup ``workgroup``, which alone is run, or the longest of all.

    ``resident`` copies of it are on a compute unit: None is as many as occupancy and the grid allow, or, on a
    ``full_gpu``, as occupancy alone does. A recorded launch stands for one of ``heads`` times as many workgroups. With
    ``offsets`` the copies are replayed with start offsets, too. ``kernel`` is a part of the symbol of the kernel to
    replay, of a launch of several.
    """

    workgroup: int | None = None
    resident: int | None = None
    full_gpu: bool = False
    sensitivity: bool = False
    heads: int = 1
    offsets: bool = False
    kernel: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Modelled:
    """A library on the emulated device, its kernels in dispatch order, and the figures of the arch's machine."""

    device: EmulatedDevice
    library: Library
    manifest: Manifest
    keys: Sequence[Key]
    numbers: Mapping[str, ModelNumber]
    file_facts: Mapping[str, str]

    def provenance(self, tier: str) -> dict[str, str]:
        return provenance(self.manifest, self.device.arch, tier, self.file_facts)

    def model(self, problem: SuiteCase, named: str | None, part: ModelRequest) -> Timed | str:
        """Model a workgroup on the kernel ``named``, or on dispatch's. Return the reason if it can't be launched."""
        outcome = self._launch(problem, named, part)
        if not outcome.ran:
            why = outcome.fault.message if outcome.fault else outcome.launch.message
            return f"the launch failed: {why.partition(chr(10))[0]}"
        return self.replay(problem, outcome.launch.kernel or "", part)

    def replay(self, problem: SuiteCase, kernel: str, part: ModelRequest) -> Timed:
        """Replay the recording of a launch that ran ``kernel``."""
        device = self.device
        recording = device.recorded_workgroup()
        if recording is None:
            raise MeasureError(f"{problem.name}: the launch has no workgroup {part.workgroup}. Choose a smaller one.")
        if kernel not in self.manifest.kernels:
            raise MeasureError(
                f"{problem.name}: ran on '{kernel}', which the manifest does not list. {self.manifest.remedy}"
            )
        launched = recording["launched"] * part.heads
        occupancy = self.manifest.kernels[kernel].archs[device.arch].occupancy_waves
        possible = max(occupancy * SIMDS // len(recording["instructions"]), 1)
        needed = possible if part.full_gpu else -(-launched // device.compute_units)
        resident = part.resident or min(possible, needed)
        unit = compute_units()[device.arch]
        if resident > (most := unit.waves * unit.simds // len(recording["instructions"])):
            raise UsageError(
                f"--resident {resident}: a compute unit of {device.arch} has room for the waves of {most} workgroups "
                f"of {problem.name}, whatever their registers. Give at most {most}."
            )
        replayed, begin, width = replay(device, self.numbers, resident)
        return Timed(
            problem=problem.name,
            kernel=kernel,
            dtype=problem.dtype,
            workgroup=recording["workgroup"],
            launched=launched,
            tile_rows=next(key.tile.bm0 for key in self.keys if key.name == kernel),
            resident=resident,
            cycles=replayed["cycles"],
            waves=tuple(wave_of(wave) for wave in replayed["waves"]),
            timeline_from=begin,
            timeline_bin=width,
            sensitivity=sensitivity(device, self.numbers, resident) if part.sensitivity else {},
            copies=self._copies(resident) if part.offsets else (),
        )

    def _copies(self, resident: int) -> tuple[Copies, ...]:
        alone = int(self.device.replay(values(self.numbers))["cycles"])
        copies = [Copies(cycles=alone, least=alone, most=alone)]
        for count in range(2, resident + 1):
            cycles = cycles_together(self.device, self.numbers, count, alone)
            copies.append(Copies(cycles=round(statistics.median(cycles)), least=min(cycles), most=max(cycles)))
        return tuple(copies)

    def _launch(self, problem: SuiteCase, named: str | None, part: ModelRequest) -> LaunchOutcome:
        """Launch a problem, and record the workgroup of ``part``."""
        device = self.device
        device.forget_recording()
        device.configure(
            record={"kernel": part.kernel, "workgroup": part.workgroup, "only": part.workgroup is not None}
        )
        try:
            return run_problem(device, self.library, prepare(problem, device.arch), named)
        except CkPrefillError as error:
            raise MeasureError(f"{problem.name}: {error}") from error


def open_library(library: Path, arch: str, *, foreign: bool = False) -> Modelled:
    """Load a built library on an emulated device of its own. A ``foreign`` library needn't fit its manifest."""
    machine, manifest = numbers(arch), manifest_of(library, arch)
    file_facts = identity_facts(library, manifest, foreign=foreign)
    device = choose("emulator", arch, granularity=GPU_PAGE)
    assert isinstance(device, EmulatedDevice)
    loaded = device.load(library, host(DEFAULT_FAMILY).arguments, file_facts[LIBRARY_SHA256])
    keys = keys_of(manifest, loaded.kernels, library)
    return Modelled(
        device=device, library=loaded, manifest=manifest, keys=keys, numbers=machine, file_facts=file_facts
    )  # fmt: skip
