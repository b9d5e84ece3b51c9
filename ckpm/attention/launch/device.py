"""Devices that run a library: a GPU through ROCm's runtime, or the emulator.

No other file of ``attention`` imports the emulator. :func:`choose` returns a :class:`Device`. Memory and launches go
through the HIP C ABI on both (``device.hip``). Callers need not branch on the kind: :meth:`Device.has` is True for
features that only the emulator has.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ckpm.attention.launch import gpu_context
from ckpm.attention.launch.c_abi import Library, load, refuse_replacement
from ckpm.attention.launch.hip_api import HipApi
from ckpm.base import rocm_places
from ckpm.base.errors import DeviceError, HipError, LibraryError, UsageError
from ckpm.base.jobs import processors
from ckpm.base.rocm_choice import DEVICES, unknown
from ckpm.base.trust import demand_trusted_library
from ckpm.kernels.abi import CheckedArguments, LaunchArguments
from ckpm.kernels.code.emulated import translated_errors
from ckpm_emulator import device as emulated
from ckpm_emulator.options import Record, Trace

_EMULATOR = "Run on the emulator, without --rocm or with --device emulator"
FEATURES = ("placement", "granularity", "checks", "counters", "trace")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault of a launch. ``kind`` is the emulator's word, or ``hip``; ``fields`` contains all known facts."""

    kind: str
    message: str
    error: int
    fields: Mapping[str, Any] = dataclasses.field(default_factory=dict)


class Device(ABC):
    """A device of one arch. ``kind`` is hip or emulator; :meth:`has` is for features."""

    kind: str
    number = 0  # among the devices of its runtime
    lost = False  # True after a GPU's fault: only a new process gets another context
    arch: str
    hip: HipApi

    @property
    def compute_units(self) -> int:
        return self.hip.properties(self.number).compute_units

    @abstractmethod
    def has(self, feature: str) -> bool:
        """True if the device offers one of FEATURES."""

    def load(self, path: Path, arguments: type[CheckedArguments] = LaunchArguments, sha256: str = "") -> Library:
        """Open a library by the C ABI of ``arguments``. Its bytes must have the ``sha256``, unless that is ''."""
        with refuse_replacement(path, sha256) if sha256 else contextlib.nullcontext():
            self.prepare(path)
            return load(path, arguments)

    def prepare(self, path: Path) -> None:
        """Prepare the device for a library that is opened next."""
        if not path.is_file():
            raise LibraryError(f"{path}: no such library. Build it first.")

    @abstractmethod
    def configure(self, **options: Any) -> None:
        """Set options of the emulator between launches. A GPU has no options."""

    @abstractmethod
    def place_memory(self, placement: str, at: int = 0) -> contextlib.AbstractContextManager[None]:
        """Give allocations in the ``with`` block a base address of a kind.

        Kinds are default, low, high, crossing (a 4 GB line from ``at`` on), and fixed (the address ``at``). A GPU has
        only default.
        """

    @abstractmethod
    def fault(self) -> Fault | None:
        """The pending fault, or None. A GPU waits for all launches."""

    @abstractmethod
    def recover(self) -> None:
        """Forget a fault. A GPU can't: it is :attr:`lost` then."""

    def restart_addresses(self) -> None:  # noqa: B027 - a GPU's runtime chooses them itself
        """Give later allocations the same addresses and numbers, whatever the process did before."""

    def context(self) -> Mapping[str, str]:
        """Facts on which measured times depend. Unknown facts are '' or left out."""
        return {}

    def sensors(self) -> Mapping[str, str]:
        """Current temperature, clock and power, as far as they are known."""
        return {}

    def counters(self) -> Mapping[str, Any]:
        """Counts of the launches since :meth:`reset_counters`; empty if the device counts nothing."""
        return {}

    def reset_counters(self) -> None:  # noqa: B027 - a device that counts nothing has nothing to do
        """Start counting from 0."""

    def executed_ranges(self) -> Mapping[str, Sequence[tuple[int, int]]]:
        """The machine code that each kernel executed since :meth:`reset_executed`, as ranges of virtual addresses.

        Each range is without its end. The result is empty if the device does not observe execution.
        """
        return {}

    def reset_executed(self) -> None:  # noqa: B027 - as reset_counters
        """Forget what was executed."""


