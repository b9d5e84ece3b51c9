"""vLLM's AiterFlashAttention and RocmAiterUnifiedAttention from its package: each test is a case of cases.yaml."""

from __future__ import annotations

import importlib
from types import SimpleNamespace

import pytest
import torch

from tests.callers.backends import vllm_stands as stands
from tests.callers.backends.cases import cases
from tests.callers.backends.checking import check, served_calls
from tests.callers.backends.numbers import Numbers
from tests.callers.missing import Missing

CASES = cases("vllm")


@pytest.mark.parametrize("name", CASES)
def test_vllm(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.ops, "aiter", Missing("torch.ops.aiter"), raising=False)
    case = CASES[name]
    numbers = Numbers(case)
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
    with served_calls() as calls:
        metadata = builder.build(0, common)
        attention.forward(layer, q, k, v, cache, metadata, o)
    check(case, numbers, o, calls, left=case.window - 1 if case.window else -1)
