"""New keys and values for a KV cache on a device: uploaded, appended by a kernel, Q and the cache read back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ckpm.attention.launch.appendkv_harness import AppendKvArguments
from ckpm.attention.launch.c_abi import Launch, Library, Status
from ckpm.attention.launch.encodings import bits_type
from ckpm.attention.launch.fwd_launching import uploaded
from ckpm.attention.launch.hip_api import HipApi
from ckpm.base.errors import ProblemError

Bits = NDArray[Any]
ROPES = {"no": 0, "inter": 1, "half": 2}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Append:
    """What to append where. Tensors hold bits of ``dtype``, the last axis being a head's dim.

    ``q`` [batch, seqlen_q, nhead_q, dim], ``knew`` and ``vnew`` [batch, seqlen_knew, nhead_k, dim]; ``seqlens_k``
    [batch] rows of each sequence are in the cache before. The cache, ``k`` and ``v``, is [place, row, nhead_k, dim]:
    a place is a page of ``block_table`` [batch, pages], or a sequence, the one that ``cache_batch_idx`` [batch] says.
    ``rope`` is no, inter or half, with ``cos`` and ``sin`` [position, rotary_dim / 2]; with ``causal`` each row of Q
    has a position of its own, else all have that of the first new key.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Appended:
    """Q and the cache after the launch, or as they were if it was refused."""

    launch: Launch
    q: Bits
    k: Bits
    v: Bits


def fields(append: Append) -> dict[str, int | str]:
    """Sizes, strides (in elements) and switches of a launch.

    Raises:
        ProblemError: tensors contradict one another, or the cache or the table of cosines is too small for what is
            appended, which the C ABI can't see.
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
        if (given := getattr(a, name).shape) != shape:
            raise ProblemError(f"{name} is {list(given)}, not {list(shape)}.")
    _check_types(a)
    _check_places(a, rows, places, seqlen_knew)
    numbers: dict[str, int | str] = {
        "data_type": a.dtype, "seqlen_q": seqlen_q, "seqlen_knew": seqlen_knew, "batch": batch, "hdim_q": hdim_q,
        "hdim_v": hdim_v, "nhead_q": nhead_q, "nhead_k": nhead_k, "rotary_dim": rotary_dim, "rope_type": ROPES[a.rope],
        "has_mask": int(a.causal), "is_v_rowmajor": 1,
    }  # fmt: skip
    if a.block_table is not None:
        numbers |= {"page_block_size": rows, "batch_stride_block_table": a.block_table.shape[1]}
    for name in ("q", "k", "knew", "v", "vnew"):
        _, length, heads, hdim = getattr(a, name).shape
        numbers |= {f"stride_{name}": heads * hdim, f"nhead_stride_{name}": hdim}
        numbers[f"batch_stride_{name}"] = length * heads * hdim
    return numbers


def _check_types(a: Append) -> None:
    kinds = dict.fromkeys(("q", "knew", "vnew", "k", "v", "cos", "sin"), np.dtype(bits_type(a.dtype)))
    kinds |= dict.fromkeys(("seqlens_k", "block_table", "cache_batch_idx"), np.dtype(np.int32))
    for name, kind in kinds.items():
        array = getattr(a, name)
        if array is not None and array.dtype != kind:
            raise ProblemError(f"{name} is of {array.dtype}, not of {kind}.")


def _check_places(a: Append, rows: int, places: int, seqlen_knew: int) -> None:
    """What is written lies in the cache."""
    longest = int(a.seqlens_k.max(initial=0)) + seqlen_knew
    room = rows if a.block_table is None else rows * a.block_table.shape[1]
    if longest > room or int(a.seqlens_k.min(initial=0)) < 0:
        raise ProblemError(f"a sequence of {longest} keys doesn't fit the {room} rows that it has in the cache.")
    ids = a.block_table if a.block_table is not None else a.cache_batch_idx
    if ids is None:
        ids = np.arange(len(a.seqlens_k), dtype=np.int32)
    if ids.size and not 0 <= int(ids.min()) <= int(ids.max()) < places:
        raise ProblemError(f"places {int(ids.min())} to {int(ids.max())} are asked for in a cache of {places}.")


def run_append(hip: HipApi, library: Library, append: Append) -> Appended:
    """Launch what dispatch chooses.

    Raises:
        ProblemError: see :func:`fields`.
        HipError: memory ran out, or the device faulted.
    """
    numbers = fields(append)
    given = {"q": append.q, "k": append.k, "v": append.v, "knew": append.knew, "vnew": append.vnew}
    more = {
        "seqlen_k_ptr": append.seqlens_k,
        "rotary_cos": append.cos,
        "rotary_sin": append.sin,
        "block_table": append.block_table,
        "cache_batch_idx": append.cache_batch_idx,
    }
    given |= {name: array for name, array in more.items() if array is not None}
    with uploaded(hip, given, {}) as memory:
        launch = library.launch(AppendKvArguments(**numbers, **{name: part.address for name, part in memory.items()}))
        if launch.status == Status.OK:
            hip.synchronize()
        q, k, v = (hip.read(memory[name], given[name].dtype, given[name].shape) for name in ("q", "k", "v"))
    return Appended(launch=launch, q=q, k=k, v=v)
