"""aiter's decode and fp8 latent prefill, sink logits without a mask, FlashInfer's pages of odd sizes, at the C ABI."""

from __future__ import annotations

import ctypes
import dataclasses
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ckpm.attention.arrays.tables import Pages
from ckpm.attention.arrays.tensors import OnDevice
from ckpm.attention.call import fmha
from ckpm.attention.callers.aiter import (
    flash_attn_varlen_fp8_pertensor_func,
    flash_attn_varlen_func,
    mla_decode_fwd,
    mla_prefill_ps_asm_fwd,
    mla_reduce_v1,
    paged_attention_ragged,
    paged_attention_v1,
    unified_attention,
)
from ckpm.attention.callers.flashinfer import BatchPrefillWithPagedKVCacheWrapper
from ckpm.attention.callers.single_tokens import token_view
from ckpm.attention.registry import Registry
from ckpm.base.errors import ArgumentError, ProblemError
from ckpm.kernels.abi import Mask
from tests.unit.attention.fakes import FakeDevice, built, make_dispatcher, make_writer, prefill

BF16, FP8 = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn
ONE = np.ones(1, np.float32)


def ints(address: int, count: int) -> list[int]:
    return list((ctypes.c_int32 * count).from_address(address))


def seen_by(device: FakeDevice, **tables: int) -> dict[str, list[int]]:
    """The numbers at a launch's pointers of these names, with their count."""
    numbers: dict[str, list[int]] = {}

    def answer(arguments: Any) -> int:
        numbers.update({name: ints(getattr(arguments, name), count) for name, count in tables.items()})
        return 0

    device.answer = answer
    return numbers


def of_blocks(**arguments: Any) -> tuple[Any, dict[str, list[int]]]:
    """The launch of aiter's decode over a block table, and its tables."""
    dispatcher, device = make_dispatcher(
        Registry(built("batch_prefill", "ckpm", dtype="bf16", hdim_q=128, page_size=16))
    )
    tables = seen_by(device, seqstart_q=4, seqlen_k_ptr=3)
    q, pool = np.zeros((3, 4, 128), BF16), np.zeros((12, 16, 2, 128), BF16)
    arguments = {
        "key_cache": pool,
        "value_cache": pool,
        "kv_cache_layout": "NHD",
        "kv_cache_dtype": "auto",
        **arguments,
    }
    out = np.zeros_like(q)
    lengths, table = np.array([70, 25, 9], np.int32), np.zeros((3, 5), np.int32)
    done = paged_attention_v1(
        out, None, q, scale=0.5, block_tables=table, cu_query_lens=np.arange(3, dtype=np.int32), context_lens=lengths,
        max_context_len=70, alibi_slopes=None, logits_soft_cap=0.0, k_scale=ONE, v_scale=ONE,
        dispatcher=dispatcher, **arguments,
    )  # fmt: skip
    assert done is out
    return device.launched[0], tables


@pytest.mark.parametrize(("window", "left"), [(0, -1), (1, 0), (24, 23)])
def test_decode_over_a_block_table_has_one_query_a_sequence(window: int, left: int) -> None:
    launch, tables = of_blocks(sliding_window=window)
    assert tables == {"seqstart_q": [0, 1, 2, 3], "seqlen_k_ptr": [70, 25, 9]}
    assert (launch.max_seqlen_q, launch.page_size, launch.kv_table, launch.scale_s) == (1, 16, 1, 0.5)
    assert (launch.mask_type, launch.window_left, launch.window_right) == (Mask.BOTTOM_RIGHT, left, 0)


def test_decode_of_hnd_caches_steps_from_head_to_head() -> None:
    pool = np.zeros((12, 2, 16, 128), BF16)
    launch, _ = of_blocks(key_cache=pool, value_cache=pool, kv_cache_layout="HND")
    assert (launch.nhead_k, launch.page_size, launch.num_total_pages) == (2, 16, 12)


