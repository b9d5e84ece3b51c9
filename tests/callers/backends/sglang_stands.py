"""Stand-ins for what SGLang's aiter backend imports and is given: a model, a pool of pages, a batch, a layer."""

from __future__ import annotations

import enum
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from tests.callers.aiter_modules import FP8
from tests.callers.backends.cases import Case
from tests.callers.backends.importing import Finder
from tests.callers.backends.numbers import Numbers, shuffled_pages

BACKEND = "sglang.srt.layers.attention.aiter_backend"
OWN = (
    BACKEND,
    "sglang.kernels.ops.attention.aiter_unified_page_table",
    "sglang.kernels.ops.attention.kv_indices",
    "sglang.kernels.ops.attention.merge_state",
    "sglang.kernels.ops.kvcache.cache_ops",
    "sglang.kernels.ops.quantization.fp8_kernel",
    "sglang.srt.environ",
    "sglang.srt.layers.attention.aiter_mla_gluon",
    "sglang.srt.layers.attention.aiter_utils",
    "sglang.srt.layers.attention.base_attn_backend",
    "sglang.srt.model_executor.forward_batch_info",
)
BACKENDS = (BACKEND,)


class SWAKVPool:
    """A pool with a part for layers with windows; none is made here."""


def is_set(name: str, default: str = "false") -> bool:
    """A setting of the environment, as SGLang reads it."""
    return os.environ.get(name, default).lower() in ("true", "1")


def the_batch(batch: Any, *_: Any, **__: Any) -> Any:
    """The batch itself as the place of new keys and values."""
    return batch


def finder(folder: Path) -> Finder:
    """The finder of SGLang's modules in an unpacked package."""
    parallel = SimpleNamespace(attn_tp_size=1, attn_dcp_size=1)
    spec = SimpleNamespace(
        speculative_num_draft_tokens=None, speculative_num_steps=None, speculative_algorithm=None,
        speculative_attention_mode="prefill",
    )  # fmt: skip
    schedule = SimpleNamespace(page_size=1)
    utils = {
        "is_hip": lambda: True, "is_cuda": lambda: False, "is_gfx95_supported": lambda: True,
        "get_bool_env_var": is_set,
    }  # fmt: skip
    members: dict[str, dict[str, Any]] = {
        "sglang.srt.runtime_context": {
            "get_parallel": lambda: parallel, "get_spec": lambda: spec, "get_schedule": lambda: schedule,
        },
        "sglang.srt.utils": utils,
        "sglang.srt.configs.model_config": {"AttentionArch": enum.Enum("AttentionArch", ["MLA", "MHA"])},
        "sglang.srt.mem_cache.swa_memory_pool": {"SWAKVPool": SWAKVPool},
        "sglang.srt.mem_cache.memory_pool": {"KVWriteLoc": SimpleNamespace(for_layer=the_batch, for_batch=the_batch)},
        "sglang.kernels.ops.attention.unified_attention_3d_mtp": {"reset_verify_attn_plan_cache": lambda: None},
        "sglang.kernels.ops.attention.extend_attention": {"extend_attention_fwd": lambda *_, **__: None},
        "sglang.srt.layers.dp_attention": {"is_dp_attention_enabled": lambda: False},
    }  # fmt: skip
    return Finder(folder, ("sglang", "sgl_kernel", "aiter"), OWN, members)


class Pool:
    """Caches of one layer, [token, head, dim]."""

    def __init__(self, k: Any, v: Any) -> None:
        self.k, self.v = k, v

    def get_key_buffer(self, layer: int) -> Any:
        return self.k

    def get_value_buffer(self, layer: int) -> Any:
        return self.v

    def get_kv_buffer(self, layer: int) -> tuple[Any, Any]:
        return self.k, self.v

    def set_kv_buffer(self, layer: Any, batch: Any, k: Any, v: Any, *scales: Any) -> None:
        """Store the keys and values of a batch's new tokens."""
        for cache, values in ((self.k, k), (self.v, v)):
            cache[batch.out_cache_loc] = values.to(cache.dtype)


