"""Stand-ins for the modules of FlashInfer that its tests import.

Paged prefill and cascades are this project's. The functions that tests compare with (single prefill, the older cascade
wrappers) are computed here in float64, and those that fill caches are plain PyTorch. Anything else skips its test.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch

from ckpm.attention.callers import cascade
from ckpm.attention.callers.flashinfer import BatchPrefillWithPagedKVCacheWrapper
from ckpm.attention.dispatcher import Dispatcher
from ckpm.base.errors import NoKernelError, ProblemError
from tests.callers.missing import Module
from tests.callers.reference import attend

MODULES = (
    *("jit", "jit.core", "jit.xqa", "jit.attention", "jit.attention.variants", "jit.utils", "utils", "prefill"),
    *("cascade", "page", "quantization", "quantization.nvfp4_quantization_utils", "fp4_quantization"),
)


class MissingJITCacheError(Exception):
    """An error of FlashInfer's that its conftest.py catches; nothing raises it here."""


def single_prefill_with_kv_cache(q: Any, k: Any, v: Any, causal: bool = False, **others: Any) -> Any:
    """O as FlashInfer's own single prefill would give it."""
    if used := [name for name, value in others.items() if value not in (None, "NONE", 0, 0.0, "auto", "NHD")]:
        pytest.skip(f"refused: single_prefill_with_kv_cache has no {', '.join(sorted(used))}")
    return attend(q, k, v, causal)[0].to(q.dtype)


def get_seq_lens(indptr: Any, last_page_len: Any, page_size: int) -> Any:
    """Tokens of each sequence of a page table."""
    return ((indptr[1:] - indptr[:-1] - 1).clamp(min=0) * page_size + last_page_len).int()


def get_batch_indices_positions(append_indptr: Any, seq_lens: Any, tokens: int) -> tuple[Any, Any]:
    """The sequence and the position of each token that is appended."""
    counts = append_indptr[1:] - append_indptr[:-1]
    batch = torch.repeat_interleave(torch.arange(len(counts)), counts)
    offset = torch.arange(tokens) - append_indptr[batch]
    return batch.int(), (seq_lens[batch] - counts[batch] + offset).int()


def append_paged_kv_cache(
    k: Any, v: Any, batch: Any, positions: Any, cache: Any, indices: Any, indptr: Any, last_page_len: Any, layout: str
) -> None:
    """Write tokens into a cache of [page, 2, token, head, dim]."""
    size = cache.shape[2]
    pages = indices[(indptr[batch.long()] + positions // size).long()].long()
    for half, values in enumerate((k, v)):
        cache[pages, half, (positions % size).long()] = values


class OlderCascade:
    """The older wrappers of a shared prefix, in float64: keys that are not paged, then each sequence's own pages."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self._tables: tuple[Any, ...] = ()

    def begin_forward(self, *tables: Any, **_: Any) -> None:
        self._tables = tables[:4] if torch.is_tensor(tables[3]) else (None, *tables[:3])

    def forward(self, q: Any, k_shared: Any, v_shared: Any, cache: Any, causal: bool = False) -> Any:
        sums, indptr, indices, last = self._tables
        sums = torch.arange(len(last) + 1) if sums is None else sums
        parts = []
        for at, length in enumerate(get_seq_lens(indptr, last, cache.shape[2]).tolist()):
            pages = cache[indices[indptr[at] : indptr[at + 1]].long()].transpose(1, 2).flatten(0, 1)[:length]
            k, v = (torch.cat((shared, pages[:, half])) for half, shared in enumerate((k_shared, v_shared)))
            parts.append(attend(q[sums[at] : sums[at + 1]], k, v, causal)[0])
        return torch.cat(parts).to(q.dtype)


def _skips_refused(call: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(call)
    def call_or_skip(*args: Any, **named: Any) -> Any:
        try:
            return call(*args, **named)
        except (NoKernelError, ProblemError) as reason:
            pytest.skip(f"refused: {reason}")

    return call_or_skip


def _wrapper(own: Any, dispatcher: Dispatcher) -> type:
    """A wrapper of this project that skips a test whose call is refused."""
    members = {name: _skips_refused(getattr(own, name)) for name in ("plan", "run", "begin_forward", "forward")}
    start = _skips_refused(functools.partialmethod(own.__init__, dispatcher=dispatcher).__get__(None, own))
    return type(own.__name__, (own,), {**members, "__init__": start})


def modules(dispatcher: Dispatcher) -> dict[str, ModuleType]:
    """Stand-ins by name, for sys.modules."""
    whole = Module("flashinfer")
    stand_ins = {name: Module(f"flashinfer.{name}") for name in MODULES}
    for name, module in stand_ins.items():
        parent, _, last = name.rpartition(".")
        setattr(stand_ins[parent] if parent else whole, last, module)
    stand_ins["jit"].MissingJITCacheError = MissingJITCacheError  # type: ignore[attr-defined]
    stand_ins["utils"].__dict__.update(
        has_flashinfer_jit_cache=lambda: True,
        get_compute_capability=lambda device: (9, 5),
        is_sm90a_supported=lambda device: False,
        is_sm12x_supported=lambda device: False,
        GPUArchitectureError=MissingJITCacheError,
    )
    paged = _wrapper(BatchPrefillWithPagedKVCacheWrapper, dispatcher)
    served = {
        "BatchPrefillWithPagedKVCacheWrapper": paged,
        "MultiLevelCascadeAttentionWrapper": _wrapper(cascade.MultiLevelCascadeAttentionWrapper, dispatcher),
        **{name: getattr(cascade, name) for name in ("merge_state", "merge_state_in_place", "merge_states")},
        "single_prefill_with_kv_cache": single_prefill_with_kv_cache,
        "BatchDecodeWithSharedPrefixPagedKVCacheWrapper": OlderCascade,
        "BatchPrefillWithSharedPrefixPagedKVCacheWrapper": OlderCascade,
        "append_paged_kv_cache": append_paged_kv_cache,
        "get_batch_indices_positions": get_batch_indices_positions,
        "get_seq_lens": get_seq_lens,
    }
    for served_module in (whole, stand_ins["prefill"], stand_ins["cascade"], stand_ins["page"]):
        served_module.__dict__.update(served)
    return {"flashinfer": whole, **{module.__name__: module for module in stand_ins.values()}}
