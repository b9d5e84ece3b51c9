"""Stand-ins for what vLLM's ROCm backends import and are given: a platform, a configuration, a batch, a layer."""

from __future__ import annotations

import contextlib
import importlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch

from tests.callers.aiter_modules import FP8
from tests.callers.backends.cases import Case
from tests.callers.backends.importing import Finder
from tests.callers.backends.numbers import Numbers, shuffled_pages, sums

FLASH = "vllm.v1.attention.backends.rocm_aiter_fa"
UNIFIED = "vllm.v1.attention.backends.rocm_aiter_unified_attn"
LATENT = "vllm.v1.attention.backends.mla.prefill.aiter_flash_attn"
BACKENDS = (FLASH, UNIFIED, LATENT)
_MERGE = "vllm.v1.attention.ops.merge_attn_states"
_CORE = "vllm.v1.attention.backend"
OWN = (
    *BACKENDS,
    _MERGE,
    _CORE,
    "vllm._aiter_ops",
    "vllm.utils.math_utils",
    "vllm.v1.attention.backends.mla.prefill.base",
    "vllm.v1.attention.backends.rocm_attn",
    "vllm.v1.attention.backends.utils",
    "vllm.v1.kv_cache_interface",
    "vllm.v1.kv_cache_layout",
)


def merge_attn_states(*arguments: Any) -> None:
    """Merge by vLLM's own function for CPUs, in the place of its C++."""
    importlib.import_module(_MERGE)._merge_attn_states_torch(*arguments)


def finder(folder: Path) -> Finder:
    """The finder of vLLM's modules in an unpacked package."""
    triton = importlib.import_module("triton")  # only now: it reads at its import that kernels are interpreted
    platform = SimpleNamespace(
        is_rocm=lambda: True, is_cuda=lambda: False, is_cpu=lambda: False, fp8_dtype=lambda: FP8,
        is_fp8_fnuz=lambda: False, dispatch_key="CPU",
    )  # fmt: skip
    members: dict[str, dict[str, Any]] = {
        "vllm.platforms": {"current_platform": platform},
        "vllm.platforms.rocm": {
            "get_cdna_version": lambda: 4, "on_gfx1250": lambda: False, "on_gfx11": lambda: False,
        },
        "vllm.logger": {"init_logger": mock.Mock()},
        "vllm.config": {
            "get_layers_from_vllm_config": lambda config, kind: config.layers,
            "get_current_vllm_config_or_none": lambda: None,
        },
        "vllm.config.cache": {"get_kv_cache_dtype_handler": lambda name: None},
        "vllm.utils.gpu_sync_debug": {"gpu_sync_allowed": contextlib.nullcontext},
        "vllm.utils.torch_utils": {"async_tensor_h2d": lambda data, device: data.clone()},
        "vllm.triton_utils": {"triton": triton, "tl": importlib.import_module("triton.language")},
        "vllm.distributed.parallel_state": {
            "get_dcp_world_size_and_rank": lambda parallel: (1, 0),
            "get_pcp_group": lambda: SimpleNamespace(world_size=1, rank_in_group=0),
        },
        "vllm._custom_ops": {"merge_attn_states": merge_attn_states},
    }  # fmt: skip
    return Finder(folder, ("vllm", "aiter"), OWN, members)


def config(case: Case, implementation: Any) -> SimpleNamespace:
    """The parts of a configuration with one layer that builders of metadata read."""
    heads_q, heads_k = case.heads
    model = SimpleNamespace(
        dtype=torch.bfloat16, get_num_attention_heads=lambda parallel: heads_q, get_head_size=lambda: case.dims[0],
        get_num_kv_heads=lambda parallel: heads_k,
    )  # fmt: skip
    layer = SimpleNamespace(impl=implementation, kv_sharing_target_layer_name=None, kv_cache_update_bypass=False)
    return SimpleNamespace(
        model_config=model, layers={"one": layer}, speculative_config=None,
        parallel_config=SimpleNamespace(decode_context_parallel_size=1),
        cache_config=SimpleNamespace(cache_dtype=case.kv), scheduler_config=SimpleNamespace(max_num_seqs=8),
    )  # fmt: skip


def implementation(backend: Any, case: Case, numbers: Numbers) -> Any:
    """The attention of a layer, of the backend's own class."""
    return backend.get_impl_cls()(
        num_heads=case.heads[0], head_size=case.dims[0], scale=case.dims[0] ** -0.5, num_kv_heads=case.heads[1],
        alibi_slopes=None, sliding_window=case.window or None, kv_cache_dtype="fp8" if case.kv == "fp8" else "auto",
        logits_soft_cap=case.cap or None, sinks=numbers.sinks,
    )  # fmt: skip


def common_metadata(case: Case, numbers: Numbers) -> Any:
    """A batch as vLLM's model runner describes it."""
    pages = shuffled_pages(numbers.all, case.page)
    table = torch.zeros(len(pages), max(map(len, pages)), dtype=torch.int32)
    for row, page_list in zip(table, pages, strict=True):
        row[: len(page_list)] = page_list
    starts, lengths = sums(numbers.new), torch.tensor(numbers.all, dtype=torch.int32)
    return importlib.import_module(_CORE).CommonAttentionMetadata(
        query_start_loc=starts, query_start_loc_cpu=starts, seq_lens=lengths, num_reqs=len(pages),
        num_actual_tokens=sum(numbers.new), max_query_len=max(numbers.new), max_seq_len=max(numbers.all),
        block_table_tensor=table, slot_mapping=torch.zeros(sum(numbers.new), dtype=torch.int64),
        seq_lens_cpu_upper_bound=lengths,
    )  # fmt: skip


def filled_cache(case: Case, numbers: Numbers, attention: Any, table: Any) -> Any:
    """A cache of [page, head, token, K and V], with all tokens of a batch where its table has them."""
    kind = torch.uint8 if case.kv == "fp8" else torch.bfloat16
    cache = torch.zeros(int(table.max()) + 1, case.heads[1], case.page, sum(case.dims), dtype=kind)
    for half, sequences in zip(attention._split_kv_cache(cache), (numbers.k, numbers.v), strict=True):
        for row, sequence in zip(table.long(), sequences, strict=True):
            at = torch.arange(len(sequence))
            half[row[at // case.page], at % case.page] = sequence.view(kind)
    return cache


def latent_prefill(case: Case) -> Any:
    """The backend of an MLA model's prefill. 64 numbers of a head turn with the position."""
    dim, dim_v = case.dims
    return importlib.import_module(LATENT).AiterFlashAttnPrefillBackend(
        num_heads=case.heads[0], scale=dim**-0.5, kv_lora_rank=512, qk_nope_head_dim=dim - 64, qk_rope_head_dim=64,
        v_head_dim=dim_v, vllm_config=None,
    )  # fmt: skip
