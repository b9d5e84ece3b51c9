"""Calls with fp8 K and V beside a Q of 16 bits: what reaches the C ABI, and scales that don't fit."""

from __future__ import annotations

import ctypes
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ckpm.attention.arrays.tables import Pages
from ckpm.attention.call import fmha
from ckpm.attention.familiar.aiter import mha_batch_prefill_func
from ckpm.attention.familiar.flashinfer import BatchPrefillWithPagedKVCacheWrapper
from ckpm.attention.launch.buffers import prepare
from ckpm.attention.registry import Registry
from ckpm.base.errors import ArgumentError, CkPrefillError
from ckpm.kernels.abi import QScale
from tests.unit.attention.fakes import FakeDevice, built, floats_at, make_case, make_dispatcher

SUMS, INDPTR = np.array([0, 40, 60], np.int32), np.array([0, 70, 95], np.int32)
INDICES = np.arange(95, dtype=np.int32)
FP8 = ml_dtypes.float8_e4m3fn
Q = np.zeros((60, 4, 128), ml_dtypes.bfloat16)
K = np.zeros((100, 1, 2, 128), FP8)


def mixed_kernels() -> Registry:
    return Registry(built("batch_prefill", "ckpm-extended", dtype="bf16kvfp8", hdim_q=128, page_size=1))


class Seen(FakeDevice):
    """Keeps the scales that a launch is given."""

    def __init__(self, heads: int = 1) -> None:
        super().__init__(answer=self._look)
        self.heads, self.scales = heads, list[list[float]]()

    def _look(self, arguments: Any) -> int:
        self.scales += [floats_at(arguments.k_descale, self.heads), floats_at(arguments.v_descale, self.heads)]
        return 0


def call(device: FakeDevice, q: Any = Q, k: Any = K, **options: Any) -> Any:
    dispatcher, _ = make_dispatcher(mixed_kernels(), device)
    pages = Pages(indices=INDICES, indptr=INDPTR)
    return fmha(q, k, k, cu_seqlens_q=SUMS, pages=pages, dispatcher=dispatcher, **options)


@pytest.mark.parametrize("kind", [FP8, np.uint8])
def test_dtypes_of_q_and_k_choose_kernels(kind: Any) -> None:
    """No dtype is said; scales are 1 if none are, and Q's isn't given."""
    device = Seen()
    done = call(device, k=np.zeros(K.shape, kind))
    assert (done.problem.dtype, done.problem.qscale, done.o.dtype) == ("bf16kvfp8", "pertensor", Q.dtype)
    (launch,) = device.launched
    assert (launch.data_type, launch.qscale_type, launch.q_descale, launch.nhead_stride_kv_descale) == (
        b"bf16kvfp8", QScale.PERTENSOR, None, 0,
    )  # fmt: skip
    call(device, descales=(None, 0.25, np.array([2.0], np.float32)))
    assert device.scales == [[1.0], [1.0], [0.25], [2.0]]


def test_floats_are_encoded_as_their_tensors_are() -> None:
    bits: list[bytes] = []

    def look(arguments: Any) -> int:
        bits.extend((ctypes.string_at(arguments.q, 2), ctypes.string_at(arguments.k, 1)))
        return 0

    call(FakeDevice(answer=look), q=np.full(Q.shape, 1.5), k=np.full(K.shape, 1.5), dtype="bf16kvfp8")
    assert bits == [b"\xc0\x3f", b"\x3c"]  # 1.5: bf16 3FC0, e4m3 0 0111 100


def test_scales_of_heads_come_with_their_stride() -> None:
    device = Seen(heads=2)
    done = call(device, descales=(None, np.array([1.0, 2.0]), np.array([3.0, 4.0])))
    assert done.problem.qscale == "perhead"
    (launch,) = device.launched
    assert (launch.qscale_type, launch.nhead_stride_kv_descale) == (QScale.PERHEAD, 1)
    assert device.scales == [[1.0, 2.0], [3.0, 4.0]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"descales": (1.0, 1.0, 1.0)}, "a Q of 16 bits has no q_descale"),
        ({"descales": (None, np.ones(2), 1.0)}, "v_descale is [1], not [2]"),
        ({"descales": (None, np.ones(4), np.ones(4))}, "k_descale is [4], not [2]"),
        ({"descales": (None, np.array([1.0, 0.0]), np.ones(2))}, "must be positive"),
        ({"descales": (None, 1.0, np.inf)}, "V's finite"),
        (
            {"k": np.zeros(K.shape, ml_dtypes.float8_e4m3fnuz)},
            "k is of e4m3fnuz, and the kernels of gfx950 read e4m3fn",
        ),
        ({"bias": np.zeros((4, 60, 70), np.float32)}, "no kernel"),
        ({"dropout": 0.5}, "no kernel"),
    ],
)
def test_mixed_call_with_wrong_argument_is_one_error(options: dict[str, Any], message: str) -> None:
    device = FakeDevice()
    with pytest.raises(CkPrefillError) as raised:
        call(device, **options)
    assert message in str(raised.value)
    assert not device.launched


