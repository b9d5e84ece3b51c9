"""vLLM's ROCm backends and its MLA prefill from its package: each test is a case of cases.yaml."""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.callers.aiter_modules import FP8
from tests.callers.backends import vllm_stands as stands
from tests.callers.backends.cases import Case, cases
from tests.callers.backends.checking import check, served_calls
from tests.callers.backends.numbers import K_SCALE, Numbers, sums

CASES = cases("vllm")


@pytest.mark.parametrize("name", CASES)
def test_vllm(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.ops, "aiter", importlib.import_module("aiter"), raising=False)
    case = CASES[name]
    numbers = Numbers(case)
    with served_calls() as calls:
        o = {"mla": attend_latent, "mla-decode": decode_latent}.get(case.drive, attend)(case, numbers)
    check(case, numbers, o, calls, left=case.window - 1 if case.window else -1)


def attend(case: Case, numbers: Numbers) -> Any:
    """New tokens after those in a paged cache."""
    if case.drive == "unified":
        backend = importlib.import_module(stands.UNIFIED).RocmAiterUnifiedAttentionBackend
    else:
        backend = importlib.import_module(stands.FLASH).AiterFlashAttentionBackend
    attention = stands.implementation(backend, case, numbers)
    common = stands.common_metadata(case, numbers)
    spec = SimpleNamespace(block_size=case.page)
    builder = backend.get_builder_cls()(spec, ["one"], stands.config(case, attention), torch.device("cpu"))
    cache = stands.filled_cache(case, numbers, attention, common.block_table_tensor)
    layer = SimpleNamespace(layer_name="one", _q_scale=None, _k_scale=numbers.k_scale, _v_scale=numbers.v_scale)
    q, k, v = numbers.of_new_tokens()
    o = torch.empty(len(q), case.heads[0], case.dims[1], dtype=torch.bfloat16)
    if case.kv == "fp8" and getattr(attention, "supports_quant_query_input", False):  # as vLLM's layer before it
        q, layer._q_scale = (q / K_SCALE).to(FP8), torch.tensor([K_SCALE])
    attention.forward(layer, q, k, v, cache, builder.build(0, common), o)
    return o


def attend_latent(case: Case, numbers: Numbers) -> Any:
    """New tokens of an MLA model, and their prefix as one chunk, merged as vLLM's model does it."""
    backend = stands.latent_prefill(case)
    starts, longest = sums(numbers.new), max(numbers.new)
    backend.prepare_metadata(SimpleNamespace(query_start_loc=starts, max_query_len=longest))
    q, k, v = numbers.of_new_tokens()
    old = [length - new for length, new in zip(numbers.all, numbers.new, strict=True)]
    if not any(old):
        return backend.run_prefill_new_tokens(q, k, v, return_softmax_lse=False)
    after, lse_after = backend.run_prefill_new_tokens(q, k, v, return_softmax_lse=True)
    chunk = SimpleNamespace(
        query_start_loc=starts, cu_seq_lens=sums(old), max_query_len=longest, max_seq_len=max(old)
    )  # fmt: skip
    k, v = (
        torch.cat([sequence[:n] for sequence, n in zip(all_of, old, strict=True)]) for all_of in (numbers.k, numbers.v)
    )
    before, lse_before = backend.run_prefill_context_chunk(chunk, q, k, v)
    o = torch.empty_like(after)
    stands.merge_attn_states(o, before, lse_before, after, lse_after)
    return o


def decode_latent(case: Case, numbers: Numbers) -> Any:
    """Absorbed queries over a cache of latents, by the function that vLLM's MLA decode calls."""
    table = stands.common_metadata(case, numbers).block_table_tensor.long()
    latents = torch.cat(numbers.k)[:, 0]
    cache = torch.zeros((int(table.max()) + 1) * case.page, case.dims[0], dtype=torch.float32).to(latents.dtype)
    slots = [
        (row * case.page)[:, None].add(torch.arange(case.page)).flatten()[:length]
        for row, length in zip(table, numbers.all, strict=True)
    ]
    cache.view(torch.uint8)[torch.cat(slots)] = latents.view(torch.uint8)
    q, q_scale = torch.cat(numbers.q), torch.ones(1)
    if case.kv == "fp8":
        q, q_scale = (q / K_SCALE).to(FP8), torch.tensor([K_SCALE])
    o = torch.empty(*q.shape[:2], case.dims[1], dtype=torch.bfloat16)
    importlib.import_module("vllm._aiter_ops")._rocm_aiter_mla_decode_fwd_impl(
        q, cache.view(-1, case.page, case.dims[0]), o, sums(numbers.new), max(numbers.new), sums(numbers.all),
        torch.cat(slots).int(), torch.ones(len(slots), dtype=torch.int32), case.dims[0] ** -0.5,
        q_scale=q_scale, kv_scale=numbers.k_scale,
    )  # fmt: skip
    return o
