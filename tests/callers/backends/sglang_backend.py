"""SGLang's AiterAttnBackend from its package: each test is a case of cases.yaml."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping
from typing import Any
from unittest import mock

import pytest
import torch

from tests.callers.backends import sglang_stands as stands
from tests.callers.backends.cases import Case, cases
from tests.callers.backends.checking import check, served_calls
from tests.callers.backends.numbers import Numbers, sums

CASES = cases("sglang")
SETTINGS = {"_use_fp8_prefill_attn": "SGLANG_AITER_FP8_PREFILL_ATTN", "_use_mla_ps_kernel": "SGLANG_AITER_MLA_PERSIST"}


@pytest.mark.parametrize("name", CASES)
def test_sglang(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES[name]
    for setting, word in case.settings.items():
        monkeypatch.setenv(setting, word)
    upstream = importlib.import_module(stands.BACKEND)
    upstream.get_schedule().page_size = case.page
    # the module reads settings when it is imported, and a backend changes its variables for the backends of later cases
    settings = {variable: stands.is_set(setting, "True") for variable, setting in SETTINGS.items()}
    with mock.patch.dict(vars(upstream), settings):
        run(case, upstream)


def run(case: Case, upstream: Any) -> None:
    """Run a case by the backend of SGLang's module and compare O with the reference."""
    numbers = Numbers(case)
    mode = upstream.ForwardMode.DECODE if case.drive.endswith("decode") else upstream.ForwardMode.EXTEND
    batch = stands.Batch(case, numbers, mode)
    arch = upstream.AttentionArch.MLA if case.drive.startswith("mla") else upstream.AttentionArch.MHA
    backend = upstream.AiterAttnBackend(stands.model_runner(case, batch, arch))
    with served_calls() as calls:
        backend.init_forward_metadata(batch.forward)
        o = DRIVES[case.drive](backend, batch, numbers, stands.layer(case, numbers))
    check(case, numbers, o, calls, left=left_of(case))


def left_of(case: Case) -> int:
    """Keys before a query's own that it sees: unified attention gets one fewer than batch prefill."""
    return case.window - ("unified_attention" in case.calls) if case.window else -1


def forward(
    backend: Any, batch: stands.Batch, numbers: Numbers, layer: Any, method: str = "forward_extend", **options: Any
) -> Any:
    """New tokens after those in the cache."""
    q, k, v = numbers.of_new_tokens()
    return getattr(backend, method)(q, k, v, layer, batch.forward, sinks=numbers.sinks, **options)


def extend_latent_by_chunks(backend: Any, batch: stands.Batch, numbers: Numbers, layer: Any) -> Any:
    """New tokens of an MLA model, then their prefix as one chunk, merged as SGLang's model does it."""
    old = [length - new for length, new in zip(numbers.all, numbers.new, strict=True)]
    batch.forward.__dict__.update(
        mha_return_lse=True, num_prefix_chunks=1, prefix_chunk_idx=0, prefix_chunk_cu_seq_lens=[sums(old)],
        prefix_chunk_seq_lens_cpu=[torch.tensor(old)], prefix_chunk_max_seq_lens=[max(old)],
        prefix_chunk_num_tokens=[sum(old)], prefix_chunk_has_zero_kv=[False],
    )  # fmt: skip
    backend.init_mha_chunk_metadata(batch.forward)
    q, k, v = numbers.of_new_tokens()
    o, lse = backend.forward_extend(q, k, v, layer, batch.forward, save_kv_cache=False)
    batch.forward.attn_attend_prefix_cache = True
    wide = [numbers.wide(at) for at in range(len(old))]
    k, v = (torch.cat([pair[half][:n] for pair, n in zip(wide, old, strict=True)]) for half in (0, 1))
    before, lse_before = backend.forward_extend(q, k, v, layer, batch.forward, save_kv_cache=False)
    merge = importlib.import_module("sglang.kernels.ops.attention.merge_state").merge_state_triton
    return merge(before, lse_before, o, lse)[0]


def decode_in_graph(backend: Any, batch: stands.Batch, numbers: Numbers, layer: Any) -> Any:
    """New tokens with the tables that a graph was captured with, of eight requests."""
    backend.init_cuda_graph_state(8, 8)
    backend.init_forward_metadata_out_graph(batch.forward)
    return forward(backend, batch, numbers, layer, method="forward_decode")


DRIVES: Mapping[str, Callable[..., Any]] = {
    "": forward,
    "decode": functools.partial(forward, method="forward_decode"),
    "graph-decode": decode_in_graph,
    "mla": functools.partial(forward, save_kv_cache=False),
    "mla-chunk": extend_latent_by_chunks,
    "mla-decode": functools.partial(forward, method="forward_decode"),
    "mla-extend": forward,
}