def test_decode_over_a_list_reads_an_fp8_cache_with_its_scales() -> None:
    dispatcher, device = make_dispatcher(
        Registry(built("batch_prefill", "ckpm-extended", dtype="bf16kvfp8", page_size=1))
    )
    tables = seen_by(device, seqstart_q=3, kv_indptr=3)
    pool, q = np.zeros((100, 1, 2, 128), FP8), np.zeros((2, 4, 128), BF16)
    out, scale = np.zeros_like(q), np.full(1, 0.5, np.float32)
    done = paged_attention_ragged(
        out, None, q, pool, pool, 0.25, np.array([0, 70, 95], np.int32), np.arange(95, dtype=np.int32),
        np.ones(2, np.int32), 1, 4, None, "fp8_e4m3", "NHD", 30.0, scale, scale, None, 256, dispatcher=dispatcher,
    )  # fmt: skip
    launch = device.launched[0]
    assert done is out
    assert tables == {"seqstart_q": [0, 1, 2], "kv_indptr": [0, 70, 95]}
    assert (launch.mask_type, launch.window_left, launch.logits_soft_cap, launch.page_size) == (
        Mask.BOTTOM_RIGHT,
        -1,
        30.0,
        1,
    )
    assert launch.k_descale


@pytest.mark.parametrize("kind", [FP8, BF16])
def test_decode_over_fp8_latents_widens_an_fp8_q(kind: Any) -> None:
    dispatcher, device = make_dispatcher(
        Registry(built("batch_prefill", "ckpm-extended", dtype="bf16kvfp8", hdim_q=576))
    )
    q, o, cache = np.full((2, 4, 576), 3, kind), np.zeros((2, 4, 512), BF16), np.zeros((100, 1, 1, 576), FP8)
    tables = seen_by(device, q=4 * 576)
    sums, scale = np.array([0, 1, 2], np.int32), np.full(1, 0.5, np.float32)
    mla_decode_fwd(
        q, cache, o, sums, np.array([0, 70, 95], np.int32), np.arange(95, dtype=np.int32), np.ones(2, np.int32), 1,
        sm_scale=0.1, q_scale=scale if kind is FP8 else None, kv_scale=scale, dispatcher=dispatcher,
    )  # fmt: skip
    assert set(np.array(tables["q"], np.int32).view(BF16).astype(float)) == {1.5 if kind is FP8 else 3.0}
    launch = device.launched[0]
    assert (launch.hdim_q, launch.hdim_v, launch.scale_s) == (576, 512, np.float32(0.1))
    assert launch.k_descale


@pytest.mark.parametrize("kind", [FP8, np.uint8])
def test_unified_decode_takes_an_fp8_q_times_its_scale(kind: Any) -> None:
    """Bits of fp8, whose call needs a dtype, are taken as they are."""
    fields: dict[str, Any] = {"hdim_q": 128, "page_size": 16, "kv_table": "vllm"}
    kinds = [built("batch_prefill", "ckpm-serving", dtype=dtype, **fields) for dtype in ("bf16kvfp8", "fp8bf16")]
    dispatcher, device = make_dispatcher(Registry(sum(kinds, ())))
    tables = seen_by(device, q=1)
    dtype: Any = {} if kind is FP8 else {"dtype": "fp8bf16"}
    q, pool, scale = np.full((3, 4, 128), 3, kind), np.zeros((12, 16, 2, 128), FP8), np.full((1, 1), 0.5, np.float32)
    unified_attention(
        q, pool, pool, np.zeros((3, 4, 128), BF16), np.arange(4, dtype=np.int32), 1, np.array([70, 25, 9], np.int32),
        80, 0.5, True, (-1, -1), np.zeros((3, 5), np.int32), 0.0, scale, scale, scale,
        dispatcher=dispatcher, **dtype,
    )  # fmt: skip
    read = np.array(tables["q"], np.int32)
    assert read.view(BF16)[0] == 1.5 if kind is FP8 else read.view(np.uint8)[0] == 3
    assert device.launched[0].data_type == (b"bf16kvfp8" if kind is FP8 else b"fp8bf16")