class Batch:
    """The requests of a case: the pool with what was computed before, slots for new tokens, SGLang's tables."""

    def __init__(self, case: Case, numbers: Numbers, mode: Any) -> None:
        kind = FP8 if case.kv == "fp8" else torch.bfloat16
        page_lists = shuffled_pages(numbers.all, case.page)
        room = (1 + sum(map(len, page_lists))) * case.page
        slots = [
            (pages[:, None] * case.page + torch.arange(case.page)).flatten()[:length]
            for pages, length in zip(page_lists, numbers.all, strict=True)
        ]
        self.pool = Pool(*(torch.zeros(room, case.heads[1], dim, dtype=kind) for dim in case.dims))
        self.table = torch.zeros(len(slots), max(numbers.all), dtype=torch.int32)
        for at, (row, new) in enumerate(zip(slots, numbers.new, strict=True)):
            self.table[at, : len(row)] = row
            old = len(row) - new
            bits = (pool.view(torch.uint8) if case.kv == "fp8" else pool for pool in (self.pool.k, self.pool.v))
            for cache, values in zip(bits, (numbers.k[at], numbers.v[at]), strict=True):
                cache[row[:old]] = values[:old].view(cache.dtype)
        lengths = torch.tensor(numbers.all)
        old_lengths = [length - new for length, new in zip(numbers.all, numbers.new, strict=True)]
        self.forward = SimpleNamespace(
            forward_mode=mode, batch_size=len(slots), seq_lens=lengths, seq_lens_cpu=lengths,
            seq_lens_sum=sum(numbers.all), req_pool_indices=torch.arange(len(slots)),
            extend_prefix_lens=torch.tensor(old_lengths), extend_prefix_lens_cpu=old_lengths,
            extend_seq_lens=torch.tensor(numbers.new), extend_seq_lens_cpu=numbers.new,
            out_cache_loc=torch.cat([row[-new:] for row, new in zip(slots, numbers.new, strict=True)]),
            encoder_lens=None, spec_info=None, kv_loc_plan=None, attn_attend_prefix_cache=None, mha_return_lse=False,
            input_ids=torch.zeros(sum(numbers.new)), attn_dcp_metadata=None, num_prefix_chunks=0,
        )  # fmt: skip


def model_runner(case: Case, batch: Batch, arch: Any) -> SimpleNamespace:
    """The parts of a model that the backend reads."""
    heads_q, heads_k = case.heads
    config = SimpleNamespace(
        dtype=torch.bfloat16, is_multimodal=False, num_attention_heads=heads_q, head_dim=case.dims[0],
        get_num_kv_heads=lambda size: heads_k, attention_arch=arch, v_head_dim=case.dims[1], context_len=1024,
    )  # fmt: skip
    return SimpleNamespace(
        model_config=config, device="cpu", dtype=torch.bfloat16, kv_cache_dtype=batch.pool.k.dtype,
        req_to_token_pool=SimpleNamespace(req_to_token=batch.table, size=len(batch.table)),
        kv_index_translator=None, token_to_kv_pool=batch.pool, is_draft_worker=False,
        token_to_kv_pool_allocator=SimpleNamespace(get_kvcache=lambda: batch.pool),
        decode_attention_backend_str="", sliding_window_size=None,
    )  # fmt: skip


def layer(case: Case, numbers: Numbers) -> SimpleNamespace:
    """An attention layer of the model."""
    heads_q, heads_k = case.heads
    return SimpleNamespace(
        layer_id=0, tp_q_head_num=heads_q, tp_k_head_num=heads_k, tp_v_head_num=heads_k, qk_head_dim=case.dims[0],
        v_head_dim=case.dims[1], head_dim=case.dims[0], scaling=case.dims[0] ** -0.5, logit_cap=case.cap,
        sliding_window_size=case.window or -1, is_cross_attention=False, k_scale=numbers.k_scale,
        v_scale=numbers.v_scale,
    )  # fmt: skip
