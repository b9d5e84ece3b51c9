"""FlashInfer's cascade attention by its own names (flashinfer/cascade.py, of summer 2026).

All levels use one paged cache. A level is a set of tables: its pages, and the queries that see them.
Levels run one after another, and their results are merged by LSE.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ckpm.attention.arrays.pytorch import namespace
from ckpm.attention.callers.flashinfer import BatchPrefillWithPagedKVCacheWrapper
from ckpm.attention.callers.tensors import demand_values
from ckpm.attention.dispatcher import Dispatcher
from ckpm.base.errors import ArgumentError, demand_type


def merge_state(v_a: Any, s_a: Any, v_b: Any, s_b: Any) -> tuple[Any, Any]:
    """Merge O [query token, head, dim] and base-2 LSE [query token, head] of two sets of keys.

    A set without keys has an LSE of minus infinity. Two such sets give an O of 0.
    """
    demand_values(v_a=v_a, s_a=s_a, v_b=v_b, s_b=s_b)
    shapes = {tuple(v_a.shape[:-1]), tuple(v_b.shape[:-1]), tuple(s_a.shape), tuple(s_b.shape)}
    if len(shapes) > 1 or v_a.shape != v_b.shape:
        raise ArgumentError(
            f"states are of {' and of '.join(str(list(v.shape)) for v in (v_a, s_a, v_b, s_b))}: give O [query token, "
            "head, dim] and LSE [query token, head] of the same queries.",
            kind="shape",
        )
    xp = namespace(v_a)
    largest = xp.maximum(s_a, s_b)
    base = xp.where(xp.isinf(largest), xp.zeros_like(largest), largest)
    weight_a, weight_b = xp.exp2(s_a - base), xp.exp2(s_b - base)
    whole = weight_a + weight_b
    divisor = xp.where(whole == 0, xp.ones_like(whole), whole)
    v = (v_a * weight_a[..., None] + v_b * weight_b[..., None]) / divisor[..., None]
    convert = v.astype if hasattr(v, "astype") else v.to
    return convert(v_a.dtype), xp.where(whole == 0, largest, base + xp.log2(divisor))


def merge_state_in_place(v: Any, s: Any, v_other: Any, s_other: Any, mask: Any = None) -> None:
    """Merge a state into ``v`` and ``s``; with ``mask`` [query token] only where it is true."""
    merged = merge_state(v, s, v_other, s_other)
    for target, source in zip((v, s), merged, strict=True):
        if mask is None:
            target[...] = source
        else:
            target[mask] = source[mask]


def merge_states(v: Any, s: Any) -> tuple[Any, Any]:
    """Merge O and LSE of several sets of keys: ``v`` [query token, set, head, dim], ``s`` [query token, set, head]."""
    demand_values(2, v=v, s=s)
    if v.shape[1] != s.shape[1]:
        raise ArgumentError(f"v has {v.shape[1]} sets of keys, and s has {s.shape[1]}.", kind="shape")
    merged = v[:, 0], s[:, 0]
    for at in range(1, v.shape[1]):
        merged = merge_state(*merged, v[:, at], s[:, at])
    return merged


class MultiLevelCascadeAttentionWrapper:
    """``plan`` once for a batch, then ``run`` for each layer. With ``causal`` the last level has the mask."""

    def __init__(
        self,
        num_levels: int,
        float_workspace_buffer: Any = None,
        kv_layout: str = "NHD",
        use_cuda_graph: bool = False,
        qo_indptr_buf_arr: Any = None,
        paged_kv_indptr_buf_arr: Any = None,
        paged_kv_indices_buf_arr: Any = None,
        paged_kv_last_page_len_buf_arr: Any = None,
        *,
        dispatcher: Dispatcher | None = None,
    ) -> None:
        """Make a BatchPrefillWithPagedKVCacheWrapper for each level, with its buffers."""
        arrays = qo_indptr_buf_arr, paged_kv_indptr_buf_arr, paged_kv_indices_buf_arr, paged_kv_last_page_len_buf_arr
        none = (None,) * num_levels
        self._levels = [
            BatchPrefillWithPagedKVCacheWrapper(
                float_workspace_buffer, kv_layout, use_cuda_graph, *buffers, dispatcher=dispatcher
            )
            for buffers in zip(*(array or none for array in arrays), strict=True)
        ]

    @property
    def is_cuda_graph_enabled(self) -> bool:
        return self._levels[0].is_cuda_graph_enabled

    def reset_workspace_buffer(self, float_workspace_buffer: Any, int_workspace_buffers: Any) -> None:
        """Do nothing: no buffer is used."""

    # fmt: off
    def plan(
        self, qo_indptr_arr: Sequence[Any], paged_kv_indptr_arr: Sequence[Any], paged_kv_indices_arr: Sequence[Any],
        paged_kv_last_page_len: Sequence[Any], num_qo_heads: int, num_kv_heads: int, head_dim: int, page_size: int,
        causal: bool = False, **options: Any,
    ) -> None:
        # fmt: on
        """Plan each level with its tables. ``options`` are passed to each plan."""
        tables = {
            "qo_indptr_arr": qo_indptr_arr, "paged_kv_indptr_arr": paged_kv_indptr_arr,
            "paged_kv_indices_arr": paged_kv_indices_arr, "paged_kv_last_page_len": paged_kv_last_page_len,
        }  # fmt: skip
        for name, of_levels in tables.items():
            demand_type(name, of_levels, list | tuple, "a table of each level")
            if len(of_levels) != len(self._levels):
                raise ArgumentError(f"{name} has {len(of_levels)} tables: give {len(self._levels)}.", kind="type")
        for level, sums, indptr, indices, last in zip(self._levels, *tables.values(), strict=True):
            options["causal"] = causal and level is self._levels[-1]
            level.plan(sums, indptr, indices, last, num_qo_heads, num_kv_heads, head_dim, page_size, **options)

    begin_forward = plan

    def run(self, q: Any, paged_kv_cache: Any) -> Any:
        """Return O [query token, head, dim]."""
        first, *others = [level.run(q, paged_kv_cache, return_lse=True) for level in reversed(self._levels)]
        for state in others:
            first = merge_state(*first, *state)
        return first[0]

    forward = run
