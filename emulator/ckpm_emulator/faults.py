"""The device's report of a faulted launch, as Python objects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ckpm_emulator.errors import DeviceError


@dataclass(frozen=True, kw_only=True)
class Nearest:
    """The allocation nearest to a faulting address."""

    id: int
    base: int
    bytes: int
    kind: str
    label: str
    freed: bool  # it has been freed
    distance: int  # of the address: negative before the first byte, 0 inside, else from the last byte
    overrun: int  # of an access that begins inside: bytes after the end


@dataclass(frozen=True, kw_only=True)
class FaultReport:
    """One fault: its kind, the instruction and the wave."""

    kind: str  # FaultKind in core/run/fault.h: memory, srd_range, unknown, race, ..
    access: str  # none, load, store, atomic
    kernel: str
    text: str  # the instruction
    source: str  # its file and line; empty without a line table
    pc: int  # virtual address in the code object, as disassemblers print it
    instruction: int
    workgroup: tuple[int, int, int]
    wave: int
    lane: int | None  # None: of the whole wave
    address: int
    bytes: int
    detail: str
    message: str
    error: int  # what HIP calls answer: 700, 702 or 719
    nearest: Nearest | None

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> FaultReport:
        """Read the JSON of emu_last_fault_json."""
        near = data["nearest"]
        rest = {**data, "workgroup": tuple(data["workgroup"]), "nearest": Nearest(**near) if near else None}
        return cls(**rest)


class DeviceFaultError(DeviceError):
    """A launch that faulted; `fault` has all fields. The device refuses work until its fault is cleared."""

    def __init__(self, fault: FaultReport) -> None:
        super().__init__(fault.message, fault.error, kind="fault")
        self.fault = fault
