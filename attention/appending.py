"""``append``: new keys and values into a KV cache, with a rotary embedding or without, from arrays to arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ckpm.attention.arrays.posing import encode_operand, kernel_dtype
from ckpm.attention.arrays.tensors import Operand, demand_one_place, operand
from ckpm.attention.call import default
from ckpm.attention.dispatcher import Dispatcher
from ckpm.attention.launch.appendkv_launching import Append, pose
from ckpm.attention.launch.appendkv_launching import arrays as pointers
from ckpm.attention.launch.device import Device
from ckpm.attention.launch.encodings import decode
from ckpm.attention.launch.launching import host_buffers, upload
from ckpm.attention.launch.plan import Ran
from ckpm.base.errors import ArgumentError, ProblemError

_AXES = {"q": 4, "knew": 4, "vnew": 4, "k": 4, "v": 4, "seqlens_k": 1, "cos": 2, "sin": 2}
_AXES |= {"block_table": 2, "cache_batch_idx": 1}
_INTEGERS = ("seqlens_k", "block_table", "cache_batch_idx")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Appended:
    """Q, rotated if a rotary embedding was given, and the cache with the new rows."""

    q: NDArray[Any]
    k: NDArray[Any]
    v: NDArray[Any]
    ran: Ran


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
    """Append new rows to a cache. Arrays are the host's, shaped as the fields of
    ckpm.attention.launch.appendkv_launching.Append. Floats are encoded in ``dtype``.

    Raises:
        ArgumentError: tensors contradict one another, or the cache or the cosines are too short.
        An error of ckpm.attention.errors: see arrays.tensors.operand, Dispatcher.plan and Plan.run. HipError.
    """
    over = dispatcher if dispatcher is not None else default()
    given = {
        "q": q, "knew": knew, "vnew": vnew, "k": k, "v": v, "seqlens_k": seqlens_k, "cos": cos, "sin": sin,
        "block_table": block_table, "cache_batch_idx": cache_batch_idx,
    }  # fmt: skip
    operands = _operands({name: one for name, one in given.items() if one is not None}, over.device)
    kind, arch = kernel_dtype(operands["q"], dtype), over.device.arch
    arrays = {name: _bits(one, "int32" if name in _INTEGERS else kind, arch) for name, one in operands.items()}
    asked = Append(dtype=kind, rope=rope, causal=causal, **arrays)
    try:
        problem = pose(asked, arch)
    except ProblemError as error:
        raise ArgumentError(str(error), kind="shape") from error
    plan = over.plan(problem)
    hip = over.device.hip
    with upload(over.device, host_buffers(pointers(asked), {})) as memory:
        ran = plan.run({name: part.address for name, part in memory.items()})
        plan.finish()
        read = {name: hip.read(memory[name], arrays[name].dtype, arrays[name].shape) for name in ("q", "k", "v")}
    back = {name: _as_given(operands[name], bits, kind, arch) for name, bits in read.items()}
    return Appended(**back, ran=ran)


def _operands(given: Mapping[str, Any], device: Device) -> dict[str, Operand]:
    """Raises ArgumentError, and what :func:`ckpm.attention.arrays.tensors.operand` does."""
    operands = {name: operand(name, one, device) for name, one in given.items()}
    if demand_one_place(list(operands.values())):
        raise ArgumentError(
            "append takes arrays of the host. Of a cache on the device run the plan with addresses.", kind="device"
        )
    for name, one in operands.items():
        if len(one.shape) != _AXES[name]:
            raise ArgumentError(f"{name} is {list(one.shape)}: it must have {_AXES[name]} axes.", kind="shape")
    return operands


def _bits(one: Operand, dtype: str, arch: str) -> NDArray[Any]:
    """An array as a launch is given it: bits of the kernel's dtype."""
    array = encode_operand(one, dtype, arch).array
    assert array is not None, "all are on the host"
    return array if array.dtype.kind in "iu" else array.view({2: np.uint16, 4: np.uint32}[array.itemsize])


def _as_given(one: Operand, bits: NDArray[Any], dtype: str, arch: str) -> NDArray[Any]:
    """Bits in the dtype that the caller's array had."""
    assert one.array is not None, "all are on the host"
    if one.array.dtype.kind == "f" and one.array.itemsize != bits.itemsize:
        return decode(bits, dtype, arch).astype(one.array.dtype)
    return bits.view(one.array.dtype)
