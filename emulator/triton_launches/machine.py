"""Triton kernels on the emulated device: compiled as Triton's own launcher would have it, memory as NumPy arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np

from ckpm.attention.launch.device import EmulatedDevice
from ckpm.attention.launch.hip_api import Memory
from ckpm.base.errors import DeviceError
from ckpm.decode.guard.candidates import Candidate
from ckpm.decode.guard.compiling import compile_candidate
from tests.triton.number_formats import Array, decode, encode, storage

_LANES = 64
_INT32 = 1 << 31


class Tensor:
    """Memory of a kernel: bits of a Triton type, before a launch what it gets, after it what it left."""

    def __init__(self, bits: Array, kind: str) -> None:
        self.bits, self.kind = np.ascontiguousarray(bits), kind

    @property
    def values(self) -> Array:
        """The numbers: float64, or integers."""
        return decode(self.bits, self.kind)


def tensor(values: Any, kind: str = "fp32") -> Tensor:
    """Memory with the numbers of a type that are nearest to ``values``."""
    return Tensor(encode(np.asarray(values), kind), kind)


def room(shape: Any, kind: str = "fp32") -> Tensor:
    """Memory for a result. A kernel that leaves an element out leaves what no case expects."""
    array = np.empty(shape, storage(kind))
    array.view(np.uint8)[...] = 0x5B
    return Tensor(array, kind)


@dataclass(frozen=True, slots=True)
class Addresses:
    """An array of the addresses of tensors."""

    tensors: tuple[Tensor, ...]


class Machine:
    """A device of one arch for launches one after the other."""

    def __init__(self, arch: str) -> None:
        self.arch = arch
        self._device = EmulatedDevice(arch)

    def run(
        self, kernel: Any, grid: int | tuple[int, ...], options: Mapping[str, Any] | None = None, /, **parameters: Any
    ) -> None:
        """Launch a kernel with its arguments by name; tensors hold afterwards what it wrote.

        Like Triton's launcher it gives the compiler the numbers and addresses that are multiples of 16, and makes
        constants of None and 1.

        Raises:
            InputError: Triton doesn't compile it.
            DeviceError: the device lacks an instruction, or the launch faults.
        """
        constants = {param.name for param in kernel.params if param.is_constexpr}
        constants |= {
            name for name, value in parameters.items() if value is None or (isinstance(value, int) and value == 1)
        }
        chosen = {"num_warps": 4, "num_stages": 2, **(options or {})}
        code = compile_candidate(
            kernel,
            Candidate(
                kernel=kernel.__name__,
                arch=self.arch,
                signature={name: _type(value) for name, value in parameters.items() if name not in constants},
                constexprs={name: value for name, value in parameters.items() if name in constants},
                options=chosen,
            ),
        )
        values = [parameters[param.name] for param in kernel.params if param.name not in constants]
        whole = ((grid,) if isinstance(grid, int) else grid) + (1, 1)
        threads = _LANES * int(chosen["num_warps"])
        with ExitStack() as stack:
            held: list[tuple[Tensor, Memory]] = []
            arguments = [self._argument(value, stack, held) for value in values]
            scratch = [ctypes.c_uint64(0), ctypes.c_uint64(0)]  # which Triton appends and these kernels don't use
            try:
                self._device.launch_code(
                    code.binary,
                    code.symbol,
                    (whole[0], whole[1], whole[2]),
                    threads,
                    [*arguments, *scratch],
                    code.lds_bytes,
                )
            except DeviceError:
                self._device.recover()  # memory can't be freed otherwise
                raise
            for output, memory in held:
                output.bits = self._device.hip.read(memory, output.bits.dtype, output.bits.shape)

    def _argument(self, value: Any, stack: ExitStack, held: list[tuple[Tensor, Memory]]) -> Any:
        """The launch's argument for a value. Tensors are copied to the device and added to ``held``."""
        if isinstance(value, Addresses):
            addresses = [self._argument(pointee, stack, held).value for pointee in value.tensors]
            return self._argument(tensor(np.array(addresses, np.uint64), "u64"), stack, held)
        if isinstance(value, Tensor):
            memory = self._device.hip.malloc(value.bits.nbytes)
            stack.callback(self._device.hip.free, memory)
            self._device.hip.write(memory, value.bits)
            held.append((value, memory))
            return ctypes.c_uint64(memory.address)
        if isinstance(value, float):
            return ctypes.c_float(value)
        return ctypes.c_int32(value) if -_INT32 <= value < _INT32 else ctypes.c_int64(value)


def _type(value: Any) -> str:
    """The type of an argument as Triton writes it."""
    if isinstance(value, Addresses):
        return "*u64:16"
    if isinstance(value, Tensor):
        return f"*{value.kind}:16"
    if isinstance(value, float):
        return "fp32"
    wide = "i32" if -_INT32 <= value < _INT32 else "i64"
    return f"{wide}:16" if value % 16 == 0 else wide
