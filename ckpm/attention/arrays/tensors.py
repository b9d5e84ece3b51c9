"""Arrays of a caller: NumPy arrays, tensors of a framework, addresses on the device.

Host arrays are uploaded. Arrays on the device are used in place. Tensors of frameworks are read by the DLPack protocol:
address, shape and dtype come from a capsule, and nothing is copied. The structs are from dlpack.h (DLManagedTensor,
version 0.x, which ``__dlpack__()`` returns without ``max_version``).
"""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ckpm.attention.launch.device import Device
from ckpm.attention.problems.validation import find_overlap
from ckpm.base.errors import ArgumentError, ProblemError, demand_type

CPU, CUDA, PINNED, ROCM, ROCM_PINNED = 1, 2, 3, 10, 11  # DLDeviceType
_SIGNED, _UNSIGNED, _FLOAT, _BFLOAT = 0, 1, 2, 4  # DLDataTypeCode
_DLPACK_WORDS = {(_FLOAT, 16): "fp16", (_FLOAT, 32): "fp32", (_FLOAT, 64): "fp64", (_BFLOAT, 16): "bf16"}
_DLPACK_WORDS |= {(_SIGNED, 32): "int32", (_SIGNED, 64): "int64", (_UNSIGNED, 8): "bits8", (_UNSIGNED, 16): "bits16"}
_DLPACK_WORDS |= {(10, 8): "e4m3fn", (11, 8): "e4m3fnuz"}  # no kernel reads another format of 8 bits


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


def export(name: str, tensor: Any) -> Operand:
    """Read a tensor, without its gradient, by its DLPack capsule, which owns the memory.

    A dtype without a word here gets DLPack's type and bits. Errors of the tensor's ``__dlpack__`` pass through.
    """
    capsule = (tensor.detach() if getattr(tensor, "requires_grad", False) else tensor).__dlpack__()
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    view = _Tensor.from_address(pointer(capsule, b"dltensor"))
    shape = tuple(view.shape[at] for at in range(view.ndim))
    strides = tuple(view.strides[at] for at in range(view.ndim)) if view.strides else contiguous(shape)
    word = _DLPACK_WORDS.get((view.code, view.bits), f"DLPack type {view.code} of {view.bits} bits")
    return Operand(
        name=name,
        shape=shape,
        strides=strides,
        dtype=word if view.lanes == 1 else f"{word} in {view.lanes} lanes",
        address=(view.data or 0) + view.byte_offset,
        owner=capsule,
    )


def contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides, in elements, of an array in C order."""
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


WORDS: Mapping[str, str] = {
    "float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float64": "fp64", "int32": "int32", "int64": "int64",
    "uint16": "bits16", "uint8": "bits8", "float8_e4m3fn": "e4m3fn", "float8_e4m3fnuz": "e4m3fnuz",
}  # fmt: skip
FP8 = ("e4m3fn", "e4m3fnuz")
_FITTING: Mapping[str, tuple[str, ...]] = {
    "fp16": ("fp16", "bits16"),
    "bf16": ("bf16", "bits16"),
    "fp32": ("fp32",),
    "fp8bf16": (*FP8, "bits8"),
    "fp8": (*FP8, "bits8"),
    "int32": ("int32",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OnDevice:
    """Memory of the dispatcher's device that the caller owns.

    ``dtype``: fp16, bf16, fp32, e4m3fn, e4m3fnuz, bits8 (of either) or int32.

    ``strides`` count elements; without them the array is contiguous.
    """

    address: int
    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        demand_type("address", self.address, int, "a number")
        demand_type("dtype", self.dtype, str, "fp16, bf16, fp32, e4m3fn, e4m3fnuz, bits8 or int32")
        demand_type("shape", self.shape, tuple, "a tuple of lengths")
        demand_type("strides", self.strides, tuple | None, "a tuple of numbers of elements")
        for length in (*self.shape, *(self.strides or ())):
            demand_type("a length or stride", length, int, "a whole number")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Operand:
    """An array of a call. ``array`` is the host's, None on the device; ``strides`` count elements.

    ``gpu`` is the number of the GPU with its memory, None if it is unknown. ``owner`` keeps the memory alive.
    """

    name: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    array: NDArray[Any] | None = None
    address: int = 0
    gpu: int | None = None
    owner: Any = None

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def on_device(self) -> bool:
        return self.array is None

    @property
    def contiguous(self) -> bool:
        steps = zip(self.shape, self.strides, contiguous(self.shape), strict=True)
        return 0 in self.shape or all(length == 1 or stride == step for length, stride, step in steps)


def operand(name: str, argument: Any, device: Device) -> Operand:
    """Read an array, tensor or address as an operand. Check its dtype, device, address and strides."""
    result = _read_argument(name, argument, device)
    if 0 in result.shape or (result.array is not None and result.array.flags.c_contiguous):
        return result
    if result.on_device and not result.address:
        raise ArgumentError(f"{name} is at address 0.", kind="null")
    lengths = [(step, length) for step, length in zip(result.strides, result.shape, strict=True) if length > 1]
    if min((step for step, _ in lengths), default=0) < 0 or (
        result.shape and result.shape[-1] > 1 and result.strides[-1] > 1
    ):
        raise ArgumentError(
            f"{name} has strides {list(result.strides)}: the elements of its last axis must lie one after another, and "
            "no stride may be negative. Give a contiguous copy.",
            kind="not-contiguous",
        )
    if why := find_overlap(lengths, 1):
        raise ProblemError(
            f"{name}, {list(result.shape)} with strides {list(result.strides)}: {why}. Give a copy.", kind="overlap"
        )
    return result


def _read_argument(name: str, argument: Any, device: Device) -> Operand:
    if isinstance(argument, OnDevice):
        strides = contiguous(argument.shape) if argument.strides is None else argument.strides
        if len(strides) != len(argument.shape):
            raise ArgumentError(f"{name} has {len(argument.shape)} lengths and {len(strides)} strides.", kind="shape")
        return Operand(name=name, shape=argument.shape, strides=strides, dtype=argument.dtype, address=argument.address)
    if not isinstance(argument, np.ndarray) and hasattr(argument, "__dlpack_device__"):
        return _read_export(name, argument, device)
    if hasattr(argument, "__cuda_array_interface__"):
        return _interface(name, argument, device)
    if not isinstance(argument, np.ndarray) and not hasattr(argument, "__array_interface__"):
        raise ArgumentError(
            f"{name} is a {type(argument).__name__}: give a NumPy array, a tensor with DLPack, or OnDevice.",
            kind="dtype",
        )
    if isinstance(argument, np.ma.MaskedArray):
        raise ArgumentError(
            f"{name} is a masked array, and no kernel reads its mask: give filled() numbers and a mask of fmha.",
            kind="dtype",
        )
    return _host(name, np.asarray(argument))


def _host(name: str, array: NDArray[Any], word: str = "") -> Operand:
    word = word or _word_of(array.dtype)
    if not word:
        raise ArgumentError(f"{name} is of dtype {array.dtype}. Known: {', '.join(WORDS)}.", kind="dtype")
    strides = tuple(step // array.itemsize for step in array.strides)
    return Operand(name=name, shape=array.shape, strides=strides, dtype=word, array=array)


def _read_export(name: str, tensor: Any, device: Device) -> Operand:
    kind, number = map(int, tensor.__dlpack_device__())
    if kind not in (CPU, PINNED, ROCM_PINNED):
        _demand_gpu(name, kind == ROCM, device)
    try:
        view = export(name, tensor)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise ArgumentError(
            f"{name} is a {type(tensor).__name__} that doesn't show its memory: {error}", kind="dtype"
        ) from error
    if kind == ROCM:
        return replace(view, gpu=number)
    kinds: dict[str, Any] = dict.fromkeys((*FP8, "bits8"), np.uint8)
    kinds |= {"bits16": np.uint16, "bf16": np.uint16, "fp16": np.float16, "fp32": np.float32}
    kinds |= {"fp64": np.float64, "int32": np.int32, "int64": np.int64}
    if view.dtype not in kinds:
        raise ArgumentError(f"{name} is of {view.dtype}, which no kernel reads.", kind="dtype")
    item = np.dtype(kinds[view.dtype])
    interface = {
        "data": (view.address, False), "shape": view.shape, "typestr": item.str, "version": 3,
        "strides": tuple(step * item.itemsize for step in view.strides),
    }  # fmt: skip
    return _host(name, np.asarray(_Viewed(interface, view)), view.dtype)


@functools.cache
def _word_of(dtype: np.dtype[Any]) -> str:
    """The word of a dtype of NumPy, '' if there is none."""
    return WORDS.get(dtype.name, "") if dtype.isnative else ""


class _Viewed:
    """Memory of another owner, with an array interface for NumPy."""

    def __init__(self, interface: Mapping[str, Any], owner: Any) -> None:
        self.__array_interface__ = interface
        self.owner = owner


def _interface(name: str, tensor: Any, device: Device) -> Operand:
    """Read a tensor of ROCm's PyTorch, whose interface has CUDA's name."""
    _demand_gpu(name, True, device)
    interface = tensor.__cuda_array_interface__
    item = np.dtype(interface["typestr"])
    word = WORDS.get(item.name, "")
    if not word:
        raise ArgumentError(f"{name} is of dtype {item}, which no kernel reads.", kind="dtype")
    shape = tuple(interface["shape"])
    byte_strides = interface.get("strides")
    strides = contiguous(shape) if byte_strides is None else tuple(step // item.itemsize for step in byte_strides)
    address = int(interface["data"][0])
    return Operand(name=name, shape=shape, strides=strides, dtype=word, address=address, owner=tensor)


def _demand_gpu(name: str, on_gpu: bool, device: Device) -> None:
    if not on_gpu or device.kind != "hip":
        raise ArgumentError(
            f"{name} is on {'a GPU' if on_gpu else 'another kind of device'}, and the dispatcher's device is "
            f"{device.kind} {device.arch}. Move it to the host, or dispatch to the device that it is on.",
            kind="device",
        )


def demand_shape(operand: Operand, shape: Sequence[int], what: str = "") -> None:
    """Refuse an operand of another shape."""
    if operand.shape != tuple(shape):
        raise ArgumentError(
            f"{operand.name} is {list(operand.shape)}, not {list(shape)}{f' ({what})' if what else ''}.", kind="shape"
        )


def demand_dtype(operand: Operand, dtype: str) -> None:
    """Refuse elements that a kernel of ``dtype`` doesn't read."""
    if operand.dtype not in _FITTING[dtype]:
        bits = {"bits16": "its bits as uint16", "bits8": "its bits as uint8"}
        wanted = " or ".join(bits.get(word, word) for word in _FITTING[dtype])
        raise ArgumentError(f"{operand.name} is of {operand.dtype}; give {wanted}.", kind="dtype")


