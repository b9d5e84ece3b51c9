"""Code objects on the emulated device with all its checks: memory of NumPy arrays, arguments as one block of bytes."""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml
from numpy.typing import NDArray

from ckpm_emulator.device import Buffer, EmulatedGpu
from ckpm_emulator.standalone import CHECKS
from tests.programs.objects.package import CodeObject

Array = NDArray[Any]
TABLES = Path(__file__).with_name("arguments.yaml")
_FORMATS = {"pointer": "<Q", "u32": "<I", "i32": "<i", "f32": "<f"}
# Checks of single launches that AITER's code does not meet by design: waves wait at different barriers of a loop, and
# LDS-DMA is issued over bytes that other waves have just read, without a barrier (docs/reference/conformance.md).
LEFT_OUT = ("leaks", "barriers", "hazards", "lds_races", "late_lds_reads")
_WAITS = ("late_loads", "uninitialised", "uninitialised_memory")
_UNTOUCHED = 0x5B  # of each byte of an output before a launch


class Argument(NamedTuple):
    """``type`` is pointer, u32, i32 or f32."""

    name: str
    type: str
    offset: int

    @property
    def end(self) -> int:
        """The offset of the byte after the argument."""
        return self.offset + struct.calcsize(_FORMATS[self.type])


class Launch(NamedTuple):
    """``threads`` of each workgroup; ``values`` by the names of a table of arguments, those that it lacks are 0."""

    table: str
    grid: Sequence[int]
    threads: int
    values: Mapping[str, Any]


@functools.cache
def layouts() -> Mapping[str, tuple[Argument, ...]]:
    """The tables of arguments by name."""
    rows: Mapping[str, Mapping[str, Sequence[Any]]] = yaml.safe_load(TABLES.read_text())
    return {
        table: tuple(Argument(name, kind, offset) for name, (kind, offset) in arguments.items())
        for table, arguments in rows.items()
    }


def pack(table: str, values: Mapping[str, Any]) -> bytes:
    """The block of a kernel's arguments.

    Raises:
        KeyError: a value that the table lacks.
    """
    arguments = {argument.name: argument for argument in layouts()[table]}
    block = bytearray(max(argument.end for argument in arguments.values()))
    for name, value in values.items():
        argument = arguments[name]
        plain = value.address if isinstance(value, Buffer) else value
        struct.pack_into(_FORMATS[argument.type], block, argument.offset, plain)
    return bytes(block)


class Machine:
    """A device of one arch, of a process, with all checks of single launches."""

    def __init__(self, arch: str, **options: Any) -> None:
        self.arch = arch
        checks = {name: name not in LEFT_OUT for name in CHECKS}
        self.device = EmulatedGpu(arch, **{"interleaved": True, "srd_range_rule": False, **checks, **options})

    @contextmanager
    def memory(self) -> Iterator[Memory]:
        """Memory that is freed at the end. A fault is cleared, so that the next case begins with a working device."""
        held = Memory(self.device)
        try:
            yield held
        finally:
            self.device.clear_fault()
            for buffer in held.buffers:
                self.device.free(buffer)

    @contextmanager
    def loads_at_once(self) -> Iterator[None]:
        """No load is late, and nothing that was never written is looked for: what a missing wait does is left out."""
        before = {name: getattr(self.device.options, name) for name in _WAITS}
        self.device.configure(**dict.fromkeys(_WAITS, False))
        try:
            yield
        finally:
            self.device.configure(**before)

    def launch(self, code: CodeObject, launch: Launch) -> None:
        """Run the kernel of a code object.

        Raises:
            DeviceError: the device lacks an instruction, or the launch faults.
        """
        module = self.device.load_module(code.content)
        try:
            module.launch(code.kernel.name, launch.grid, (launch.threads,), pack(launch.table, launch.values))
            self.device.synchronize()
        finally:
            self.device.clear_fault()
            module.unload()


class Memory:
    """Buffers of a case."""

    def __init__(self, device: EmulatedGpu) -> None:
        self.device, self.buffers = device, list[Buffer]()

    def upload(self, array: Array, label: str = "") -> Buffer:
        """Memory with an array's elements."""
        self.buffers.append(self.device.upload(array, label))
        return self.buffers[-1]

    def room(self, shape: Sequence[int], dtype: Any, label: str = "") -> Buffer:
        """Memory for a result, with bytes that no case expects."""
        return self.upload(np.full(np.prod(shape) * np.dtype(dtype).itemsize, _UNTOUCHED, np.uint8), label)

    def read(self, buffer: Buffer, shape: Sequence[int], dtype: Any) -> Array:
        """The elements of a buffer."""
        return self.device.read(buffer, dtype, shape)
