"""Values of aiter's and FlashInfer's parameters at the C ABI, and parameters that are refused instead of ignored."""

from __future__ import annotations

import ctypes
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ckpm.attention.arrays.tensors import OnDevice
from ckpm.attention.callers.aiter import (
    flash_attn_varlen_fp8_pertensor_func,
    flash_attn_varlen_func,
    mha_batch_prefill_func,
    mla_decode_fwd,
    mla_prefill_fwd,
    unified_attention,
)
from ckpm.attention.callers.cascade import (
    MultiLevelCascadeAttentionWrapper,
    merge_state,
    merge_state_in_place,
    merge_states,
)
from ckpm.attention.callers.flashinfer import BatchPrefillWithPagedKVCacheWrapper
from ckpm.attention.callers.tensors import add_page_axis, swap_axes
from ckpm.attention.dispatcher import Dispatcher
from ckpm.attention.launch.plan import LaunchPlan
from ckpm.attention.registry import Registry
from ckpm.base.errors import ArgumentError, ProblemError
from ckpm.kernels.abi import Mask
from tests.unit.attention.fakes import FakeDevice, built, fp8_prefill, make_dispatcher, make_writer, prefill

SUMS, INDPTR = np.array([0, 40, 60], np.int32), np.array([0, 70, 95], np.int32)
INDICES = np.arange(95, dtype=np.int32)
Q, K = np.zeros((60, 4, 128)), np.zeros((100, 2, 128))


def run_aiter(dispatcher: Dispatcher, **arguments: Any) -> Any:
    arguments = {"q": Q, "k": K, "v": K, "kv_indptr": INDPTR, "kv_page_indices": INDICES, "dtype": "bf16", **arguments}
    return mha_batch_prefill_func(
        cu_seqlens_q=SUMS, max_seqlen_q=40, max_seqlen_k=70, dispatcher=dispatcher, **arguments
    )


@pytest.mark.parametrize(
    ("options", "mask"),
    [
        ({}, (Mask.NONE, -1, -1)),
        ({"causal": True}, (Mask.BOTTOM_RIGHT, -1, 0)),
        ({"window_size": (9, 3)}, (Mask.BOTTOM_RIGHT, 9, 3)),
        ({"window_size": (9, -1), "causal": True}, (Mask.BOTTOM_RIGHT, 9, 0)),
    ],
)
def test_aiter_s_masks_are_ck_s(options: dict[str, Any], mask: tuple[int, int, int]) -> None:
    dispatcher, device = make_dispatcher(prefill())
    run_aiter(dispatcher, **options)
    launch = device.launched[0]
    assert (launch.mask_type, launch.window_left, launch.window_right) == mask
    assert (launch.page_size, launch.num_total_pages, launch.seqlen_k) == (1, 100, 70)


def test_aiter_s_scale_cap_slopes_and_results() -> None:
    dispatcher, device = make_dispatcher(prefill())
    o, lse = run_aiter(dispatcher, softmax_scale=0.5, logits_soft_cap=3.0, return_lse=True)
    assert (device.launched[0].scale_s, device.launched[0].logits_soft_cap) == (0.5, 3.0)
    assert (o.shape, lse.shape) == ((60, 4, 128), (4, 60))
    run_aiter(dispatcher, alibi_slopes=np.ones(4, np.float32))
    assert device.launched[1].bias_type == 2
    o, lse, random = run_aiter(dispatcher, dropout_p=0.5, return_lse=True, return_attn_probs=True)
    assert random.shape == (4, 60, 70)


def test_aiter_s_vllm_table_of_larger_pages() -> None:
    pool = np.zeros((12, 16, 2, 128))
    table = np.zeros((2, 5), np.int32)
    dispatcher, device = make_dispatcher(Registry(built("batch_prefill", "ckpm", dtype="bf16", hdim_q=128)))
    run_aiter(dispatcher, k=pool, v=pool, block_table=table, seqlen_k=np.array([70, 25], np.int32))
    launch = device.launched[0]
    assert (launch.page_size, launch.kv_table, launch.batch_stride_block_table, launch.kv_layout) == (16, 1, 5, 0)
    assert launch.seqlen_k_ptr
    assert not launch.kv_indptr


def run_varlen(registry: Registry, **arguments: Any) -> tuple[Any, FakeDevice]:
    dispatcher, device = make_dispatcher(registry)
    arguments = {"q": Q, "k": K[:95], "v": K[:95], "max_seqlen_q": 40, "max_seqlen_k": 70, "dtype": "bf16", **arguments}
    return flash_attn_varlen_func(cu_seqlens_q=SUMS, cu_seqlens_k=INDPTR, dispatcher=dispatcher, **arguments), device


