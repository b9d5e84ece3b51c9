"""Arguments of a wrong type in calls by aiter's and FlashInfer's names: they end well or with this project's error."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ckpm.attention.arrays.tensors import OnDevice
from ckpm.attention.callers.aiter import (
    flash_attn_varlen_func,
    mla_decode_fwd,
    mla_prefill_fwd,
    mla_prefill_ps_asm_fwd,
    paged_attention_ragged,
    paged_attention_v1,
)
from ckpm.attention.callers.cascade import MultiLevelCascadeAttentionWrapper, merge_states
from ckpm.attention.callers.flashinfer import BatchPrefillWithPagedKVCacheWrapper
from ckpm.attention.dispatcher import Dispatcher
from ckpm.attention.registry import Registry
from ckpm.base.errors import ArgumentError, CkPrefillError, ProblemError
from tests.unit.attention.fakes import WRONG, built, make_dispatcher

BF16, FP8 = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn


def ints(*numbers: int) -> Any:
    return np.array(numbers, np.int32)


@functools.cache
def dispatcher_of(kernels: str) -> Dispatcher:
    fields: dict[str, tuple[str, dict[str, Any]]] = {
        "pages": ("ckpm", {"dtype": "bf16", "hdim_q": 128, "page_size": 16}),
        "biases": ("aiter", {"dtype": "bf16", "hdim_q": 128, "bias": "bias"}),
        "latents": ("ckpm-extended", {"dtype": "bf16", "hdim_q": 576}),
        "fp8 latents": ("ckpm-serving", {"dtype": "fp8bf16", "hdim_q": 192, "lse": True}),
    }
    upstream, wanted = fields[kernels]
    return make_dispatcher(Registry(built("batch_prefill", upstream, **wanted)))[0]


class Buffer(np.ndarray[Any, Any]):
    """An array that takes attributes, as tensors of PyTorch do."""


ADDRESS = OnDevice(address=4096, shape=(3,), dtype="int32")
SUMS, INDPTR, COUNT = ints(0, 40, 60), ints(0, 70, 95), np.arange(95, dtype=np.int32)
Q, CACHE, ONE_QUERY = np.zeros((60, 4, 128), BF16), np.zeros((9, 16, 2, 128), BF16), np.zeros((2, 4, 128), BF16)
FP8_HEADS, TABLE = np.zeros((60, 4, 192), FP8), np.zeros((2, 5), np.int32)
SIZES: dict[str, Any] = {"num_qo_heads": 4, "num_kv_heads": 2, "q_data_type": "bfloat16"}
DECODE: dict[str, Any] = {
    "out": ONE_QUERY.copy(), "query": ONE_QUERY, "key_cache": CACHE, "value_cache": CACHE, "scale": 0.5,
    "alibi_slopes": None, "kv_cache_dtype": "auto", "kv_cache_layout": "NHD", "logits_soft_cap": 0.0, "k_scale": None,
    "v_scale": None, "workspace_buffer": None,
}  # fmt: skip
LATENT: dict[str, Any] = {
    "q": np.zeros((2, 4, 576), BF16), "kv_buffer": np.zeros((100, 1, 1, 576), BF16), "o": np.zeros((2, 4, 512), BF16),
    "qo_indptr": ints(0, 1, 2), "kv_indptr": INDPTR, "kv_indices": COUNT, "kv_last_page_lens": ints(1, 1),
    "max_seqlen_q": 1, "sm_scale": 0.1, "logit_cap": 0.0,
}  # fmt: skip


def run_masked(**plan: Any) -> Any:
    """FlashInfer's wrapper with a custom mask over pages of 24 tokens, which no kernel has."""
    wrapper = BatchPrefillWithPagedKVCacheWrapper(dispatcher=dispatcher_of("biases"))
    wrapper.plan(**{**SIZES, **plan}, head_dim_qk=128, page_size=24)
    return wrapper.run(Q, np.zeros((5, 2, 24, 2, 128), BF16))


def run_fixed(**plan: Any) -> Any:
    """FlashInfer's wrapper with tables at fixed addresses."""
    buffers = {name: plan.pop(name) for name in tuple(plan) if name.endswith("_buf")}
    wrapper = BatchPrefillWithPagedKVCacheWrapper(
        use_cuda_graph=True, kv_layout=plan.pop("kv_layout"), dispatcher=dispatcher_of("pages"), **buffers
    )
    wrapper.plan(**plan, **SIZES, head_dim_qk=128, page_size=16)
    return wrapper.run(Q, np.zeros((7, 2, 16, 2, 128), BF16))


def run_cascade(**plan: Any) -> Any:
    wrapper = MultiLevelCascadeAttentionWrapper(2, dispatcher=dispatcher_of("pages"))
    wrapper.plan(**plan, **SIZES, head_dim=128, page_size=16)
    return wrapper.run(Q, np.zeros((7, 2, 16, 2, 128), BF16))


