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
from ckpm.attention.launch.device import Device
from ckpm.attention.launch.encodings import bits_type, decode
from ckpm.attention.launch.launching import host_buffers, upload
from ckpm.attention.launch.plan import FinishedLaunch
from ckpm.base.errors import ArgumentError, ProblemError, demand_type
from ckpm.matrix.problems.problem import Problem

Bits = NDArray[Any]
_AXES = {"q": 4, "knew": 4, "vnew": 4, "k": 4, "v": 4, "seqlens_k": 1, "cos": 2, "sin": 2}
_AXES |= {"block_table": 2, "cache_batch_idx": 1}
_OPTIONAL = ("cos", "sin", "block_table", "cache_batch_idx")
_INTEGERS = ("seqlens_k", "block_table", "cache_batch_idx")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Append:
    """Rows to append to a cache. Tensors contain bits of ``dtype``; the last axis is a head's dim.

    ``q`` is [batch, seqlen_q, nhead_q, dim]. ``knew`` and ``vnew`` are [batch, seqlen_knew, nhead_k, dim].
    ``seqlens_k`` [batch] are the rows that each sequence already has in the cache. The cache, ``k`` and ``v``, is
    [place, row, nhead_k, dim]. A place is a page of ``block_table`` [batch, pages], or a sequence, numbered by
    ``cache_batch_idx`` [batch]. ``rope`` is no, inter or half, with ``cos`` and ``sin`` [position, rotary_dim / 2].
    With ``causal`` each row of Q has its own position, else all have the position of the first new key.
    """

    dtype: str
    q: Bits
    knew: Bits
    vnew: Bits
    k: Bits
    v: Bits
    seqlens_k: NDArray[np.int32]
    rope: str = "no"
    cos: Bits | None = None
    sin: Bits | None = None
    causal: bool = False
    block_table: NDArray[np.int32] | None = None
    cache_batch_idx: NDArray[np.int32] | None = None


def pose(append: Append, arch: str) -> Problem:
    """Return the problem that the tensors pose.

    Raises:
        ProblemError: tensors contradict one another, or the cache or the table of cosines is too small. The C ABI can't
            check the latter.
    """
    a = append
    batch, seqlen_q, nhead_q, hdim_q = a.q.shape
    _, seqlen_knew, nhead_k, hdim_v = a.vnew.shape
    places, rows = a.k.shape[:2]
    shapes = {
        "knew": (batch, seqlen_knew, nhead_k, hdim_q),
        "k": (places, rows, nhead_k, hdim_q),
        "v": (places, rows, nhead_k, hdim_v),
        "vnew": (batch, seqlen_knew, nhead_k, hdim_v),
        "seqlens_k": (batch,),
    }
    rotary_dim = 0
    if a.rope != "no":
        if a.cos is None or a.sin is None:
            raise ProblemError("a rotary embedding needs cosines and sines.")
        rotary_dim = 2 * a.cos.shape[1]
        shapes["sin"] = a.cos.shape
        reached = int(a.seqlens_k.max(initial=0)) + max(seqlen_q if a.causal else 1, seqlen_knew)
        if len(a.cos) < reached:
            raise ProblemError(f"{len(a.cos)} positions of cosines are too few: {reached} are read.")
    if a.cache_batch_idx is not None:
        shapes["cache_batch_idx"] = (batch,)
    if a.block_table is not None:
        shapes["block_table"] = (batch, a.block_table.shape[1])
    for name, shape in shapes.items():
        if (actual := getattr(a, name).shape) != shape:
            raise ProblemError(f"{name} is {list(actual)}, not {list(shape)}.")
    _check_types(a)
    _check_places(a, rows, places, seqlen_knew)
    table = a.block_table
    paged: dict[str, Any] = {} if table is None else {
        "page_size": rows, "pool_pages": places, "kv_table": "vllm", "table_width": table.shape[1],
    }  # fmt: skip
    return Problem(
        family="fwd_appendkv", arch=arch, dtype=a.dtype, batch=batch, seqlen_q=seqlen_q, seqlen_knew=seqlen_knew,
        seqlen_k=rows if table is None else rows * table.shape[1], nhead_q=nhead_q, nhead_k=nhead_k, hdim_q=hdim_q,
        hdim_v=hdim_v, rope=a.rope, rotary_dim=rotary_dim,
        mask="top_left" if a.causal else "no", window_right=0 if a.causal else -1, **paged,
    )  # fmt: skip


def pointers(append: Append) -> dict[str, Bits]:
    """The tensors by the C ABI's names."""
    names = {name: name for name in ("q", "k", "v", "knew", "vnew", "block_table", "cache_batch_idx")}
    names |= {"seqlens_k": "seqlen_k_ptr", "cos": "rotary_cos", "sin": "rotary_sin"}
    tensors = {name: getattr(append, field) for field, name in names.items()}
    return {name: array for name, array in tensors.items() if array is not None}


def _check_types(a: Append) -> None:
    kinds = dict.fromkeys(("q", "knew", "vnew", "k", "v", "cos", "sin"), np.dtype(bits_type(a.dtype)))
    kinds |= dict.fromkeys(("seqlens_k", "block_table", "cache_batch_idx"), np.dtype(np.int32))
    for name, kind in kinds.items():
        array = getattr(a, name)
        if array is not None and array.dtype != kind:
            raise ProblemError(f"{name} is of {array.dtype}, not of {kind}.")


def _check_places(a: Append, rows: int, places: int, seqlen_knew: int) -> None:
    """Refuse rows that don't fit the cache."""
    longest = int(a.seqlens_k.max(initial=0)) + seqlen_knew
    room = rows if a.block_table is None else rows * a.block_table.shape[1]
    if longest > room or int(a.seqlens_k.min(initial=0)) < 0:
        raise ProblemError(f"a sequence of {longest} keys doesn't fit the {room} rows that it has in the cache.")
    ids = a.block_table if a.block_table is not None else a.cache_batch_idx
    if ids is None:
        ids = np.arange(len(a.seqlens_k), dtype=np.int32)
    if ids.size and not 0 <= int(ids.min()) <= int(ids.max()) < places:
        raise ProblemError(f"places {int(ids.min())} to {int(ids.max())} are not all in a cache of {places}.")


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

    Arrays are on the host, with the shapes of ckpm.attention.appending.Append. Floats are encoded in ``dtype``.

    Raises:
        ArgumentError: tensors contradict one another, or the cache or the cosines are too short.
        An error of ckpm.base.errors: see Dispatcher.plan and Plan.run.
    """
    demand_type("rope", rope, str, "no, inter or half")
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