def test_aiter_s_varlen_call_reads_a_block_table() -> None:
    pool, table = np.zeros((12, 16, 2, 128)), np.zeros((2, 5), np.int32)
    registry = Registry(built("batch_prefill", "ckpm", dtype="bf16", hdim_q=128))
    (o, lse), device = run_varlen(registry, k=pool, v=pool, block_table=table, window_size=(9, -1, 2), return_lse=True)
    launch = device.launched[0]
    assert (o.shape, lse.shape) == ((60, 4, 128), (4, 60))
    assert (launch.page_size, launch.kv_table, launch.window_left, launch.sink_size) == (16, 1, 9, 2)
    assert launch.seqlen_k_ptr


def test_aiter_s_varlen_call_without_table_is_of_forward_kernels() -> None:
    o, device = run_varlen(Registry(built("fwd", dtype="bf16", hdim_q=128, mode="group")), causal=True, min_seqlen_q=1)
    launch = device.launched[0]
    assert (o.shape, launch.mask_type, launch.seqlen_k) == ((60, 4, 128), Mask.BOTTOM_RIGHT, 70)


@pytest.mark.parametrize(
    ("hdim_q", "arguments"),
    [(128, {"sink_ptr": np.zeros(4, np.float32)}), (192, {"q": np.zeros((60, 4, 192)), "k": np.zeros((95, 2, 192))})],
)
def test_aiter_s_varlen_call_beyond_forward_reads_pages_of_one(hdim_q: int, arguments: dict[str, Any]) -> None:
    fields = {"pipeline": "qr_async", "page_size": 1, "hdim_q": hdim_q, "hdim_v": 128}
    registry = Registry(built("batch_prefill", "ckpm-serving", dtype="bf16", **fields))
    o, device = run_varlen(registry, causal=True, **arguments)
    launch = device.launched[0]
    assert (o.shape, launch.mask_type, launch.seqlen_k) == ((60, 4, 128), Mask.BOTTOM_RIGHT, 70)
    assert (launch.page_size, launch.num_total_pages, launch.hdim_q) == (1, 95, hdim_q)
    assert launch.kv_indptr
    assert bool(launch.sink) == ("sink_ptr" in arguments)


@pytest.mark.parametrize(
    "arguments",
    [{"min_seqlen_q": 2}, {"bias": np.zeros((60, 95))}, {"cu_seqlens_q_padded": SUMS}, {"cu_seqlens_k_padded": INDPTR}],
)
def test_aiter_s_varlen_parameters_without_kernels_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(ProblemError, match=next(iter(arguments))):
        run_varlen(prefill(), **arguments)


def test_aiter_s_varlen_call_ignores_rows_after_last_key() -> None:
    """vLLM gathers keys into the beginning of a buffer for 32,768."""
    registry = Registry(built("fwd", dtype="bf16", hdim_q=128, mode="group"))
    assert run_varlen(registry, k=K, v=K)[0].shape == (60, 4, 128)
    with pytest.raises(ArgumentError, match="cu_seqlens_k must ascend from 0 to at most the 94 rows of k"):
        run_varlen(registry, k=K[:94], v=K[:94])
    with pytest.raises(ArgumentError, match="cu_seqlens_q must ascend from 0 to the 61 rows of q"):
        run_varlen(registry, q=np.zeros((61, 4, 128)))


LENGTHS, TABLE = np.array([70, 25]), np.zeros((2, 5), np.int32)  # int64, as SGLang has them


def run_unified(dispatcher: Dispatcher, **arguments: Any) -> Any:
    arguments = {
        "q": Q.astype(ml_dtypes.bfloat16), "k": np.zeros((12, 16, 2, 128), ml_dtypes.bfloat16),
        "out": np.zeros(Q.shape, ml_dtypes.bfloat16), "causal": True, "window_size": (-1, -1), "softcap": 0.0,
        "q_descale": None, "k_descale": None, "v_descale": None, "softmax_scale": 0.5, **arguments,
    }  # fmt: skip
    return unified_attention(
        v=arguments["k"], cu_seqlens_q=SUMS, max_seqlen_q=40, seqused_k=LENGTHS, max_seqlen_k=80, block_table=TABLE,
        dispatcher=dispatcher, **arguments,
    )  # fmt: skip


def test_aiter_s_unified_attention_reads_a_block_table() -> None:
    dispatcher, device = make_dispatcher(
        Registry(built("batch_prefill", "ckpm", dtype="bf16", hdim_q=128, page_size=16))
    )
    out = np.zeros(Q.shape, ml_dtypes.bfloat16)
    scale = np.ones((), np.float32)
    assert run_unified(dispatcher, out=out, k_descale=scale, v_descale=scale, sinks=np.ones(4, np.float32)) is out
    run_unified(dispatcher, window_size=(9, 0), softcap=3.0)
    first, second = device.launched
    assert (first.page_size, first.kv_table, first.kv_layout, first.seqlen_k) == (16, 1, 0, 80)
    assert (first.mask_type, first.window_left, first.window_right) == (Mask.BOTTOM_RIGHT, -1, 0)
    assert (first.scale_s, second.window_left, second.logits_soft_cap) == (0.5, 9, 3.0)
    assert first.sink
    assert not second.sink


