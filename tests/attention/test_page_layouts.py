"""Views of one cache on the emulated gfx950, as callers have it: the bits of contiguous pages, and no copy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ckpm.attention.arrays.tables import Pages
from ckpm.attention.arrays.tensors import OnDevice
from ckpm.attention.call import fmha
from ckpm.attention.dispatcher import Dispatcher
from ckpm.attention.launch.device import Device
from ckpm.attention.launch.encodings import decode, encode
from ckpm.matrix.problems.problem import KvLayout
from tests.attention.cache_views import LAYOUTS, View, view_cache, view_latent
from tests.attention.calls import ARCH, Call, copy_to_device, paged_call

LENGTHS = ((40, 70), (20, 600))
LINEAR = [(size, "vllm", layout) for size in (32, 48, 112, 528) for layout in LAYOUTS if "vectors" not in layout]
VECTORS = [(256, "vllm"), (48, "sglang"), (112, "sglang"), (528, "sglang")]


@pytest.mark.parametrize(
    ("size", "table", "layout"),
    [*LINEAR, *((*size_and_table, f"vectors{end}") for size_and_table in VECTORS for end in ("", "_interleaved"))],
)
def test_view_of_cache_gives_bits_of_contiguous_pages(
    size: int, table: str, layout: str, dispatcher: Dispatcher, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    kv_layout: KvLayout = "vectorized" if "vectors" in layout else "linear"
    call = paged_call(3, LENGTHS, size, table, kv_layout, heads=(4, 2), mask="bottom_right")
    _, k, v = call.arrays
    cache = np.zeros(k.size + v.size)
    views = view_cache(cache, layout, k.shape[0], size, 2, 128)
    for view, array in zip(views, (k, v), strict=True):
        view.array[...] = array
    compare_with_host(call, cache, views, dispatcher, device, monkeypatch)


def test_v_within_latent_k_gives_bits_of_two_pools(
    dispatcher: Dispatcher, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Absorbed latent attention: one KV head, whose V is the first 512 columns of K."""
    paged = paged_call(3, LENGTHS, heads=(4, 1), hdim=576, mask="bottom_right", lse=True)
    q, k, _ = paged.arrays
    call = replace(paged, arrays=(q, k, np.ascontiguousarray(k[..., :512])), v=[keys[..., :512] for keys in paged.k])
    compare_with_host(call, k, view_latent(k, k.shape[0], 1, 512), dispatcher, device, monkeypatch)


def compare_with_host(
    call: Call,
    cache: np.ndarray[Any, Any],
    views: tuple[View, View],
    dispatcher: Dispatcher,
    device: Device,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Launch with views of the cache on the device, and again with arrays of the host: both have the same bits."""
    host = call.check(dispatcher)
    q, host_pages = call.arrays[0], call.options["pages"]
    pool = copy_to_device(device, encode(cache, "bf16", ARCH), "bf16")
    indices = host_pages.indices if host_pages.indptr is None else np.pad(host_pages.indices, (0, 256))
    rest = {"seqlens_k": host_pages.seqlens_k, "indptr": host_pages.indptr, "last_page_lens": host_pages.last_page_lens}
    tables = {name: copy_to_device(device, array, "int32") for name, array in rest.items() if array is not None}
    pages = Pages(
        indices=copy_to_device(device, indices, "int32"), longest=600, kv_layout=host_pages.kv_layout, **tables
    )
    sums = copy_to_device(device, call.options["cu_seqlens_q"], "int32")
    queries, o = copy_to_device(device, encode(q, "bf16", ARCH), "bf16"), device.hip.malloc(host.o.size * 2)
    lse = device.hip.malloc(q.shape[0] * q.shape[1] * 4)
    monkeypatch.setattr(device.hip, "malloc", pytest.fail)  # nothing is copied
    lse_out = None if host.lse is None else OnDevice(address=lse.address, shape=host.lse.shape, dtype="fp32")
    done = fmha(
        queries, *(view.on_device(pool.address) for view in views), dispatcher=dispatcher, cu_seqlens_q=sums,
        max_seqlen_q=40, pages=pages, mask="bottom_right", lse=host.lse is not None, lse_out=lse_out,
        out=OnDevice(address=o.address, shape=host.o.shape, dtype="bf16"),
    )  # fmt: skip
    device.hip.synchronize()
    assert done.ran.kernels == host.ran.kernels
    assert (decode(device.hip.read(o, np.uint16, host.o.shape), "bf16", ARCH) == host.o).all()
