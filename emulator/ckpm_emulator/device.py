"""The emulated device from Python: memory, libraries, modules, options, counters and faults.

>>> device = EmulatedGpu("gfx950", granularity=4096)
>>> pool = device.malloc(6 << 30, label="K pool")      # costs nothing until written
>>> library = device.load_library("build/libckpm.so")  # its HIP calls come to the emulator
>>> device.synchronize()                               # raises DeviceFaultError if a launch faulted

A process has one arch: the runtime and the libraries bound to it are process-wide. A second ``EmulatedGpu`` of the same
arch is the same device with other options. A device of another arch is refused.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ckpm_emulator import program_cache, toolchain
from ckpm_emulator.errors import DeviceError, HipError, LibraryError
from ckpm_emulator.faults import DeviceFaultError, FaultReport
from ckpm_emulator.options import Options
from ckpm_emulator.runtime import ProgramBuilder, Runtime, require_whole

__all__ = ["Allocation", "Buffer", "DeviceFaultError", "EmulatedGpu", "FaultReport", "Module", "Options", "Placement"]

_Array = npt.NDArray[Any]
_TO_DEVICE, _TO_HOST = 1, 2  # hipMemcpyKind
_BLOCK, _BYTES, _END = 1, 2, 3  # HIP_LAUNCH_PARAM_BUFFER_POINTER, _BUFFER_SIZE, _END


class Placement(IntEnum):
    """Placement of allocations: enum Placement in core/memory/memory.h."""

    DEFAULT = 0
    LOW = 1  # below 4 GiB
    HIGH = 2  # near the top of the address space, bit 31 of the address set
    CROSSING = 3  # their middle on a multiple of 4 GiB, the first free one from ``at`` on
    FIXED = 4  # at ``at``: one allocation


@dataclass(frozen=True, kw_only=True)
class Allocation:
    """A live allocation."""

    id: int
    base: int
    bytes: int
    kind: str  # device, host, managed, registered, code
    label: str


@dataclass(frozen=True)
class Buffer:
    """Device memory that ``EmulatedGpu.malloc`` gave."""

    address: int
    bytes: int
    label: str = ""


class EmulatedGpu:
    """The emulated GPU.

    Raises:
        DeviceError: an arch or option that doesn't exist.
        DeviceError: this process has a device of another arch, or another HIP runtime.
        SetupError, CompileError: the core can't be built.
    """

    _runtime: Runtime | None = None
    _arch = ""
    _hazards = False
    _lock = threading.Lock()

    def __init__(
        self,
        arch: str = "gfx950",
        cu_count: int = 256,
        threads: int = 0,
        *,
        program_builder: ProgramBuilder | None = None,
        **options: Any,
    ) -> None:
        """``program_builder`` stands in for the decoder, for tests."""
        chosen = Options(arch=arch).replace(cu_count=cu_count, threads=threads, **options)
        with EmulatedGpu._lock:
            if EmulatedGpu._runtime is None:
                programs = program_builder or _program_builder(chosen)
                EmulatedGpu._runtime = Runtime(toolchain.library(), programs)
                EmulatedGpu._arch, EmulatedGpu._hazards = arch, chosen.hazards
            elif EmulatedGpu._arch != arch:
                raise DeviceError(
                    f"this process has an emulated {EmulatedGpu._arch}: "
                    f"a device of arch {arch} needs a process of its own",
                    kind="one-device",
                )
            _demand_same_programs(chosen)
        self._hip_runtime = EmulatedGpu._runtime
        self.options = chosen
        self._apply()

    # ---- options

    def configure(self, **changes: Any) -> None:
        """Change options between launches; the arch can't be changed."""
        if changes.get("arch", self.options.arch) != self.options.arch:
            raise DeviceError("the arch of a device can't be changed: start a process for it", kind="one-device")
        chosen = self.options.replace(**changes)
        _demand_same_programs(chosen)
        self.options = chosen
        self._apply()

    def _apply(self) -> None:
        for name, value in self.options.integers().items():
            self._hip_runtime.require(self._hip_runtime.c.emu_set_option(name.encode(), value), "options")
        for name, text in self.options.texts().items():
            self._hip_runtime.require(self._hip_runtime.c.emu_set_text_option(name.encode(), text.encode()), "options")

    # ---- memory

    def malloc(self, size: int, label: str = "") -> Buffer:
        """Allocate; raises DeviceError if memory is full. Fresh memory is zero (or poison) and costs nothing."""
        self._check_fault()
        address = self._hip_runtime.c.emu_allocate(size, 0, label.encode())
        if not address:
            raise DeviceError(f"allocation {label!r}: {self._hip_runtime.last_error()}", 2)
        return Buffer(address, size, label)

    def free(self, buffer: Buffer) -> None:
        """Give a buffer back; works after a fault too. Kernels that still use it will fault."""
        status = self._hip_runtime.c.emu_release(buffer.address)
        if status:
            raise DeviceError(f"{buffer.address:#x} is not the start of an allocation", 17)

    def restart_addresses(self) -> None:
        """Begin again with ids and addresses of allocations: the next ones are the same in every process."""
        self._hip_runtime.c.emu_restart_addresses()

    @contextlib.contextmanager
    def place_allocations(self, placement: Placement | str, at: int = 0) -> Iterator[None]:
        """Place the allocations inside of the ``with`` elsewhere: ``place_allocations("crossing", at=1 << 33)``."""
        kind = Placement[placement.upper()] if isinstance(placement, str) else placement
        if self._hip_runtime.c.emu_set_placement(int(kind), at):
            raise HipError(f"placement: {self.last_error()}", 1)
        try:
            yield
        finally:
            self._hip_runtime.c.emu_set_placement(int(Placement.DEFAULT), 0)

    def upload(self, array: _Array, label: str = "") -> Buffer:
        """A new buffer with an array's elements in C order."""
        buffer = self.malloc(array.nbytes, label)
        self.write(buffer, array)
        return buffer

    def write(self, buffer: Buffer, array: _Array, offset: int = 0) -> None:
        """Copy an array's elements to a buffer, ``offset`` bytes from its start."""
        whole = np.ascontiguousarray(array)
        at, source = buffer.address + offset, whole.ctypes.data
        self._hip(self._hip_runtime.c.hipMemcpy(at, source, whole.nbytes, _TO_DEVICE), "hipMemcpy")

    def read(
        self, buffer: Buffer, dtype: npt.DTypeLike, shape: int | Sequence[int] | None = None, offset: int = 0
    ) -> _Array:
        """A copy of a buffer's elements; without a shape, as many as there are."""
        kind = np.dtype(dtype)
        result = np.empty(shape if shape is not None else (buffer.bytes - offset) // kind.itemsize, kind)
        self._hip(
            self._hip_runtime.c.hipMemcpy(result.ctypes.data, buffer.address + offset, result.nbytes, _TO_HOST),
            "hipMemcpy",
        )
        return result

    def fill(self, buffer: Buffer, value: int) -> None:
        """Set every byte. Zeros give a large buffer's memory back to the system."""
        self._hip(self._hip_runtime.c.hipMemset(buffer.address, value, buffer.bytes), "hipMemset")

    def view(self, buffer: Buffer, dtype: npt.DTypeLike) -> _Array:
        """The buffer's memory itself as an array: reading or writing touches only the pages used. Not after free."""
        kind = np.dtype(dtype)
        pages = (ctypes.c_uint8 * buffer.bytes).from_address(buffer.address)
        whole: _Array = np.ctypeslib.as_array(pages)
        return whole[: buffer.bytes // kind.itemsize * kind.itemsize].view(kind)

    def allocations(self) -> tuple[Allocation, ...]:
        """The live allocations, ascending."""
        return tuple(Allocation(**row) for row in json.loads(self._hip_runtime.text("emu_allocations_json")))

    def reset(self) -> None:
        """Free everything and forget a fault. Loaded libraries stay."""
        self._hip(self._hip_runtime.c.hipDeviceReset(), "hipDeviceReset")

    # ---- code

    def load_library(self, path: str | Path) -> ctypes.CDLL:
        """Load a kernel library. Raises LibraryError: missing, an unknown symbol, no code for this device."""
        file = str(Path(path).absolute())
        handles = {row["handle"] for row in self.modules()}
        require_whole(Path(file))
        try:
            library = ctypes.CDLL(file, mode=ctypes.RTLD_LOCAL)
        except OSError as error:
            noexec = os.statvfs(file).f_flag & os.ST_NOEXEC
            why = ". Its file system is mounted with noexec: move it to another folder" if noexec else ""
            if "' not found" in str(error):  # version `GLIBCXX_3.4.32' not found
                why = ". It was built on a newer system: build it again here, or run this where it was built"
            raise LibraryError(f"the library doesn't load: {error}{why}", kind="load") from error
        bad = [row for row in self.modules() if row["error"] and row["handle"] not in handles]
        if bad:
            raise LibraryError(f"{file}: {bad[0]['reason']}", kind="load")
        return library

    def load_module(self, image: bytes) -> Module:
        """Load a code object (an ELF, or a bundle of several archs)."""
        data, handle = ctypes.create_string_buffer(image, len(image)), ctypes.c_void_p()
        self._hip(self._hip_runtime.c.hipModuleLoadData(ctypes.byref(handle), data), "hipModuleLoadData")
        return Module(self, handle)

    def modules(self) -> list[dict[str, Any]]:
        """Registered libraries and loaded modules: handle, origin, archs, kernels, error, reason, loaded."""
        return list(json.loads(self._hip_runtime.text("emu_modules_json")))

    # ---- state

    def synchronize(self) -> None:
        """Raise DeviceFaultError if a launch faulted."""
        self._hip(self._hip_runtime.c.hipDeviceSynchronize(), "hipDeviceSynchronize")

    def last_fault(self) -> FaultReport | None:
        """The device's fault; None if it works."""
        text = self._hip_runtime.text("emu_last_fault_json")
        return FaultReport.from_json(json.loads(text)) if text else None

    def clear_fault(self) -> None:
        """Make the device work again. Memory stays as the faulted launch left it."""
        self._hip_runtime.c.emu_clear_fault()

    def last_error(self) -> str:
        """The message of this thread's last failed HIP call: more than its error number."""
        return self._hip_runtime.last_error()

    def counters(self) -> dict[str, Any]:
        """Counts of all launches since the last reset."""
        return dict(json.loads(self._hip_runtime.text("emu_counters_json")))

    def reset_counters(self) -> None:
        """Start counting from 0."""
        self._hip_runtime.c.emu_reset_counters()

    def executed_ranges(self) -> dict[str, list[tuple[int, int]]]:
        """The machine code that each kernel executed since the last reset: ranges of virtual addresses, without the
        end.
        """
        ranges = json.loads(self._hip_runtime.text("emu_executed_json"))
        return {kernel: [(first, end) for first, end in some] for kernel, some in ranges.items()}

    def reset_executed(self) -> None:
        """Forget what was executed."""
        self._hip_runtime.c.emu_reset_executed()

    def recorded_workgroup(self) -> dict[str, Any] | None:
        """The workgroup of the option ``record``: its kernel and number, the count of launched workgroups, and the
        instructions of each wave.
        """
        text = self._hip_runtime.text("emu_recording_json")
        return dict(json.loads(text)) if text else None

    def forget_recording(self) -> None:
        """Forget the recorded workgroup."""
        self._hip_runtime.c.emu_forget_recording()

    def replay(self, numbers: Mapping[str, int]) -> dict[str, Any]:
        """Cycles of the recorded workgroup on a compute unit of these ``numbers`` (core/timing/numbers.h): ``cycles``,
        and the results of each of the ``waves`` (core/timing/replay.h).

        Raises:
            DeviceError: nothing was recorded, or numbers are missing or useless.
        """
        names = (ctypes.c_char_p * len(numbers))(*(name.encode() for name in numbers))
        values = (ctypes.c_uint64 * len(numbers))(*numbers.values())
        self._hip_runtime.require(
            self._hip_runtime.c.emu_replay(names, values, ctypes.c_size_t(len(numbers))), "replay"
        )
        return dict(json.loads(self._hip_runtime.text("emu_replay_json")))

    def _check_fault(self) -> None:
        if fault := self.last_fault():
            raise DeviceFaultError(fault)

    def _hip(self, status: int, what: str) -> None:
        if status == 0:
            return
        reason = self._hip_runtime.last_error()
        self._check_fault()
        failure, self._hip_runtime.build_failure = self._hip_runtime.build_failure, None
        name = self._hip_runtime.c.hipGetErrorName(status).decode()
        raise HipError(f"{what}: {name} ({status}): {reason}", status) from failure


def _program_builder(chosen: Options) -> ProgramBuilder:
    if not chosen.hazards:
        return program_cache.program
    from ckpm_emulator.inspection.early import too_early  # only here: other runs don't wait for the decoder's tables

    return functools.partial(program_cache.program, judge=too_early)


def _demand_same_programs(chosen: Options) -> None:
    """Raise DeviceError if code was, or may have been, translated without the checks of ``hazards``."""
    if chosen.hazards != EmulatedGpu._hazards:
        raise DeviceError(
            "option hazards can't be changed: it belongs to the programs of this process. Start one anew",
            kind="one-device",
        )


class Module:
    """A loaded code object. Kernels are launched by name with ctypes values as arguments."""

    def __init__(self, device: EmulatedGpu, handle: ctypes.c_void_p) -> None:
        self._device, self._handle = device, handle
        self._c = device._hip_runtime.c

    def launch(
        self,
        kernel: str,
        grid: Sequence[int],
        block: Sequence[int],
        arguments: Sequence[Any] | bytes,
        lds_bytes: int = 0,
    ) -> None:
        """Run ``grid`` workgroups of ``block`` threads. ``arguments`` are values one by one, or all as one block.

        Raises DeviceFaultError, or DeviceError if it can't start.
        """
        function = ctypes.c_void_p()
        self._device._hip(
            self._c.hipModuleGetFunction(ctypes.byref(function), self._handle, kernel.encode()), "hipModuleGetFunction"
        )
        sizes = (*grid, *(1,) * (3 - len(grid)), *block, *(1,) * (3 - len(block)))
        values: Any = None
        extra: Any = None
        if isinstance(arguments, bytes):
            held, count = ctypes.create_string_buffer(arguments, len(arguments)), ctypes.c_size_t(len(arguments))
            extra = (ctypes.c_void_p * 5)(_BLOCK, ctypes.addressof(held), _BYTES, ctypes.addressof(count), _END)
        else:
            values = (ctypes.c_void_p * max(1, len(arguments)))(*map(ctypes.addressof, arguments))
        status = self._c.hipModuleLaunchKernel(function, *sizes, lds_bytes, None, values, extra)
        self._device._hip(status, "hipModuleLaunchKernel")

    def variable(self, name: str) -> Buffer:
        """A device variable's memory."""
        address, size = ctypes.c_void_p(), ctypes.c_size_t()
        status = self._c.hipModuleGetGlobal(ctypes.byref(address), ctypes.byref(size), self._handle, name.encode())
        self._device._hip(status, "hipModuleGetGlobal")
        return Buffer(address.value or 0, size.value, name)

    def unload(self) -> None:
        """Forget the code; launching again is an error, not a crash."""
        self._device._hip(self._c.hipModuleUnload(self._handle), "hipModuleUnload")