def test_aiter_s_unified_attention_reads_shuffled_pages() -> None:
    dispatcher, device = make_dispatcher(
        Registry(built("batch_prefill", "ckpm", dtype="bf16", hdim_q=128, page_size=16))
    )
    k, v = np.zeros((12, 2, 16, 16, 8), ml_dtypes.bfloat16), np.zeros((12, 2, 2, 128, 8), ml_dtypes.bfloat16)
    scales: dict[str, Any] = dict.fromkeys(("q_descale", "k_descale", "v_descale"))
    q = Q.astype(ml_dtypes.bfloat16)
    unified_attention(
        q, k, v, np.zeros_like(q), SUMS, 40, LENGTHS, 80, 0.5, True, (-1, -1), TABLE, 0.0, **scales,
        shuffled_kv_cache=True, dispatcher=dispatcher,
    )  # fmt: skip
    assert device.launched[0].kv_layout == 1


def test_aiter_s_unified_attention_reads_an_fp8_cache() -> None:
    dispatcher, device = make_dispatcher(
        Registry(built("batch_prefill", "ckpm-extended", dtype="bf16kvfp8", page_size=16))
    )
    pool, scale = np.zeros((12, 16, 2, 128), ml_dtypes.float8_e4m3fn), np.full(1, 0.5, np.float32)
    run_unified(dispatcher, k=pool, k_descale=scale, v_descale=scale)
    assert device.launched[0].k_descale


@pytest.mark.parametrize(("dtypes", "kernel"), [(("bf16kvfp8", "fp8bf16"), "bf16kvfp8"), (("fp8bf16",), "fp8bf16")])
def test_aiter_s_unified_attention_widens_a_few_fp8_queries(dtypes: tuple[str, ...], kernel: str) -> None:
    """vLLM and SGLang quantize Q of a decode step. Kernels that split the keys take Q in 16 bits."""
    fields: dict[str, Any] = {"hdim_q": 128, "page_size": 16, "kv_table": "vllm"}
    kernels = [kernel for dtype in dtypes for kernel in built("batch_prefill", "ckpm-serving", dtype=dtype, **fields)]
    dispatcher, device = make_dispatcher(Registry(kernels))
    q, pool = np.full(Q.shape, 3, ml_dtypes.float8_e4m3fn), np.zeros((12, 16, 2, 128), ml_dtypes.float8_e4m3fn)
    scale = np.full(1, 0.5, np.float32)
    run_unified(dispatcher, q=q, k=pool, q_descale=scale, k_descale=scale, v_descale=scale)
    (launched,) = device.launched
    assert launched.data_type == kernel.encode()
    assert bool(launched.q_descale) is (kernel == "fp8bf16")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"causal": False}, "unified_attention has no causal=False here"),
        ({"output_scale": np.ones(1)}, "unified_attention has no output_scale here"),
        ({"skip_reduce": True}, "unified_attention has no skip_reduce here"),
        ({"qq_bias": np.ones((4, 4))}, "unified_attention has no qq_bias here"),
        ({"k_descale": np.full(1, 0.5)}, "k and v of 16 bits have no scales"),
    ],
)
def test_aiter_s_unified_attention_refuses_unserved_parameters(options: dict[str, Any], reason: str) -> None:
    dispatcher, device = make_dispatcher(
        Registry(built("batch_prefill", "ckpm", dtype="bf16", hdim_q=128, page_size=16))
    )
    with pytest.raises(ProblemError, match=reason):
        run_unified(dispatcher, **options)
    assert not device.launched


def test_aiter_s_fp8_varlen_call_has_scales_of_its_kernel() -> None:
    dispatcher, device = make_dispatcher(Registry(built("fwd", dtype="fp8bf16", hdim_q=128, mode="group")))
    q, k = (array.astype(ml_dtypes.float8_e4m3fn) for array in (Q, K[:95]))
    scales = (np.full(1, value, np.float32) for value in (0.5, 0.25, 2.0))
    arguments: tuple[Any, ...] = (q, k, k, *scales, SUMS, INDPTR, 40, 70)
    o = flash_attn_varlen_fp8_pertensor_func(*arguments, dispatcher=dispatcher)
    launch = device.launched[0]
    assert (o.shape, o.dtype) == ((60, 4, 128), ml_dtypes.bfloat16)
    assert launch.scale_s == pytest.approx(0.5 * 0.25 / 128**0.5)
    assert launch.scale_o == pytest.approx(2 / 448)  # P is scaled to e4m3fn's largest number


