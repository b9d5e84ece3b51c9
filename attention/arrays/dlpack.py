"""Tensors of frameworks by the DLPack protocol: address, shape and dtype read from a capsule, nothing copied.

The structs are those of dlpack.h (DLManagedTensor, version 0.x: what ``__dlpack__()`` gives without ``max_version``).
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

CPU, CUDA, PINNED, ROCM, ROCM_PINNED = 1, 2, 3, 10, 11  # DLDeviceType
_SIGNED, _UNSIGNED, _FLOAT, _BFLOAT = 0, 1, 2, 4  # DLDataTypeCode
_WORDS = {(_FLOAT, 16): "fp16", (_FLOAT, 32): "fp32", (_FLOAT, 64): "fp64", (_BFLOAT, 16): "bf16"}
_WORDS |= {(_SIGNED, 32): "int32", (_SIGNED, 64): "int64", (_UNSIGNED, 8): "bits8", (_UNSIGNED, 16): "bits16"}
_WORDS |= {(code, 8): "bits8" for code in (7, 8, 9, 10, 11, 12, 13, 14)}  # the formats of fp8


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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Exported:
    """``strides`` count elements. ``dtype`` is a word of ckpm.attention.arrays.tensors, or what DLPack calls it.

    The memory lives as long as ``capsule``.
    """

    address: int
    device: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    capsule: Any


def export(tensor: Any) -> Exported:
    """Read the DLPack capsule of a tensor. Errors of the tensor's ``__dlpack__`` pass through."""
    capsule = tensor.__dlpack__()
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    view = _Tensor.from_address(pointer(capsule, b"dltensor"))
    shape = tuple(view.shape[at] for at in range(view.ndim))
    strides = tuple(view.strides[at] for at in range(view.ndim)) if view.strides else contiguous(shape)
    word = _WORDS.get((view.code, view.bits), f"DLPack type {view.code} of {view.bits} bits")
    return Exported(
        address=(view.data or 0) + view.byte_offset,
        device=view.device_type,
        shape=shape,
        strides=strides,
        dtype=word if view.lanes == 1 else f"{word} in {view.lanes} lanes",
        capsule=capsule,
    )


def contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides, in elements, of an array in C order."""
    strides: list[int] = []
    step = 1
    for length in reversed(shape):
        strides.insert(0, step)
        step *= length
    return tuple(strides)