class EmulatedDevice(Device):
    """The emulator in this process. Options: emulator/ckpm_emulator/options.py."""

    kind = "emulator"

    def __init__(self, arch: str, **options: Any) -> None:
        with translated_errors(f"the emulated {arch} can't be started"):
            self._device = emulated.EmulatedGpu(arch, **options)
        self.arch = arch
        self._options = self._device.options
        # the emulator loaded itself globally: HIP's names lead to it
        self.hip = HipApi(ctypes.CDLL(None), self._device.last_error)

    def has(self, feature: str) -> bool:
        return feature in FEATURES

    def prepare(self, path: Path) -> None:
        super().prepare(path)
        demand_trusted_library(path)
        with translated_errors():
            self._device.load_library(path)

    def configure(self, **options: Any) -> None:
        """Options that are not given take the values that the device was made with."""
        if isinstance(trace := options.get("trace"), Mapping):
            options["trace"] = Trace(**trace)
        if isinstance(record := options.get("record"), Mapping):
            options["record"] = Record(**record)
        fresh = {field.name: getattr(self._options, field.name) for field in dataclasses.fields(self._options)}
        with translated_errors():
            self._device.configure(**{**fresh, **options})

    @contextlib.contextmanager
    def place_memory(self, placement: str, at: int = 0) -> Iterator[None]:
        with translated_errors(), self._device.place_allocations(placement, at):
            yield

    def fault(self) -> Fault | None:
        latest = self._device.last_fault()
        if latest is None:
            return None
        return Fault(kind=latest.kind, message=latest.message, error=latest.error, fields=dataclasses.asdict(latest))

    def recover(self) -> None:
        self._device.clear_fault()
        self.hip.last_error()

    def restart_addresses(self) -> None:
        self._device.restart_addresses()

    def context(self) -> Mapping[str, str]:
        """The fields of a GPU, with the word emulator. Times of the host's clock are the emulator's speed."""
        fixed = ("rocm", "driver", "clock_policy", "compute_partition", "memory_partition")
        return {**_hardware(self), "gpu": f"emulated {self.arch}", **dict.fromkeys(fixed, "emulator")}

    def counters(self) -> Mapping[str, Any]:
        return self._device.counters()

    def reset_counters(self) -> None:
        self._device.reset_counters()

    def executed_ranges(self) -> Mapping[str, Sequence[tuple[int, int]]]:
        return self._device.executed_ranges()

    def reset_executed(self) -> None:
        self._device.reset_executed()

    def recorded_workgroup(self) -> Mapping[str, Any] | None:
        """The workgroup that the emulator's option ``record`` recorded, or None."""
        return self._device.recorded_workgroup()

    def forget_recording(self) -> None:
        self._device.forget_recording()

    def run_code(self, code: bytes, kernel: str, threads: int) -> None:
        """Run one workgroup of a code object's kernel, whose argument is the address of 64 KB. Raises DeviceError."""
        with translated_errors(f"{kernel} can't be run"):
            memory = self._device.malloc(1 << 16)
        try:
            self.launch_code(code, kernel, (1, 1, 1), threads, [ctypes.c_uint64(memory.address)])
        finally:
            self._device.free(memory)

    def launch_code(
        self,
        code: bytes,
        kernel: str,
        grid: tuple[int, int, int],
        threads: int,
        arguments: Sequence[Any] | bytes,
        lds_bytes: int = 0,
    ) -> None:
        """Run a code object's kernel that no library launches. ``arguments`` are ctypes values, or all as one block.

        Raises DeviceError.
        """
        with translated_errors(f"{kernel} can't be run"):
            module = self._device.load_module(code)
            try:
                module.launch(kernel, grid, (threads,), arguments, lds_bytes)
                self._device.synchronize()
            finally:
                module.unload()

    def replay(self, numbers: Mapping[str, int]) -> Mapping[str, Any]:
        """Cycles of the recording on a compute unit of these ``numbers`` (EmulatedGpu.replay). Raises DeviceError."""
        with translated_errors("the recorded workgroup can't be replayed"):
            return self._device.replay(numbers)


