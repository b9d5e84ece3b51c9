"""Values of aiter's and FlashInfer's parameters at the C ABI, and parameters that are refused instead of ignored."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ckpm.attention.arrays.tensors import OnDevice
from ckpm.attention.familiar.aiter import mha_batch_prefill_func
from ckpm.attention.familiar.flashinfer import BatchPrefillWithPagedKVCacheWrapper
from ckpm.attention.familiar.tensors import add_page_axis, swap_axes
from ckpm.attention.registry import Registry
from ckpm.base.errors import ArgumentError, ProblemError
from ckpm.kernels.abi import Mask
from tests.unit.attention.fakes import FakeDevice, built, dispatcher, prefill

SUMS, INDPTR = np.array([0, 40, 60], np.int32), np.array([0, 70, 95], np.int32)
INDICES = np.arange(95, dtype=np.int32)
Q, K = np.zeros((60, 4, 128)), np.zeros((100, 2, 128))


def of_aiter(device: FakeDevice, registry: Registry, **given: Any) -> Any:
    over, _ = dispatcher(registry, device)
    given = {"q": Q, "k": K, "v": K, "kv_indptr": INDPTR, "kv_page_indices": INDICES, **given}
    return mha_batch_prefill_func(
        cu_seqlens_q=SUMS, max_seqlen_q=40, max_seqlen_k=70, dispatcher=over, dtype="bf16", **given
    )


@pytest.mark.parametrize(
    ("given", "mask"),
    [
        ({}, (Mask.NONE, -1, -1)),
        ({"causal": True}, (Mask.BOTTOM_RIGHT, -1, 0)),
        ({"window_size": (9, 3)}, (Mask.BOTTOM_RIGHT, 9, 3)),
        ({"window_size": (9, -1), "causal": True}, (Mask.BOTTOM_RIGHT, 9, 0)),
    ],
)
def test_aiter_s_masks_are_ck_s(given: dict[str, Any], mask: tuple[int, int, int]) -> None:
    device = FakeDevice()
    of_aiter(device, prefill(), **given)
    said = device.launched[0]
    assert (said.mask_type, said.window_left, said.window_right) == mask
    assert (said.page_size, said.num_total_pages, said.seqlen_k) == (1, 100, 70)


def test_aiter_s_scale_cap_slopes_and_results() -> None:
    device = FakeDevice()
    o, lse = of_aiter(device, prefill(), softmax_scale=0.5, logits_soft_cap=3.0, return_lse=True)
    assert (device.launched[0].scale_s, device.launched[0].logits_soft_cap) == (0.5, 3.0)
    assert (o.shape, lse.shape) == ((60, 4, 128), (4, 60))
    of_aiter(device, prefill(), alibi_slopes=np.ones(4, np.float32))
    assert device.launched[1].bias_type == 2
    o, lse, random = of_aiter(device, prefill(), dropout_p=0.5, return_lse=True, return_attn_probs=True)
    assert random.shape == (4, 60, 70)


def test_aiter_s_vllm_table_of_larger_pages() -> None:
    device = FakeDevice()
    pool = np.zeros((12, 16, 2, 128))
    table = np.zeros((2, 5), np.int32)
    registry = Registry(built("batch_prefill", "ckpm", dtype="bf16", hdim_q=128))
    of_aiter(device, registry, k=pool, v=pool, block_table=table, seqlen_k=np.array([70, 25], np.int32))
    said = device.launched[0]
    assert (said.page_size, said.kv_table, said.batch_stride_block_table, said.kv_layout) == (16, 1, 5, 0)
    assert said.seqlen_k_ptr
    assert not said.kv_indptr


def wrapper(**given: Any) -> tuple[BatchPrefillWithPagedKVCacheWrapper, FakeDevice]:
    over, device = dispatcher(prefill())
    made = BatchPrefillWithPagedKVCacheWrapper(None, dispatcher=over)
    asked = {"q_data_type": "torch.bfloat16", **given}
    made.plan(SUMS, INDPTR, INDICES, np.ones(2, np.int32), 4, 2, 128, 1, **asked)
    return made, device


CACHE = np.zeros((100, 2, 1, 2, 128))


@pytest.mark.parametrize(
    ("given", "mask"),
    [
        ({}, (Mask.NONE, -1, -1)),
        ({"causal": True}, (Mask.BOTTOM_RIGHT, -1, 0)),
        ({"window_left": 7}, (Mask.BOTTOM_RIGHT, 7, -1)),
        ({"causal": True, "window_left": 7}, (Mask.BOTTOM_RIGHT, 7, 0)),
    ],
)
def test_flashinfer_s_masks_are_ck_s(given: dict[str, Any], mask: tuple[int, int, int]) -> None:
    made, device = wrapper(**given)
    assert made.run(Q, CACHE).shape == (60, 4, 128)
    said = device.launched[0]
    assert (said.mask_type, said.window_left, said.window_right) == mask


def test_flashinfer_s_lse_has_base_2_by_token() -> None:
    def natural(said: Any) -> int:
        import ctypes

        ones = np.full((4, 60), np.log(8.0), np.float32)
        ctypes.memmove(said.lse, ones.ctypes.data, ones.nbytes)
        return 0

    made, device = wrapper()
    device.answer = natural
    _, lse = made.run(Q, (CACHE[:, 0], CACHE[:, 1]), return_lse=True)
    assert lse.shape == (60, 4)
    np.testing.assert_allclose(lse, 3.0, rtol=1e-6)
    mine = np.empty((60, 4), np.float32)
    assert made.run(Q, CACHE, lse=mine, return_lse=True)[1] is mine
    np.testing.assert_allclose(mine, 3.0, rtol=1e-6)


def test_what_is_not_served_is_refused() -> None:
    with pytest.raises(ProblemError, match="kv_layout 'DHN' is none of NHD, HND"):
        BatchPrefillWithPagedKVCacheWrapper(None, "DHN")
    with pytest.raises(ProblemError, match="run comes after plan"):
        BatchPrefillWithPagedKVCacheWrapper().run(Q, CACHE)
    with pytest.raises(ProblemError, match="plan has no custom_mask, rope_theta here"):
        wrapper(custom_mask=np.ones(3), rope_theta=1e4, pos_encoding_mode="NONE", non_blocking=True)
    with pytest.raises(ProblemError, match="plan has no kv_data_type here"):
        wrapper(kv_data_type="float8_e4m3fn", o_data_type="torch.bfloat16")
    with pytest.raises(ProblemError, match="q_data_type int8 is none of float16"):
        wrapper(q_data_type="int8")
    made, device = wrapper()
    with pytest.raises(ArgumentError, match=r"q has \[3, 128\] after its first axis, and \[4, 128\] was planned"):
        made.run(Q[:, :3], CACHE)
    with pytest.raises(ArgumentError, match="k has"):
        made.run(Q, CACHE[..., :64])
    assert not device.launched


def test_views_of_addresses_are_those_of_arrays() -> None:
    array = np.zeros((5, 6, 7), np.float32)
    given = OnDevice(address=64, shape=array.shape, dtype="fp32")
    for view, same in ((swap_axes(given, 0, 2), array.swapaxes(0, 2)), (add_page_axis(given), array[:, None])):
        assert (view.address, view.shape) == (64, same.shape)
        steps = zip(view.shape, view.strides, same.strides, strict=True)
        assert all(length == 1 or 4 * mine == step for length, mine, step in steps)
