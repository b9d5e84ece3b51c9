"""New keys and values for a KV cache as bits, the problem that they pose, and the pointers of its launch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ckpm.attention.launch.encodings import bits_type
from ckpm.base.errors import ProblemError
from ckpm.matrix.problems.problem import Problem

Bits = NDArray[Any]


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