class GpuDevice(Device):
    """The process's current GPU if it is of the arch, else the first of the arch, which becomes the current one."""

    kind = "hip"

    def __init__(self, arch: str) -> None:
        runtime = rocm_places.runtime()
        if runtime is None:
            reason = "ROCm's libamdhip64.so is nowhere where the loader looks"
            raise DeviceError(f"{reason}. {_EMULATOR}, or install ROCm's runtime or set ROCM_PATH.")
        if rocm_places.KFD.exists() and not os.access(rocm_places.KFD, os.R_OK | os.W_OK):
            reason = f"this user may not use {rocm_places.KFD}"
            raise DeviceError(f"{reason}. {_EMULATOR}, or add the user to the groups render and video.")
        try:
            self.hip = HipApi(ctypes.CDLL(runtime, mode=os.RTLD_NOW | os.RTLD_GLOBAL))
        except OSError as error:
            raise DeviceError(f"{runtime}: ROCm's runtime can't be loaded: {error}.") from error
        present = [self.hip.properties(number).arch for number in range(self.hip.device_count())]
        if arch not in present:
            there = f"there are {', '.join(present)}" if present else "there is none"
            raise DeviceError(f"no GPU of arch {arch}: {there}. {_EMULATOR}, or build for the GPU that is there.")
        current = self.hip.current_device()  # PyTorch's, which allocates there
        self.number = current if present[current] == arch else present.index(arch)
        if self.number != current:
            self.hip.set_device(self.number)
        self.arch = arch

    def has(self, feature: str) -> bool:
        return False

    def configure(self, **options: Any) -> None:
        if options:
            raise UsageError(f"a GPU has no option {', '.join(sorted(options))}: take --device emulator")

    @contextlib.contextmanager
    def place_memory(self, placement: str, at: int = 0) -> Iterator[None]:
        if placement != "default":
            raise UsageError("a GPU's runtime chooses base addresses itself: take --device emulator")
        yield

    def context(self) -> Mapping[str, str]:
        rocm, bus = self.hip.runtime_version(), self.hip.bus_id(self.number)
        gpu = self.hip.properties(self.number).name
        return {**_hardware(self), "gpu": gpu, "rocm": rocm, **gpu_context.settings(bus)}

    def sensors(self) -> Mapping[str, str]:
        bus = self.hip.bus_id(self.number)
        return {**gpu_context.sensors(bus), **gpu_context.smi_sensors(bus)}

    def fault(self) -> Fault | None:
        try:
            self.hip.synchronize()
        except HipError as error:
            return Fault(kind="hip", message=str(error), error=error.error)
        return None

    def recover(self) -> None:
        self.lost = self.fault() is not None


def _hardware(device: Device) -> dict[str, str]:
    return {"arch": device.arch, "compute_units": str(device.compute_units)}


def choose(choice: str, arch: str, **options: Any) -> Device:
    """Return the device for libraries of ``arch``. ``options`` are the emulator's; a GPU ignores them.

    Raises:
        UsageError: a choice that doesn't exist.
        DeviceError: the device is not there, or can't be started.
    """
    if choice not in DEVICES:
        raise unknown("device", choice)
    return GpuDevice(arch) if choice == "hip" else EmulatedDevice(arch, **options)


def default_workers(kind: str) -> int:
    """Worker processes that serve a device well: one for a GPU, one a processor for the emulator."""
    return 1 if kind == "hip" else processors()