LATENTS = np.zeros((100, 1, 1, 576), ml_dtypes.bfloat16)


def of_latents(function: Any, **options: Any) -> tuple[Any, Any, Any]:
    """O and LSE of a call over a cache of latents, and the launch."""
    dispatcher, device = make_dispatcher(
        Registry(built("batch_prefill", "ckpm-serving", hdim_q=576, page_size=1, lse=True))
    )
    q, o = (np.zeros((60, 16, dim), ml_dtypes.bfloat16) for dim in (576, 512))
    last = np.ones(2, np.int32)
    result, lse = function(
        q, LATENTS, o, SUMS, INDPTR, INDICES, last, 40, sm_scale=0.1, dispatcher=dispatcher, **options
    )
    assert result is o
    return result, lse, device.launched[0]


def test_mla_decode_reads_v_as_the_beginning_of_k() -> None:
    scale = np.ones(1, np.float32)
    _, lse, launch = of_latents(mla_decode_fwd, return_lse=True, q_scale=scale, kv_scale=scale, num_kv_splits=4)
    assert (launch.hdim_q, launch.hdim_v, launch.nhead_k, launch.page_size) == (576, 512, 1, 1)
    assert (launch.mask_type, launch.window_left, launch.window_right) == (Mask.BOTTOM_RIGHT, -1, 0)
    assert launch.scale_s == np.float32(0.1)
    assert lse.shape == (60, 16)


def test_mla_prefill_returns_lse_with_aiter_s_axes() -> None:
    assert of_latents(mla_prefill_fwd)[1].shape == (60, 1, 16, 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cp_world_size": 2}, "mla_decode_fwd has no cp_world_size here"),
        ({"g_kv_indptr": SUMS, "return_logits": True}, "has no g_kv_indptr, return_logits here"),
        ({"kv_scale": np.full(1, 2, np.float32)}, "k and v of 16 bits have no scales"),
    ],
)
def test_mla_decode_with_unserved_parameter_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises((ProblemError, ArgumentError), match=message):
        of_latents(mla_decode_fwd, return_lse=True, **options)


def make_wrapper(**options: Any) -> tuple[BatchPrefillWithPagedKVCacheWrapper, FakeDevice]:
    dispatcher, device = make_dispatcher(prefill())
    wrapper = BatchPrefillWithPagedKVCacheWrapper(None, dispatcher=dispatcher)
    arguments = {"q_data_type": "torch.bfloat16", **options}
    wrapper.plan(SUMS, INDPTR, INDICES, np.ones(2, np.int32), 4, 2, 128, 1, **arguments)
    return wrapper, device


CACHE = np.zeros((100, 2, 1, 2, 128))


@pytest.mark.parametrize(
    ("options", "mask"),
    [
        ({}, (Mask.NONE, -1, -1)),
        ({"causal": True}, (Mask.BOTTOM_RIGHT, -1, 0)),
        ({"window_left": 7}, (Mask.BOTTOM_RIGHT, 7, -1)),
        ({"causal": True, "window_left": 7}, (Mask.BOTTOM_RIGHT, 7, 0)),
    ],
)
def test_flashinfer_s_masks_are_ck_s(options: dict[str, Any], mask: tuple[int, int, int]) -> None:
    wrapper, device = make_wrapper(**options)
    assert wrapper.run(Q, CACHE).shape == (60, 4, 128)
    launch = device.launched[0]
    assert (launch.mask_type, launch.window_left, launch.window_right) == mask


@pytest.mark.parametrize("packed", [False, True])
def test_custom_mask_becomes_bias_of_minus_infinity(packed: bool) -> None:
    seen: list[Any] = []

    def kernel(arguments: Any) -> int:
        bits = (ctypes.c_uint16 * (4 * 60 * 70)).from_address(arguments.bias)
        seen.append(np.array(bits, np.uint16).view(ml_dtypes.bfloat16).reshape(4, 60, 70).astype(np.float32))
        return 0

    masks = [np.random.default_rng(3).random((40, 70)) < 0.5, np.tri(20, 25, 5, dtype=bool)]
    options: dict[str, Any] = {"custom_mask": np.concatenate([mask.reshape(-1) for mask in masks])}
    if packed:
        bits = [np.packbits(mask.reshape(-1), bitorder="little") for mask in masks]
        options |= {"packed_custom_mask": np.concatenate(bits), "custom_mask": None}
    wrapper, device = make_wrapper(causal=True, window_left=9, **options)
    device.answer = kernel
    wrapper.run(Q, CACHE)
    wrapper.run(Q, CACHE, window_left=-1)
    wrapper.forward(Q, CACHE, causal=True)
    windows = [(launch.mask_type, launch.window_left, launch.window_right) for launch in device.launched]
    assert windows == [(Mask.BOTTOM_RIGHT, left, -1) for left in (9, -1, -1)]
    for bias in seen:
        assert ((bias[:, :40] == 0) == masks[0]).all()
        assert ((bias[:, 40:, :25] == 0) == masks[1]).all()
        assert set(np.unique(bias)) == {0, -np.inf}