def test_batch_invariant_fp8_q_stays_in_fp8() -> None:
    fields: dict[str, Any] = {"hdim_q": 128, "page_size": 16, "kv_table": "vllm"}
    kinds = [built("batch_prefill", "ckpm-serving", dtype=dtype, **fields) for dtype in ("bf16kvfp8", "fp8bf16")]
    for order, dtype in (("upstream", b"bf16kvfp8"), ("batch-invariant", b"fp8bf16")):
        dispatcher, device = make_dispatcher(Registry(sum(kinds, ())), order=order)
        q, pool = np.zeros((3, 4, 128), FP8), np.zeros((12, 16, 2, 128), FP8)
        unified_attention(
            q, pool, pool, np.zeros((3, 4, 128), BF16), np.arange(4, dtype=np.int32), 1,
            np.array([70, 25, 9], np.int32), 80, 0.5, True, (-1, -1), np.zeros((3, 5), np.int32), 0.0, ONE, ONE, ONE,
            dispatcher=dispatcher,
        )  # fmt: skip
        assert device.launched[0].data_type == dtype
    dispatcher, device = make_dispatcher(
        Registry(kinds[0]), order="batch-invariant"
    )  # no fp8 Q is served, in any batch
    unified_attention(
        q, pool, pool, np.zeros((3, 4, 128), BF16), np.arange(4, dtype=np.int32), 1, np.array([70, 25, 9], np.int32),
        80, 0.5, True, (-1, -1), np.zeros((3, 5), np.int32), 0.0, ONE, ONE, ONE, dispatcher=dispatcher,
    )  # fmt: skip
    assert device.launched[0].data_type == b"bf16kvfp8"


@pytest.mark.parametrize(("dtype", "causal", "pages"), [("fp8bf16", True, 1), ("fp8bf16", False, 0), ("bf16", True, 0)])
def test_causal_fp8_keys_become_pages_where_ours_serve(dtype: str, causal: bool, pages: int) -> None:
    kernels = built("batch_prefill", "ckpm-serving", dtype=dtype, hdim_q=256, page_size=1)
    dispatcher, device = make_dispatcher(Registry(kernels + built("fwd", dtype="fp8bf16", hdim_q=256, mode="group")))
    q, sums = np.zeros((300, 4, 256), FP8), np.array([0, 100, 300], np.int32)
    flash_attn_varlen_fp8_pertensor_func(
        q, q[:, :2], q[:, :2], ONE, ONE, ONE, sums, sums, 200, 200, causal=causal, dispatcher=dispatcher
    )
    assert getattr(device.launched[0], "page_size", 0) == pages


def test_latents_without_a_mask_take_an_open_one() -> None:
    """Profile serving has no kernel without a mask for fp8 latents."""
    dispatcher, device = make_dispatcher(
        Registry(built("batch_prefill", "ckpm-serving", dtype="bf16kvfp8", hdim_q=576))
    )
    q, o, cache = np.zeros((2, 4, 576), BF16), np.zeros((2, 4, 512), BF16), np.zeros((100, 1, 1, 576), FP8)
    mla_decode_fwd(
        q, cache, o, np.array([0, 1, 2], np.int32), np.array([0, 70, 95], np.int32), np.arange(95, dtype=np.int32),
        np.ones(2, np.int32), 1, sm_scale=0.1, kv_scale=np.ones(1, np.float32), causal=False, dispatcher=dispatcher,
    )  # fmt: skip
    launch = device.launched[0]
    assert (launch.mask_type, launch.window_left, launch.window_right) == (Mask.BOTTOM_RIGHT, -1, -1)


class Buffer(np.ndarray[Any, Any]):
    """An array that takes attributes, as tensors of PyTorch do."""


