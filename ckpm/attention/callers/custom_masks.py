"""FlashInfer's custom masks as a bias of minus infinity, for kernels that add a bias."""

from __future__ import annotations

from typing import Any

import numpy as np

from ckpm.attention.arrays.pytorch import namespace
from ckpm.attention.arrays.tables import lengths_of_list, longest_of
from ckpm.attention.callers.tensors import demand_arrays, read_on_host
from ckpm.base.errors import ArgumentError


def bias_of(
    mask: Any,
    packed: Any,
    tables: tuple[Any, Any, Any, Any],
    page_size: int,
    nhead: int,
    longest: int | None,
    dtype: str,
) -> tuple[Any, int]:
    """A bias [head, query token, key], and its number of keys: minus infinity where the mask hides a key, else 0.

    ``mask`` is a truth value for each query and key of a sequence, one sequence after another. ``packed`` has bits
    instead, the lowest one first; each sequence begins with a byte. ``tables`` are a plan's. For a mask of PyTorch the
    bias has the ``dtype`` of this name and the mask's device. Otherwise it has float32.
    """
    name, source = ("custom_mask", mask) if packed is None else ("packed_custom_mask", packed)
    demand_arrays(**{name: source})
    sums_q, indptr = map(read_on_host, tables[:2])
    last = read_on_host(tables[3]) if page_size > 1 else None
    lengths_q, lengths_k = np.diff(sums_q), lengths_of_list(indptr, tables[2].shape[0], page_size, last)
    sizes = lengths_q * lengths_k
    values = read_on_host(source).reshape(-1)
    if packed is not None:
        sizes = -(-sizes // 8) * 8
        values = np.unpackbits(values.view(np.uint8), bitorder="little")
    if sizes.sum() != values.size:
        raise ArgumentError(f"{name} has {values.size} values, and the lengths give {sizes.sum()}.", kind="shape")
    longest = longest_of("max_sequence_kv", longest or None, lengths_k)
    bias = np.full((lengths_q.sum(), longest), -np.inf, np.float32)
    rows = bias
    for queries, keys, part in zip(lengths_q, lengths_k, np.split(values, np.cumsum(sizes)[:-1]), strict=True):
        rows[:queries, :keys][part[: queries * keys].reshape(queries, keys) != 0] = 0
        rows = rows[queries:]
    head_bias: Any = np.ascontiguousarray(np.broadcast_to(bias, (nhead, *bias.shape)))
    if (torch := namespace(source)) is not np:
        head_bias = torch.from_numpy(head_bias).to(source.device, getattr(torch, dtype))
    return head_bias, bias.shape[1]