def graph_wrapper(pages: int = 120) -> tuple[BatchPrefillWithPagedKVCacheWrapper, FakeDevice, list[Any]]:
    dispatcher, device = make_dispatcher(prefill())
    buffers: list[Any] = [np.full(size, 9999, np.int32) for size in (3, 3, pages, 2)]
    return BatchPrefillWithPagedKVCacheWrapper(None, "NHD", True, *buffers, dispatcher=dispatcher), device, buffers


def plan_graph(wrapper: BatchPrefillWithPagedKVCacheWrapper, sums: Any, indptr: Any, **options: Any) -> None:
    indices = np.arange(indptr[-1], dtype=np.int32)
    tables = np.array(sums, np.int32), np.array(indptr, np.int32), indices, np.ones(2, np.int32)
    wrapper.plan(*tables, 4, 2, 128, 1, q_data_type="bfloat16", causal=True, **options)


def test_plans_of_graphs_write_tables_where_launches_read() -> None:
    wrapper, device, (sums, indptr, indices, last) = graph_wrapper()
    assert wrapper.is_cuda_graph_enabled
    plan_graph(wrapper, [0, 40, 60], [0, 70, 95])
    wrapper.run(Q, CACHE)
    plan_graph(wrapper, [0, 10, 60], [0, 12, 90])
    wrapper.run(Q, CACHE)
    assert (sums.tolist(), indptr.tolist(), last.tolist()) == ([0, 10, 60], [0, 12, 90], [1, 1])
    assert (indices == [*range(90), *[0] * 30]).all()
    # a captured launch repeats the problem of the first: all rows and pages may belong to one sequence
    assert [(launch.max_seqlen_q, launch.seqlen_k) for launch in device.launched] == [(60, 120)] * 2


@pytest.mark.parametrize(
    ("sums", "indptr", "message"),
    [
        ([0, 40], [0, 70], "1 sequences: .* have exactly 2"),
        ([0, 40, 61], [0, 70, 95], "61 query tokens: .* have at most 60"),
        ([0, 40, 60], [0, 70, 121], "121 pages: .* have at most 120"),
    ],
)
def test_later_plan_of_a_graph_with_more_is_refused(sums: list[int], indptr: list[int], message: str) -> None:
    wrapper, _, buffers = graph_wrapper()
    plan_graph(wrapper, [0, 40, 60], [0, 70, 95])
    before = [buffer.copy() for buffer in buffers]
    with pytest.raises(ProblemError, match=message):
        plan_graph(wrapper, sums, indptr)
    assert all((buffer == old).all() for buffer, old in zip(buffers, before, strict=True))


def test_refused_first_plan_of_a_graph_sets_no_limit() -> None:
    wrapper, _, _ = graph_wrapper()
    with pytest.raises(ProblemError, match="1 sequences"):
        plan_graph(wrapper, [0, 40], [0, 70])
    plan_graph(wrapper, [0, 40, 60], [0, 70, 95])


def test_graph_with_custom_mask_or_wrong_buffers_is_refused() -> None:
    with pytest.raises(ProblemError, match="plan has no custom mask with use_cuda_graph here"):
        plan_graph(graph_wrapper()[0], [0, 40, 60], [0, 70, 95], custom_mask=np.ones(3300))
    with pytest.raises(ArgumentError, match="their lengths are 3, 4, 2"):
        BatchPrefillWithPagedKVCacheWrapper(None, "NHD", True, np.ones(3), np.ones(4), np.ones(9), np.ones(2))


@pytest.mark.parametrize(
    ("options", "planned"),
    [
        ({}, (False, 0)),
        ({"fixed_split_size": -1}, (False, 0)),
        ({"fixed_split_size": 16}, (True, 256)),
        ({"fixed_split_size": 20}, (True, 0)),  # 320 keys, which 128 doesn't divide
        ({"fixed_split_size": 16, "logits_soft_cap": 3.0}, (True, 0)),  # no kernel here splits them
        ({"disable_split_kv": True}, (True, 0)),
        ({"disable_split_kv": True, "fixed_split_size": 16}, (True, 0)),
    ],
)
def test_fixed_splits_plan_batch_invariance(options: dict[str, Any], planned: tuple[bool, int]) -> None:
    """The registry has pages of 16 tokens, and splits keys under a mask without a soft cap."""
    fields: dict[str, Any] = {"dtype": "bf16", "hdim_q": 128, "page_size": 16, "kv_table": "sglang"}
    dispatcher, device = make_dispatcher(Registry(built("batch_prefill", "ckpm-serving", **fields)))
    wrapper = BatchPrefillWithPagedKVCacheWrapper(None, dispatcher=dispatcher)
    pages = np.array([0, 5, 7], np.int32), np.arange(7, dtype=np.int32), np.array([6, 9], np.int32)
    wrapper.plan(SUMS, *pages, 4, 2, 128, 16, **{"q_data_type": "bfloat16", "causal": True, **options})
    wrapper.run(Q, np.zeros((7, 2, 16, 2, 128)))
    plans = [plan for plan in dispatcher.cache.entries.values() if isinstance(plan, LaunchPlan)]
    assert [plan.problem.batch_invariant for plan in plans] == [planned[0]]
    assert [launch.split_keys for launch in device.launched] == [planned[1]]