def of_latents(causal: bool = True, **arguments: Any) -> tuple[Any, Any, Any]:
    """O, the buffer of LSE and the launch of aiter's fp8 prefill of latent attention."""
    dispatcher, device = make_dispatcher(
        Registry(built("batch_prefill", "ckpm-serving", dtype="fp8bf16", hdim_q=192, page_size=1, lse=True))
    )
    device.answer = make_writer(lse=np.arange(4 * 60, dtype=np.float32).reshape(4, 60))
    q, k, v = np.zeros((60, 4, 192), FP8), np.zeros((60, 4, 192), FP8), np.zeros((60, 4, 128), FP8)
    sums = np.array([0, 40, 60], np.int32)
    parts = np.zeros((256, 4), np.float32).view(Buffer)
    arguments = {"Q": q, "output": np.zeros((60, 4, 128), BF16), "splitLse": parts, **arguments}
    mla_prefill_ps_asm_fwd(
        K=k, V=v, qo_indptr=sums, kv_indptr=sums, kv_page_indices=np.arange(60, dtype=np.int32), work_indptr=None,
        work_info_set=None, max_seqlen_q=40, softmax_scale=0.1, is_causal=causal, splitData=None,
        q_scale=ONE, k_scale=ONE, v_scale=ONE, dispatcher=dispatcher, **arguments,
    )  # fmt: skip
    return arguments["output"], parts, device.launched[0]


@pytest.mark.parametrize("more", [(0,), (np.int32(0),), ()])  # an older aiter's reduction has one argument less
@pytest.mark.parametrize(("causal", "mask"), [(True, Mask.BOTTOM_RIGHT), (False, Mask.NONE)])
def test_fp8_latent_prefill_keeps_lse_for_the_reduction(causal: bool, mask: Mask, more: tuple[int, ...]) -> None:
    o, parts, launch = of_latents(causal)
    assert (launch.mask_type, launch.hdim_q, launch.hdim_v, launch.page_size, launch.seqlen_k) == (
        mask,
        192,
        128,
        1,
        40,
    )
    lse = np.zeros((60, 4), np.float32)
    rest: Any = (256, *more, o, lse)
    mla_reduce_v1(None, parts, None, None, None, *rest)
    assert (lse == np.arange(4 * 60, dtype=np.float32).reshape(4, 60).T).all()


def test_reduction_of_parts_that_are_merged_already_is_refused() -> None:
    o, parts, _ = of_latents()
    mla_reduce_v1(None, parts, None, None, None, 256, 0, o)
    with pytest.raises(ProblemError, match="merges no parts of aiter's own kernels here"):
        mla_reduce_v1(None, parts, None, None, None, 256, 0, o)


@pytest.mark.parametrize(
    ("call", "arguments", "message"),
    [
        (of_blocks, {"mtp": 2}, "paged_attention_v1 has no mtp here"),
        (of_blocks, {"fp8_out_scale": ONE}, "has no fp8_out_scale here"),
        (of_blocks, {"kv_cache_dtype": "fp8_e5m2"}, "has no cache in e5m2 here"),
        (of_latents, {"Q": np.zeros((60, 4, 192), BF16)}, "has no Q of 16 bits here"),
        (of_latents, {"output": np.zeros((60, 4, 128), np.float16)}, "has no output of another dtype than bf16 here"),
        (of_latents, {"splitLse": np.zeros((256, 4), np.float32)}, "has no splitLse without attributes here"),
    ],
)
def test_call_with_unserved_parameter_is_refused(call: Any, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ProblemError, match=message):
        call(**arguments)


def test_window_without_a_mask_is_refused_with_sink_logits() -> None:
    dispatcher, _ = make_dispatcher(
        Registry(built("batch_prefill", "ckpm-serving", dtype="bf16", hdim_q=128, page_size=1))
    )
    q, k, sums = np.zeros((60, 4, 128)), np.zeros((60, 1, 2, 128)), np.array([0, 40, 60], np.int32)
    pages = Pages(indices=np.arange(60, dtype=np.int32), indptr=sums)
    with pytest.raises(ProblemError, match="a window or sink tokens need a mask"):
        fmha(
            q, k, k, dtype="bf16", cu_seqlens_q=sums, pages=pages, window=(24, 0), sink_logits=np.zeros(4, np.float32),
            dispatcher=dispatcher,
        )  # fmt: skip


