"""``append``: new keys and values into a KV cache, with a rotary embedding or without, from arrays to arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ckpm.attention.arrays.posing import encode_operand, kernel_dtype
from ckpm.attention.arrays.tensors import Operand, demand_one_place, operand
from ckpm.attention.call import chosen
from ckpm.attention.dispatcher import Dispatcher
from ckpm.attention.launch.appends import Append, pointers, pose
from ckpm.attention.launch.device import Device
from ckpm.attention.launch.encodings import decode
from ckpm.attention.launch.launching import host_buffers, upload
from ckpm.attention.launch.plan import FinishedLaunch
from ckpm.attention.problems.validation import none_of
from ckpm.base.errors import ArgumentError, ProblemError, demand_type
from ckpm.matrix.problems.problem import CHOICES

_AXES = {"q": 4, "knew": 4, "vnew": 4, "k": 4, "v": 4, "seqlens_k": 1, "cos": 2, "sin": 2}
_AXES |= {"block_table": 2, "cache_batch_idx": 1}
_OPTIONAL = ("cos", "sin", "block_table", "cache_batch_idx")
_INTEGERS = ("seqlens_k", "block_table", "cache_batch_idx")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Appended:
    """Q, rotated if a rotary embedding was given, and the cache with the new rows."""

    q: NDArray[Any]
    k: NDArray[Any]
    v: NDArray[Any]
    ran: FinishedLaunch


def append(
    q: Any,
    knew: Any,
    vnew: Any,
    k: Any,
    v: Any,
    seqlens_k: Any,
    *,
    dispatcher: Dispatcher | None = None,
    dtype: str | None = None,
    rope: str = "no",
    cos: Any = None,
    sin: Any = None,
    causal: bool = False,
    block_table: Any = None,
    cache_batch_idx: Any = None,
) -> Appended:
    """Append new rows to a cache.

    Arrays are on the host, with the shapes of ckpm.attention.launch.appends.Append. Floats are encoded in ``dtype``.

    Raises:
        ArgumentError: tensors contradict one another, or the cache or the cosines are too short.
        An error of ckpm.base.errors: see Dispatcher.plan and Plan.run.
    """
    demand_type("rope", rope, str, "no, inter or half")
    if rope not in CHOICES["rope"]:
        raise ArgumentError(none_of("rope", rope, CHOICES["rope"]), kind="rope")
    demand_type("causal", causal, bool, "True or False")
    dispatcher = chosen(dispatcher, q)
    arguments = {
        "q": q, "knew": knew, "vnew": vnew, "k": k, "v": v, "seqlens_k": seqlens_k, "cos": cos, "sin": sin,
        "block_table": block_table, "cache_batch_idx": cache_batch_idx,
    }  # fmt: skip
    operands = _operands(arguments, dispatcher.device)
    kind, arch = kernel_dtype(operands["q"], dtype), dispatcher.device.arch
    arrays = {name: _bits(operand, "int32" if name in _INTEGERS else kind, arch) for name, operand in operands.items()}
    request = Append(dtype=kind, rope=rope, causal=causal, **arrays)
    try:
        problem = pose(request, arch)
    except ProblemError as error:
        raise ArgumentError(str(error), kind="shape") from error
    plan = dispatcher.plan(problem)
    hip = dispatcher.device.hip
    with upload(dispatcher.device, host_buffers(pointers(request), {})) as memory:
        ran = plan.run({name: part.address for name, part in memory.items()})
        plan.finish()
        read = {name: hip.read(memory[name], arrays[name].dtype, arrays[name].shape) for name in ("q", "k", "v")}
    back = {name: _to_caller_dtype(operands[name], bits, kind, arch) for name, bits in read.items()}
    return Appended(**back, ran=ran)


def _operands(arguments: Mapping[str, Any], device: Device) -> dict[str, Operand]:
    """Read the arguments as operands. They must be on the host, each with its number of axes."""
    there = {name: array for name, array in arguments.items() if array is not None or name not in _OPTIONAL}
    operands = {name: operand(name, argument, device) for name, argument in there.items()}
    if demand_one_place(list(operands.values())):
        raise ArgumentError(
            "append takes host arrays. For a cache on the device call dispatcher.plan(problem).run({name: address}).",
            kind="device",
        )
    for name, array in operands.items():
        if len(array.shape) != _AXES[name]:
            raise ArgumentError(f"{name} is {list(array.shape)}: it must have {_AXES[name]} axes.", kind="shape")
    return operands


def _bits(operand: Operand, dtype: str, arch: str) -> NDArray[Any]:
    """The bits of an operand in the kernel's dtype, as a launch takes them."""
    array = encode_operand(operand, dtype, arch).array
    assert array is not None, "all are on the host"
    return array if array.dtype.kind in "iu" else array.view({2: np.uint16, 4: np.uint32}[array.itemsize])


def _to_caller_dtype(operand: Operand, bits: NDArray[Any], dtype: str, arch: str) -> NDArray[Any]:
    """Bits converted to the dtype of the caller's array."""
    assert operand.array is not None, "all are on the host"
    if operand.array.dtype.kind == "f" and operand.array.itemsize != bits.itemsize:
        return decode(bits, dtype, arch).astype(operand.array.dtype)
    return bits.view(operand.array.dtype)