@pytest.mark.parametrize("options", [{"custom_mask": np.ones(3299)}, {"packed_custom_mask": np.ones(412, np.uint8)}])
def test_custom_mask_of_another_size_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError, match=r"custom_mask has 3299 values, and the lengths give 3300|has 3296 .* 3304"):
        make_wrapper(**options)


def test_custom_mask_of_raw_addresses_is_refused() -> None:
    with pytest.raises(ArgumentError, match="custom masks, and tables beside them, are read on the host"):
        make_wrapper(custom_mask=OnDevice(address=4096, shape=(3300,), dtype="bits8"))


def test_flashinfer_s_lse_has_base_2_by_token() -> None:
    wrapper, device = make_wrapper()
    device.answer = make_writer(lse=np.full((4, 60), np.log(8.0), np.float32))
    _, lse = wrapper.run(Q, (CACHE[:, 0], CACHE[:, 1]), return_lse=True)
    assert lse.shape == (60, 4)
    np.testing.assert_allclose(lse, 3.0, rtol=1e-6)
    buffer = np.empty((60, 4), np.float32)
    assert wrapper.run(Q, CACHE, lse=buffer, return_lse=True)[1] is buffer
    np.testing.assert_allclose(buffer, 3.0, rtol=1e-6)


@pytest.mark.parametrize("base", ["log2", "ln"])
@pytest.mark.parametrize("layout", ["NH", "HN"])
def test_flashinfer_s_lse_has_chosen_base_and_layout(base: str, layout: str) -> None:
    """FlashInfer 0.7.4: HN is [head, query token]."""
    wrapper, device = make_wrapper()
    natural = np.arange(240, dtype=np.float32).reshape(4, 60)
    device.answer = make_writer(lse=natural)
    expected = (natural if layout == "HN" else natural.T) / (np.log(2.0) if base == "log2" else 1.0)
    options: dict[str, Any] = {"return_lse": True, "lse_base": base, "lse_layout": layout}
    np.testing.assert_allclose(wrapper.run(Q, CACHE, **options)[1], expected, rtol=1e-6)
    buffer = np.empty(expected.shape, np.float32)
    assert wrapper.run(Q, CACHE, lse=buffer, **options)[1] is buffer
    np.testing.assert_allclose(buffer, expected, rtol=1e-6)
    with pytest.raises(ArgumentError, match=f"as Q in lse_layout '{layout}'"):
        wrapper.run(Q, CACHE, lse=buffer.T, **options)


@pytest.mark.parametrize("options", [{"lse_base": "log10"}, {"lse_layout": "HND"}])
def test_flashinfer_s_unknown_base_or_layout_of_lse_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ProblemError, match=str(*options.values())):
        make_wrapper()[0].run(Q, CACHE, return_lse=True, **options)


def test_flashinfer_s_parameters_without_effect_are_taken() -> None:
    dispatcher, device = make_dispatcher(prefill(dtype="fp16"))
    buffers = dict.fromkeys(("qo_indptr_buf", "paged_kv_indptr_buf", "paged_kv_indices_buf"), np.ones(3))
    wrapper = BatchPrefillWithPagedKVCacheWrapper(
        np.zeros(8), "NHD", False, backend="fa2", jit_args=None, dispatcher=dispatcher, **buffers
    )
    assert not wrapper.is_cuda_graph_enabled
    wrapper.reset_workspace_buffer(np.zeros(8), np.zeros(8))
    wrapper.begin_forward(
        SUMS, INDPTR, INDICES, np.ones(2, np.int32), 4, 2, 128, 1, 128, None, None, True, "NONE", False, None, -1,
        q_data_type=np.float16, kv_data_type="float16", o_data_type=np.dtype("float16"), non_blocking=False,
        seq_lens=np.array([70, 25]), seq_lens_q=np.array([40, 20]), fixed_split_size=-1, disable_split_kv=True,
        uniform_q_len=4, use_token_head_sf=False,
    )  # fmt: skip
    q, cache = Q.astype(np.float16), CACHE.astype(np.float16)
    o, lse = wrapper.run_return_lse(q, cache, enable_pdl=False, window_left=5)
    assert (o.dtype, lse.shape) == (np.float16, (60, 4))
    wrapper.run(q, cache, window_left=-1)
    wrapper.end_forward()
    masks = [(launch.mask_type, launch.window_left, launch.window_right) for launch in device.launched]
    assert masks == [(Mask.BOTTOM_RIGHT, 5, 0), (Mask.BOTTOM_RIGHT, -1, 0)]