def test_q_of_8_bits_needs_its_scale() -> None:
    with pytest.raises(ArgumentError, match="come together with an fp8 Q"):
        call(FakeDevice(), q=Q.astype(FP8), descales=(None, 1.0, 1.0))


def test_aiter_s_call_takes_scales_of_k_and_v() -> None:
    device = Seen()
    dispatcher, _ = make_dispatcher(mixed_kernels(), device)
    arguments: dict[str, Any] = {
        "q": Q, "k": K[:, 0], "v": K[:, 0], "cu_seqlens_q": SUMS, "kv_indptr": INDPTR, "kv_page_indices": INDICES,
        "max_seqlen_q": 40, "max_seqlen_k": 70, "dispatcher": dispatcher,
    }  # fmt: skip
    o, lse = mha_batch_prefill_func(**arguments, k_descale=0.5, v_descale=2.0, return_lse=True, causal=True)
    assert (o.dtype, lse.shape, device.scales) == (Q.dtype, (4, 60), [[0.5], [2.0]])
    with pytest.raises(ArgumentError, match="come together"):
        mha_batch_prefill_func(**arguments, v_descale=2.0)


def test_aiter_s_block_scales_come_without_q_s() -> None:
    pool = np.zeros((3, 1024, 2, 128), FP8)
    dispatcher, device = make_dispatcher(
        Registry(built("batch_prefill", "ckpm-extended", dtype="bf16kvfp8", page_size=1024))
    )
    mha_batch_prefill_func(
        Q, pool, pool, SUMS, np.array([0, 1, 2], np.int32), np.array([2, 0], np.int32), 40, 90,
        kv_last_page_lens=np.array([90, 7], np.int32), kv_block_descale=np.ones((3, 2, 2), np.float32),
        dispatcher=dispatcher,
    )  # fmt: skip
    (launch,) = device.launched
    assert (launch.qscale_type, launch.nhead_stride_kv_descale, launch.block_stride_kv_descale) == (
        QScale.KV_BLOCKSCALE, 2, 4,
    )  # fmt: skip


def test_flashinfer_s_wrapper_takes_fp8_cache_beside_bfloat16() -> None:
    device = Seen()
    dispatcher, _ = make_dispatcher(mixed_kernels(), device)
    wrapper = BatchPrefillWithPagedKVCacheWrapper(None, dispatcher=dispatcher)
    ones = np.ones(2, np.int32)
    wrapper.plan(SUMS, INDPTR, INDICES, ones, 4, 2, 128, 1, q_data_type="bfloat16", kv_data_type="float8_e4m3fn")
    assert wrapper.run(Q, (K, K), q_scale=2.0, k_scale=0.5, v_scale=4.0).dtype == Q.dtype
    assert device.launched[0].scale_s == pytest.approx(2 * 128**-0.5)
    assert device.scales == [[0.5], [4.0]]


def test_scales_of_heads_by_hand() -> None:
    """Scales of heads are (1 + 3h mod 8 / 8) / 112 of K and (1 + (5h + 1) mod 8 / 8) / 112 of V."""
    p = make_case(dtype="fp16kvfp8", qscale="perhead", nhead_q=3, nhead_k=3, seqlens_k=(7,), kv_range=(-1.0, 1.0))
    prepared = prepare(p, "gfx942")
    for tensor, eighths in (("k", (0, 3, 6)), ("v", (1, 6, 3))):
        scales = prepared.buffers[f"{tensor}_descale"].writes[0].data.tolist()
        assert scales == pytest.approx([(1 + eighth / 8) / 112 for eighth in eighths])
    assert prepared.fields["nhead_stride_kv_descale"] == 1
    assert "q_descale" not in prepared.pointers
    # bytes of the tensors: 2 of Q and O, 1 of K and V
    sizes = {name: prepared.buffers[name].size for name in ("q", "o", "k")}
    assert sizes == {"q": 64 * 3 * 128 * 2, "o": 64 * 3 * 128 * 2, "k": prepared.table.pool_pages * 3 * 128}
