"""The HIP runtime's C ABI over ctypes: a harness's own calls, on a GPU and on the emulator alike."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ckpm.base.errors import DeviceError, HipError

OUT_OF_MEMORY, NO_DEVICE, INVALID_DEVICE, TIMED_OUT = 2, 100, 101, 702
NOT_INITIALIZED, DEINITIALIZED, DEVICES_UNAVAILABLE, UNKNOWN = 3, 4, 46, 999
# Errors of the machine, not of the kernel. A lost device may give UNKNOWN.
INFRASTRUCTURE = frozenset((
    OUT_OF_MEMORY, NOT_INITIALIZED, DEINITIALIZED, NO_DEVICE, INVALID_DEVICE, DEVICES_UNAVAILABLE, UNKNOWN,
))  # fmt: skip
_TO_DEVICE, _TO_HOST = 1, 2  # hipMemcpyKind
_PROPERTIES_BYTES = 4096  # hipDeviceProp_tR0600 has 1472
_MEMORY_AT, _COMPUTE_UNITS_AT, _ARCH_AT = 288, 388, 1160


@dataclass(frozen=True, slots=True, kw_only=True)
class Properties:
    """Properties of a device. ``arch`` is without the feature flags after its name."""

    arch: str
    compute_units: int
    memory_bytes: int
    name: str = ""


@dataclass(frozen=True, slots=True)
class Memory:
    """Device memory; ``size`` is the requested size."""

    address: int
    size: int


class HipApi:
    """Typed calls. Each raises HipError, with the runtime's text and the text of ``explain()``."""

    def __init__(self, runtime: ctypes.CDLL, explain: Callable[[], str] = lambda: "") -> None:
        self._c = runtime
        self._explain = explain
        number, pointer, size = ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t
        signatures: dict[str, tuple[Any, list[Any]]] = {
            "hipGetDeviceCount": (number, [pointer]),
            "hipGetDevice": (number, [pointer]),
            "hipSetDevice": (number, [number]),
            "hipGetDevicePropertiesR0600": (number, [pointer, number]),
            "hipMalloc": (number, [pointer, size]),
            "hipFree": (number, [pointer]),
            "hipMemcpy": (number, [pointer, pointer, size, number]),
            "hipMemset": (number, [pointer, number, size]),
            "hipMemsetAsync": (number, [pointer, number, size, pointer]),
            "hipDeviceSynchronize": (number, []),
            "hipRuntimeGetVersion": (number, [pointer]),
            "hipGetLastError": (number, []),
            "hipGetErrorName": (ctypes.c_char_p, [number]),
            "hipGetErrorString": (ctypes.c_char_p, [number]),
        }
        for name, (result, arguments) in signatures.items():
            try:
                function = getattr(runtime, name)
            except AttributeError as error:
                raise DeviceError(f"the HIP runtime lacks {name}: {error}. ROCm 6 or newer is needed.") from error
            function.restype, function.argtypes = result, arguments

    def device_count(self) -> int:
        count = ctypes.c_int(0)
        status = self._c.hipGetDeviceCount(ctypes.byref(count))
        return 0 if status == NO_DEVICE else self._check(status, "hipGetDeviceCount", count.value)

    def current_device(self) -> int:
        """The number of the device on which this thread allocates and launches."""
        number = ctypes.c_int(0)
        return self._check(self._c.hipGetDevice(ctypes.byref(number)), "hipGetDevice", number.value)

    def set_device(self, number: int) -> None:
        self._check(self._c.hipSetDevice(number), "hipSetDevice")

    def properties(self, number: int = 0) -> Properties:
        block = ctypes.create_string_buffer(_PROPERTIES_BYTES)
        self._check(self._c.hipGetDevicePropertiesR0600(block, number), "hipGetDeviceProperties")
        name = ctypes.string_at(ctypes.addressof(block) + _ARCH_AT).decode(errors="replace")
        return Properties(
            name=block.value.decode(errors="replace"),
            arch=name.partition(":")[0],
            compute_units=ctypes.c_int.from_buffer(block, _COMPUTE_UNITS_AT).value,
            memory_bytes=ctypes.c_size_t.from_buffer(block, _MEMORY_AT).value,
        )

    def runtime_version(self) -> str:
        version = ctypes.c_int(0)
        self._check(self._c.hipRuntimeGetVersion(ctypes.byref(version)), "hipRuntimeGetVersion")
        return str(version.value)

    def bus_id(self, number: int) -> str:
        """A device's PCI bus id, such as 0000:c1:00.0; '' if the runtime doesn't provide it."""
        text = ctypes.create_string_buffer(64)
        function = getattr(self._c, "hipDeviceGetPCIBusId", None)
        return text.value.decode() if function and function(text, ctypes.c_int(64), ctypes.c_int(number)) == 0 else ""

    def malloc(self, size: int) -> Memory:
        """Allocate ``size`` bytes, but at least 1: a null pointer would have another meaning."""
        address = ctypes.c_void_p()
        self._check(self._c.hipMalloc(ctypes.byref(address), max(size, 1)), f"hipMalloc of {size} bytes")
        return Memory(address.value or 0, size)

    def free(self, memory: Memory) -> None:
        self._check(self._c.hipFree(memory.address), "hipFree")

    def write(self, memory: Memory, data: NDArray[Any], offset: int = 0) -> None:
        """Copy an array's elements to the device, in C order."""
        whole = np.ascontiguousarray(data)
        if offset < 0 or offset + whole.nbytes > memory.size:
            raise ValueError(f"{whole.nbytes} bytes at {offset} don't fit a buffer of {memory.size}")
        if whole.nbytes:
            status = self._c.hipMemcpy(memory.address + offset, whole.ctypes.data, whole.nbytes, _TO_DEVICE)
            self._check(status, "hipMemcpy to the device")

    def read(
        self, memory: Memory, kind: DTypeLike = np.uint8, shape: int | Sequence[int] | None = None
    ) -> NDArray[Any]:
        """A copy of the memory's first elements; without a shape, of all of them."""
        count = memory.size // np.dtype(kind).itemsize
        data = np.empty(count if shape is None else shape, kind)
        if data.nbytes > memory.size:
            raise ValueError(f"a buffer of {memory.size} bytes doesn't hold {data.nbytes}")
        if data.nbytes:
            status = self._c.hipMemcpy(data.ctypes.data, memory.address, data.nbytes, _TO_HOST)
            self._check(status, "hipMemcpy from the device")
        return data

    def fill(self, memory: Memory, byte: int) -> None:
        if memory.size:
            self._check(self._c.hipMemset(memory.address, byte, memory.size), "hipMemset")

    def clear(self, memory: Memory, stream: int = 0) -> None:
        """Set the memory to zeros, in the stream's order."""
        if memory.size:
            self._check(self._c.hipMemsetAsync(memory.address, 0, memory.size, stream), "hipMemsetAsync")

    def synchronize(self) -> None:
        """Wait for all launches. Raise HipError if one of them failed."""
        self._check(self._c.hipDeviceSynchronize(), "hipDeviceSynchronize")

    def time_code(
        self, code: bytes, kernel: str, grid: Sequence[int], threads: int, arguments: bytes, repeats: int
    ) -> float:
        """Mean microseconds of a code object's kernel, launched ``repeats`` times one after the other on a GPU.

        A launch that is not timed comes first.
        """
        c, handle = self._c, ctypes.c_void_p
        module, function, start, end = handle(), handle(), handle(), handle()
        block, size, elapsed = ctypes.create_string_buffer(arguments), ctypes.c_size_t(len(arguments)), ctypes.c_float()
        extra = (handle * 5)(1, ctypes.addressof(block), 2, ctypes.addressof(size), 3)  # HIP_LAUNCH_PARAM_*
        sizes = [ctypes.c_uint(number) for number in (*grid, threads, 1, 1, 0)]
        self._check(c.hipModuleLoadData(ctypes.byref(module), code), "hipModuleLoadData")
        try:
            self._check(c.hipModuleGetFunction(ctypes.byref(function), module, kernel.encode()), "hipModuleGetFunction")
            for event in (start, end):
                self._check(c.hipEventCreate(ctypes.byref(event)), "hipEventCreate")
            for number in range(1 + repeats):
                if number == 1:
                    self._check(c.hipEventRecord(start, None), "hipEventRecord")
                self._check(c.hipModuleLaunchKernel(function, *sizes, None, None, extra), "hipModuleLaunchKernel")
            self._check(c.hipEventRecord(end, None), "hipEventRecord")
            self._check(c.hipEventSynchronize(end), "hipEventSynchronize")
            self._check(c.hipEventElapsedTime(ctypes.byref(elapsed), start, end), "hipEventElapsedTime")
        finally:
            for event in filter(None, (start, end)):
                c.hipEventDestroy(event)
            c.hipModuleUnload(module)
        return elapsed.value * 1e3 / repeats

    def last_error(self) -> int:
        """Return the error of an earlier call of this thread, 0 if none, and clear it."""
        return int(self._c.hipGetLastError())

    def explanation(self) -> str:
        """The runtime's text of the last failure beyond its number; empty on a GPU."""
        return self._explain()

    def error_text(self, status: int) -> str:
        name, text = self._c.hipGetErrorName(status), self._c.hipGetErrorString(status)
        return f"{(name or b'?').decode()} ({status}): {(text or b'?').decode()}"

    def _check(self, status: int, what: str, result: int = 0) -> int:
        if status:
            more = self._explain()
            raise HipError(f"{what}: {self.error_text(status)}" + (f". {more}" if more else ""), status)
        return result