def test_flashinfer_s_forward_replaces_the_plan() -> None:
    wrapper, device = make_wrapper(causal=True, sm_scale=0.5, window_left=3)
    assert wrapper.forward(Q, CACHE, logits_soft_cap=30.0, sm_scale=0.25).shape == (60, 4, 128)
    o, lse = wrapper.forward_return_lse(Q, CACHE, causal=True)
    assert (o.shape, lse.shape) == ((60, 4, 128), (60, 4))
    first, second = device.launched
    assert (first.mask_type, first.logits_soft_cap, first.scale_s) == (Mask.NONE, 30.0, 0.25)
    assert (second.mask_type, second.logits_soft_cap, second.window_left) == (Mask.BOTTOM_RIGHT, 0.0, -1)


def test_flashinfer_s_scales_of_unquantised_caches() -> None:
    """K's and Q's scales are part of the softmax scale, V's one is O's, as FlashInfer applies them."""
    wrapper, device = make_wrapper(sm_scale=0.5)
    device.answer = make_writer(o=np.full(Q.shape, 0x3F80, np.uint16))  # 1.0 in bf16
    assert (wrapper.run(Q, CACHE, q_scale=2.0, k_scale=np.array(3.0), v_scale=0.25) == 0.25).all()
    assert device.launched[0].scale_s == 3.0
    own = [array.astype(ml_dtypes.bfloat16) for array in (Q, CACHE)]
    assert (wrapper.run(*own, v_scale=0.25) == 0.25).all()
    with pytest.raises(ArgumentError, match="v_scale of raw addresses or bits"):
        wrapper.run(*(array.view(np.uint16) for array in own), v_scale=0.25)
    assert len(device.launched) == 2


def test_aiter_s_fp8_call_says_no_dtype() -> None:
    dispatcher, device = make_dispatcher(fp8_prefill())
    q, k = (np.zeros(array.shape, ml_dtypes.float8_e4m3fn) for array in (Q, K))
    arrays: dict[str, Any] = {"q": q, "k": k, "v": k, "dtype": None}
    scales = dict.fromkeys(("q_descale", "k_descale", "v_descale"), np.ones((), np.float32))
    assert run_aiter(dispatcher, **arrays, **scales).dtype == ml_dtypes.bfloat16
    run_aiter(dispatcher, **arrays)
    with pytest.raises(ArgumentError, match="q_descale, k_descale and v_descale come together"):
        run_aiter(dispatcher, **arrays, k_descale=1.0)
    with pytest.raises(ArgumentError, match="kv_block_descale comes with q_descale, without"):
        run_aiter(dispatcher, **arrays, **scales, kv_block_descale=np.ones((100, 2, 2), np.float32))
    assert len(device.launched) == 2


def test_aiter_s_negative_q_descale_with_block_scales_is_refused() -> None:
    dispatcher, _ = make_dispatcher(fp8_prefill())
    q, k = (np.zeros(array.shape, ml_dtypes.float8_e4m3fn) for array in (Q, K))
    scales = np.ones((100, 2, 2), np.float32)
    with pytest.raises(ArgumentError, match="descales -1, 1, 1 of Q, K and V"):
        run_aiter(dispatcher, q=q, k=k, v=k, dtype=None, q_descale=np.float32(-1), kv_block_descale=scales)