def test_sink_logits_without_a_mask_take_an_open_one() -> None:
    dispatcher, device = make_dispatcher(
        Registry(built("batch_prefill", "ckpm-serving", dtype="bf16", hdim_q=128, page_size=1))
    )
    q, k, sums = np.zeros((60, 4, 128)), np.zeros((60, 2, 128)), np.array([0, 40, 60], np.int32)
    flash_attn_varlen_func(
        q, k, k, sums, sums, 40, 40, sink_ptr=np.zeros(4, np.float32), dtype="bf16", dispatcher=dispatcher
    )
    launch = device.launched[0]
    assert (launch.mask_type, launch.window_left, launch.window_right) == (Mask.BOTTOM_RIGHT, -1, -1)
    assert launch.sink


SUMS, INDPTR = np.array([0, 2, 5], np.int32), np.array([0, 2, 5], np.int32)
PAGES, LAST = np.array([3, 0, 4, 1, 5], np.int32), np.array([2, 5], np.int32)
# tokens of both sequences: pages 3 (5 tokens) and 0 (2); pages 4 and 1 (5 each) and 5 (5)
PLACES = [(3, t) for t in range(5)] + [(0, 0), (0, 1)] + [(page, t) for page in (4, 1, 5) for t in range(5)]


@pytest.mark.parametrize(("together", "multiple"), [(True, 10), (False, 5)])
def test_pages_of_five_tokens_become_a_list_of_tokens(together: bool, multiple: int) -> None:
    dispatcher, device = make_dispatcher(prefill())
    tables = seen_by(device, kv_indptr=3, kv_page_indices=len(PLACES))
    wrapper = BatchPrefillWithPagedKVCacheWrapper(None, dispatcher=dispatcher)
    wrapper.plan(SUMS, INDPTR, PAGES, LAST, 4, 2, 128, 5, causal=True, q_data_type="bfloat16")
    cache = np.zeros((6, 2, 5, 2, 128), BF16)
    caches: Any = cache if together else (cache[:, 0].copy(), cache[:, 1].copy())
    assert wrapper.run(np.zeros((5, 4, 128), BF16), caches).shape == (5, 4, 128)
    launch = device.launched[0]
    assert (launch.page_size, launch.seqlen_k, launch.num_total_pages) == (1, 15, 5 * multiple + 5)
    assert tables["kv_indptr"] == [0, 7, 22]
    assert tables["kv_page_indices"] == [page * multiple + token for page, token in PLACES]


def test_token_view_has_the_elements_of_the_pages() -> None:
    cache = np.arange(6 * 2 * 5 * 2 * 8).reshape(6, 2, 5, 2, 8)
    for half in (0, 1):
        view, multiple = token_view(cache[:, half])
        for page, token in PLACES:
            assert (view[page * multiple + token, 0] == cache[page, half, token]).all()
    tensor = OnDevice(address=64, shape=(6, 5, 2, 8), dtype="bf16", strides=(160, 16, 8, 1))
    view, multiple = token_view(tensor)
    assert (view, multiple) == (dataclasses.replace(tensor, shape=(55, 1, 2, 8), strides=(16, 16, 8, 1)), 10)


@pytest.mark.parametrize("strides", [(80, 8, 40, 1), (81, 16, 8, 1)])
def test_token_view_of_other_layouts_is_refused(strides: tuple[int, ...]) -> None:
    with pytest.raises(ProblemError, match="Give an NHD cache"):
        token_view(OnDevice(address=64, shape=(6, 5, 2, 8), dtype="bf16", strides=strides))


def test_pages_of_five_tokens_with_wrong_tables_are_refused() -> None:
    wrapper = BatchPrefillWithPagedKVCacheWrapper()
    with pytest.raises(ArgumentError, match=r"last_page_lens \[2, 6\] are not from 1 to the 5 tokens"):
        wrapper.plan(SUMS, INDPTR, PAGES, np.array([2, 6]), 4, 2, 128, 5, q_data_type="bfloat16")
    buffers: list[Any] = [np.zeros(size, np.int32) for size in (3, 3, 9, 2)]
    captured = BatchPrefillWithPagedKVCacheWrapper(None, "NHD", True, *buffers)
    with pytest.raises(ProblemError, match="plan has no page_size 5 with use_cuda_graph here"):
        captured.plan(SUMS, INDPTR, PAGES, LAST, 4, 2, 128, 5, q_data_type="bfloat16")