def demand_one_place(operands: Sequence[Operand]) -> bool:
    """Return True if all operands are on the device, False if all are on the host. Refuse a mixture, and two GPUs."""
    places = {operand.on_device for operand in operands}
    if len(places) > 1:
        there = ", ".join(operand.name for operand in operands if operand.on_device)
        rest = ", ".join(operand.name for operand in operands if not operand.on_device)
        raise ArgumentError(f"on the device: {there}; on the host: {rest}. Give all in one place.", kind="device")
    gpus = {operand.gpu: operand.name for operand in reversed(operands) if operand.gpu is not None}
    if len(gpus) > 1:
        there = ", ".join(f"{name} on GPU {gpu}" for gpu, name in sorted(gpus.items()))
        raise ArgumentError(f"{there}: give all on one GPU.", kind="device")
    return places == {True}


def demand_contiguous(operand: Operand) -> None:
    """Refuse an operand that is not contiguous: the C ABI has no strides for it."""
    if not operand.contiguous:
        raise ArgumentError(f"{operand.name} is not contiguous: give a contiguous one.", kind="not-contiguous")


def demand_writable(operand: Operand) -> None:
    """Refuse an output that is read-only or not contiguous."""
    if operand.array is not None and not operand.array.flags.writeable:
        raise ArgumentError(f"{operand.name} is read-only: give an array that can be written.", kind="read-only")
    demand_contiguous(operand)