def test_flashinfer_s_unserved_parameters_are_refused() -> None:
    with pytest.raises(ProblemError, match="kv_layout 'DHN' is none of NHD, HND"):
        BatchPrefillWithPagedKVCacheWrapper(None, "DHN")
    with pytest.raises(ProblemError, match="run comes after plan"):
        BatchPrefillWithPagedKVCacheWrapper().run(Q, CACHE)
    with pytest.raises(ProblemError, match="plan has no prefix_len_ptr, rope_theta, use_token_head_sf here"):
        make_wrapper(
            prefix_len_ptr=np.ones(3),
            rope_theta=1e4,
            pos_encoding_mode="NONE",
            use_token_head_sf=True,
            non_blocking=True,
        )
    with pytest.raises(ProblemError, match="kv_data_type float8_e5m2 is not served with q_data_type bfloat16"):
        make_wrapper(kv_data_type="float8_e5m2", o_data_type="torch.bfloat16")
    with pytest.raises(ProblemError, match="kv_data_type float8_e4m3fn is not served with q_data_type float32"):
        make_wrapper(q_data_type="float32", kv_data_type="float8_e4m3fn")
    with pytest.raises(ProblemError, match="o_data_type float32 is not served"):
        make_wrapper(o_data_type=np.float32)
    with pytest.raises(ArgumentError, match="use_cuda_graph=True comes with qo_indptr_buf, paged_kv_indptr_buf"):
        BatchPrefillWithPagedKVCacheWrapper(None, "NHD", True)
    with pytest.raises(ProblemError, match="a scale of 0"):
        make_wrapper(sm_scale=0.0)
    with pytest.raises(ProblemError, match="forward comes after plan"):
        BatchPrefillWithPagedKVCacheWrapper().forward(Q, CACHE)
    with pytest.raises(ProblemError, match="q_data_type int8 is none of float16"):
        make_wrapper(q_data_type="int8")
    wrapper, device = make_wrapper()
    with pytest.raises(ArgumentError, match=r"q has \[3, 128\] after its first axis, and \[4, 128\] was planned"):
        wrapper.run(Q[:, :3], CACHE)
    with pytest.raises(ArgumentError, match="k has"):
        wrapper.run(Q, CACHE[..., :64])
    with pytest.raises(ProblemError, match="run has no args, kv_cache_sf here"):
        wrapper.run(Q, CACHE, 1, kv_cache_sf=np.ones(3), use_fp16_softmax=False)
    with pytest.raises(ProblemError, match="forward has no pos_encoding_mode here"):
        wrapper.forward(Q, CACHE, pos_encoding_mode="ALIBI")
    assert not device.launched


def test_views_of_addresses_are_those_of_arrays() -> None:
    array = np.zeros((5, 6, 7), np.float32)
    tensor = OnDevice(address=64, shape=array.shape, dtype="fp32")
    for view, same in ((swap_axes(tensor, 0, 2), array.swapaxes(0, 2)), (add_page_axis(tensor), array[:, None])):
        assert (view.address, view.shape) == (64, same.shape)
        steps = zip(view.shape, view.strides, same.strides, strict=True)
        assert all(length == 1 or 4 * stride == step for length, stride, step in steps)


def test_flashinfer_s_cascade_masks_its_last_level_alone() -> None:
    dispatcher, device = make_dispatcher(prefill())
    cascade = MultiLevelCascadeAttentionWrapper(2, None, dispatcher=dispatcher)
    whole, pages = np.array([0, 60], np.int32), np.array([0, 70], np.int32)
    tables = [whole, SUMS], [pages, INDPTR], [INDICES, INDICES], [np.ones(1, np.int32), np.ones(2, np.int32)]
    cascade.plan(*tables, 4, 2, 128, 1, causal=True, q_data_type="torch.bfloat16")
    cache = np.zeros((100, 2, 1, 2, 128), np.float32)
    assert cascade.run(Q.astype(np.float32), cache).shape == (60, 4, 128)
    launched = {launch.batch: launch.mask_type for launch in device.launched}
    assert launched == {1: Mask.NONE, 2: Mask.BOTTOM_RIGHT}


def attend(q: Any, k: Any, v: Any) -> tuple[Any, Any]:
    """O and base-2 LSE of every key, in float64."""
    scores = np.einsum("qhd,khd->qhk", q, k)
    weights = np.exp(scores)
    return np.einsum("qhk,khd->qhd", weights, v) / weights.sum(-1, keepdims=True), np.log2(weights.sum(-1))


def test_merged_states_are_attention_over_all_keys() -> None:
    q, k, v = np.random.default_rng(0).normal(size=(3, 30, 4, 8))
    parts = [attend(q, k[at], v[at]) for at in (slice(0, 3), slice(3, 20), slice(20, 30))]
    o, lse = (np.stack(arrays, axis=1) for arrays in zip(*parts, strict=True))
    for got, want in zip(merge_states(o, lse), attend(q, k, v), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12)


def test_merged_state_without_keys_is_the_other_state() -> None:
    (o, lse), nothing = attend(*np.ones((3, 2, 1, 4))), (np.zeros((2, 1, 4)), np.full((2, 1), -np.inf))
    for got, want in zip(merge_state(o, lse, *nothing), (o, lse), strict=True):
        np.testing.assert_array_equal(got, want)
    for got, want in zip(merge_state(*nothing, *nothing), nothing, strict=True):
        np.testing.assert_array_equal(got, want)


def test_state_is_merged_in_place_where_mask_is_true() -> None:
    v, s = np.zeros((3, 1, 2)), np.zeros((3, 1))
    merge_state_in_place(v, s, np.ones((3, 1, 2)), np.zeros((3, 1)), mask=np.array([True, False, True]))
    assert v[:, 0, 0].tolist() == [0.5, 0, 0.5]
    assert s[:, 0].tolist() == [1, 0, 1]