def over(kernels: str, function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda **arguments: function(**arguments, dispatcher=dispatcher_of(kernels))


CALLS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "custom mask": (run_masked, {
        "qo_indptr": SUMS, "paged_kv_indptr": ints(0, 3, 5), "paged_kv_indices": COUNT[:5],
        "paged_kv_last_page_len": ints(22, 1),
        "custom_mask": np.ones(40 * 70 + 20 * 25, bool), "packed_custom_mask": None, "window_left": -1,
    }),
    "use_cuda_graph": (run_fixed, {
        "qo_indptr_buf": ints(0, 0, 0), "paged_kv_indptr_buf": ints(0, 0, 0), "paged_kv_indices_buf": COUNT[:9].copy(),
        "paged_kv_last_page_len_buf": ints(0, 0), "kv_layout": "NHD", "qo_indptr": SUMS,
        "paged_kv_indptr": ints(0, 5, 7), "paged_kv_indices": COUNT[:7], "paged_kv_last_page_len": ints(6, 9),
    }),
    "cascade": (run_cascade, {
        "qo_indptr_arr": [ints(0, 60), SUMS], "paged_kv_indptr_arr": [ints(0, 2), ints(0, 2, 4)],
        "paged_kv_indices_arr": [COUNT[:4]] * 2, "paged_kv_last_page_len": [ints(16), ints(6, 9)],
    }),
    "merge_states": (merge_states, {"v": np.zeros((60, 3, 4, 128)), "s": np.zeros((60, 3, 4))}),
    "paged_attention_v1": (over("pages", paged_attention_v1), {
        **DECODE, "block_tables": TABLE, "cu_query_lens": None, "context_lens": ints(70, 25), "max_context_len": 70,
        "sliding_window": 0,
    }),
    "paged_attention_ragged": (over("pages", paged_attention_ragged), {
        **DECODE, "kv_indptr": ints(0, 5, 7), "kv_page_indices": COUNT[:7], "kv_last_page_lens": ints(6, 9),
        "block_size": 16, "max_num_partitions": 1,
    }),
    "mla_decode_fwd": (over("latents", mla_decode_fwd), {**LATENT, "page_size": 1, "q_scale": None, "kv_scale": None}),
    "mla_prefill_fwd": (over("latents", mla_prefill_fwd), LATENT),
    "mla_prefill_ps_asm_fwd": (over("fp8 latents", functools.partial(mla_prefill_ps_asm_fwd, is_causal=True)), {
        "Q": FP8_HEADS, "K": FP8_HEADS, "V": FP8_HEADS[..., :128].copy(), "qo_indptr": SUMS, "kv_indptr": SUMS,
        "kv_page_indices": COUNT[:60], "work_indptr": None, "work_info_set": None, "max_seqlen_q": 40,
        "softmax_scale": 0.1, "splitData": None, "splitLse": np.zeros((256, 4), np.float32).view(Buffer),
        "output": np.zeros_like(Q), "q_scale": None, "k_scale": None, "v_scale": None,
    }),
    "flash_attn_varlen_func": (over("pages", flash_attn_varlen_func), {
        "q": Q, "k": CACHE, "v": CACHE, "cu_seqlens_q": SUMS, "cu_seqlens_k": INDPTR, "max_seqlen_q": 40,
        "max_seqlen_k": 80, "min_seqlen_q": 0, "block_table": TABLE,
    }),
}  # fmt: skip


@pytest.mark.parametrize(("call", "name"), [(call, name) for call, (_, names) in CALLS.items() for name in names])
def test_caller_argument_of_any_type_ends_well_or_with_own_error(call: str, name: str) -> None:
    function, arguments = CALLS[call]
    function(**arguments)
    for value in WRONG:
        with contextlib.suppress(CkPrefillError):
            function(**{**arguments, name: value})


@pytest.mark.parametrize(
    ("call", "changes", "message"),
    [
        ("custom mask", {"max_sequence_kv": 69}, "max_sequence_kv 69 is less than the longest sequence, 70"),
        ("custom mask", {"max_sequence_kv": "70"}, "max_sequence_kv is '70': give the keys of the longest sequence"),
        ("custom mask", {"num_qo_heads": None}, "num_qo_heads is None: give a number of heads"),
        ("custom mask", {"paged_kv_last_page_len": None}, "paged_kv_last_page_len is of type NoneType, without axes"),
        ("custom mask", {"paged_kv_indices": COUNT[:4]}, "doesn't ascend from 0 to at most 4 entries"),
        ("flash_attn_varlen_func", {"cu_seqlens_k": ADDRESS}, "cu_seqlens_k: no part of a raw address"),
        ("mla_decode_fwd", {"kv_buffer": CACHE[0]}, r"kv_buffer is \[16, 2, 128\]: give an array of 4 axes"),
        ("cascade", {"paged_kv_indptr_arr": []}, "paged_kv_indptr_arr has 0 tables: give 2"),
        ("merge_states", {"s": np.zeros((60, 2, 4))}, "v has 3 sets of keys, and s has 2"),
    ],
)
def test_wrong_argument_of_a_caller_is_named(call: str, changes: dict[str, Any], message: str) -> None:
    function, arguments = CALLS[call]
    with pytest.raises(ArgumentError, match=message):
        function(**{**arguments, **changes})


@pytest.mark.parametrize(
    ("call", "changes", "message"),
    [
        ("paged_attention_v1", {"kv_cache_layout": "NDH"}, "kv_cache_layout 'NDH' is none of NHD, HND"),
        ("use_cuda_graph", {"kv_layout": "NDH"}, "kv_layout 'NDH' is none of NHD, HND"),
        ("use_cuda_graph", {"paged_kv_last_page_len": ints(6, 9, 1)}, "3 last pages: .* have exactly 2"),
    ],
)
def test_argument_beyond_a_caller_s_choices_is_refused(call: str, changes: dict[str, Any], message: str) -> None:
    function, arguments = CALLS[call]
    with pytest.raises(ProblemError, match=message):
        function(**{**arguments, **changes})
