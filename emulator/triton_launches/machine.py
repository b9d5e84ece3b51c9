"""Triton kernels on the emulated device: compiled as Triton's own launcher would have it, memory as NumPy arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np

from ckpm_emulator.device import Buffer, EmulatedGpu
from ckpm_emulator.errors import DeviceError, InputError
from triton_launches.number_formats import Array, decode, encode, storage

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

    def __init__(self, arch: str, checks: Collection[str] = ()) -> None:
        self.arch = arch
        chosen: dict[str, Any] = dict.fromkeys(checks, True)
        self._device = EmulatedGpu(arch, **chosen)

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
        types = {name: _type(value) for name, value in parameters.items() if name not in constants}
        code = _compile(
            kernel, self.arch, types, {name: parameters[name] for name in constants & {*parameters}}, chosen
        )
        values = [parameters[param.name] for param in kernel.params if param.name not in constants]
        whole = ((grid,) if isinstance(grid, int) else grid) + (1, 1)
        threads = _LANES * int(chosen["num_warps"])
        with ExitStack() as stack:
            held: list[tuple[Tensor, Buffer]] = []
            arguments = [self._argument(value, stack, held) for value in values]
            scratch = [ctypes.c_uint64(0), ctypes.c_uint64(0)]  # which Triton appends and these kernels don't use
            try:
                module = self._device.load_module(code.asm["hsaco"])
                stack.callback(module.unload)
                lds_bytes = int(code.metadata.shared)
                module.launch(code.metadata.name, whole[:3], (threads,), [*arguments, *scratch], lds_bytes)
                self._device.synchronize()
            except DeviceError:
                self._device.clear_fault()  # memory can't be freed otherwise
                raise
            for output, memory in held:
                output.bits = self._device.read(memory, output.bits.dtype, output.bits.shape)

    def _argument(self, value: Any, stack: ExitStack, held: list[tuple[Tensor, Buffer]]) -> Any:
        """The launch's argument for a value. Tensors are copied to the device and added to ``held``."""
        if isinstance(value, Addresses):
            addresses = [self._argument(pointee, stack, held).value for pointee in value.tensors]
            return self._argument(tensor(np.array(addresses, np.uint64), "u64"), stack, held)
        if isinstance(value, Tensor):
            memory = self._device.upload(value.bits)
            stack.callback(self._device.free, memory)
            held.append((value, memory))
            return ctypes.c_uint64(memory.address)
        if isinstance(value, float):
            return ctypes.c_float(value)
        return ctypes.c_int32(value) if -_INT32 <= value < _INT32 else ctypes.c_int64(value)


def _compile(
    kernel: Any, arch: str, types: Mapping[str, str], constants: Mapping[str, Any], options: Mapping[str, Any]
) -> Any:
    """Triton's compiled kernel. A type that ends with ``:16`` is of an address or number that is a multiple of 16."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    kinds = {name: types.get(name, "constexpr").partition(":") for name in kernel.arg_names}
    multiples = {(at,): [["tt.divisibility", 16]] for at, (_, colon, _) in enumerate(kinds.values()) if colon}
    source = ASTSource(kernel, {name: kind for name, (kind, _, _) in kinds.items()}, dict(constants), multiples)
    try:
        target = GPUTarget("hip", arch, _LANES)
        return triton.compile(source, target=target, options={"enable_fp_fusion": True, **options})
    except Exception as error:  # of Triton's many kinds, and of the Python that it runs
        raise InputError(f"{kernel.__name__} {arch}: doesn't compile: {error}") from error


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
