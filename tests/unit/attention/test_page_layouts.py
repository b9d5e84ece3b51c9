"""Tables and views of callers' caches. tests/attention/test_page_layouts.py launches each layout."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ckpm.attention.arrays.tables import Pages
from ckpm.attention.arrays.tensors import OnDevice
from ckpm.attention.call import fmha
from ckpm.attention.callers.tensors import listed_pages
from ckpm.attention.registry import Registry
from ckpm.base.errors import ArgumentError
from tests.attention.cache_views import view_cache
from tests.unit.attention.fakes import PREFILL, built, make_dispatcher

HEADS, HDIM = 2, 128


def on_device(shape: tuple[int, ...], dtype: str, address: int = 1 << 20) -> OnDevice:
    return OnDevice(address=address, shape=shape, dtype=dtype)


# pages of one token of ckpm, all others of ckpm-extended
FIELDS: dict[str, Any] = {"dtype": "bf16", "mask": "no", "lse": False, "bias": "no", "dropout": False, "logits": False}
FIELDS |= {"hdim_q": HDIM, "tile": {"bm0": 128}}
ONES, OTHERS = built("batch_prefill", "ckpm", page_size=1, **FIELDS), built("batch_prefill", "ckpm-extended", **FIELDS)
KERNELS = Registry((*ONES, *OTHERS))


def test_vectors_with_gaps_within_a_head_are_refused() -> None:
    k, v = view_cache(np.zeros(9 * 48 * 2 * HEADS * HDIM, np.uint32), "vectors_interleaved", 9, 48, HEADS, HDIM)
    swapped = OnDevice(address=4096, shape=k.array.shape, dtype="bf16", strides=(12288, 6144, 8, 128, 1))
    with pytest.raises(ArgumentError, match="the last three axes of vectorized pages must lie one after another"):
        fmha(
            on_device((60, HEADS, HDIM), "bf16"), swapped, v.on_device(4096), dispatcher=make_dispatcher(KERNELS)[0],
            cu_seqlens_q=on_device((2,), "int32"), max_seqlen_q=60,
            pages=Pages(indices=on_device((1, 9), "int32"), seqlens_k=on_device((1,), "int32"), longest=9 * 48,
                        kv_layout="vectorized"),
        )  # fmt: skip


def test_why_names_kernel_of_any_page_and_page_sizes_of_others() -> None:
    dispatcher, _ = make_dispatcher(KERNELS)
    posed = replace(PREFILL, nhead_q=HEADS, page_size=48, kv_table="vllm", table_width=9)
    explained = dispatcher.why(posed)
    assert explained.choice is not None
    assert "_psx16_gload_" in explained.choice.stages[0].name
    assert not explained.choice.named
    reasons = {reason for kernel, reason in explained.refused.items() if kernel.key.page_size == 64}
    assert {reason.partition(" among")[0] for reason in reasons} == {"no kernel with page_size 48"}
    exact = dispatcher.why(replace(posed, page_size=64)).choice
    assert exact is not None
    assert "_ps64_" in exact.stages[0].name


def decode_by_list(batch: int, pages: int, **tables: Any) -> Any:
    """The C struct of a decode over a list on the device, in which a sequence may have all pages."""
    dispatcher, device = make_dispatcher(KERNELS)
    cache = on_device((1000, 16, HEADS, HDIM), "bf16")
    arrays = {
        "indices": on_device((pages,), "int32"), "indptr": on_device((batch + 1,), "int32"),
        "last_page_lens": on_device((batch,), "int32"), **tables,
    }  # fmt: skip
    pages_of = listed_pages(arrays["indices"], arrays["indptr"], arrays["last_page_lens"], 16)
    fmha(
        on_device((batch, HEADS, HDIM), "bf16"), cache, cache, cu_seqlens_q=on_device((batch + 1,), "int32"),
        max_seqlen_q=1, pages=pages_of, dispatcher=dispatcher,
        out=on_device((batch, HEADS, HDIM), "bf16"),
    )  # fmt: skip
    return device.launched[0]


def test_list_on_the_device_may_be_longer_than_any_sequence() -> None:
    """512 sequences of 8,192 keys, and vLLM's buffer for 512 sequences of a million: 2^31 keys if all had all."""
    assert decode_by_list(512, 512 * 512).seqlen_k == 512 * 8192
    assert decode_by_list(512, 512 << 16).seqlen_k == 1 << 28


def test_tables_on_the_device_may_have_rows_of_a_larger_batch() -> None:
    """Captured graphs of SGLang keep tables of their largest batch."""
    arguments = decode_by_list(4, 64, indptr=on_device((257,), "int32"), last_page_lens=on_device((256,), "int32"))
    assert (arguments.batch, arguments.num_total_pages) == (4, 1000)
    dispatcher, device = make_dispatcher(KERNELS)
    cache, q = on_device((1000, 16, HEADS, HDIM), "bf16"), on_device((60, HEADS, HDIM), "bf16")
    for table, width in (
        (on_device((160, 64), "int32"), 64),
        (replace(on_device((160, 64), "int32"), strides=(100, 1)), 100),
    ):
        pages = Pages(indices=table, seqlens_k=on_device((160,), "int32"), longest=900)
        options: Any = {"cu_seqlens_q": on_device((3,), "int32"), "max_seqlen_q": 40, "pages": pages, "out": q}
        fmha(q, cache, cache, dispatcher=dispatcher, **options)
        assert (device.launched[-1].batch, device.launched[-1].batch_stride_block_table) == (2, width)
        few = replace(pages, seqlens_k=on_device((1,), "int32"))
        with pytest.raises(ArgumentError, match=r"seqlens_k is \[1\], not \[2\]"):
            fmha(q, cache, cache, dispatcher=dispatcher, **{**options, "pages": few})
