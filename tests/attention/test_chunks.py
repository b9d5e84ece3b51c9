"""Calls with a sequence for each chunk, compared with a chunked mask over whole score matrices in float64."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ckpm.attention import reference
from ckpm.attention.call import fmha
from ckpm.attention.chunks import chunk_lengths, chunk_pages
from ckpm.attention.dispatcher import Dispatcher
from ckpm.attention.launch.device import Device
from ckpm.attention.registry import Registry
from ckpm.matrix.problems.problem import KvLayout
from tests.attention.calls import Call, Floats, contiguous, paged_call

LENGTHS = ((100, 150), (20, 25), (1, 300), (48, 48))
CHUNK = 48


def mask_chunks(call: Call, chunk: int = CHUNK) -> Floats:
    """Return O [token, head, dim]; a query sees the keys from ``position // chunk * chunk`` to its position."""
    outputs = []
    for q, k, v in zip(call.q, call.k, call.v, strict=True):
        position, key = np.ogrid[len(k) - len(q) : len(k), : len(k)]
        seen = (key <= position) & (key >= position // chunk * chunk)
        scores = np.einsum("qhd,kd->hqk", q, k[:, 0]) / np.sqrt(q.shape[-1])
        weights = np.exp(np.where(seen, scores, -np.inf))
        outputs.append(np.einsum("hqk,kd->qhd", weights / weights.sum(-1, keepdims=True), v[:, 0]))
    return np.concatenate(outputs)


@pytest.mark.parametrize(("size", "layout"), [(1, "linear"), (16, "vectorized")])
def test_pages_in_chunks_agree_with_chunked_mask(size: int, layout: KvLayout, dispatcher: Dispatcher) -> None:
    call = paged_call(21, LENGTHS, size, layout=layout)
    sums, pages = chunk_pages(call.options["cu_seqlens_q"], call.options["pages"], size, CHUNK)
    done = fmha(*call.arrays, dispatcher=dispatcher, dtype="bf16", mask="bottom_right", cu_seqlens_q=sums, pages=pages)
    assert (verdict := reference.agreement(done.o, mask_chunks(call), "bf16")).passed, verdict


def test_chunks_of_many_queries_take_v3(built: tuple[Path, ...], device: Device) -> None:
    registry = Registry()
    registry.add_library(next(library for library in built if library.parent.name.startswith("ckpm-extended")))
    dispatcher = Dispatcher(registry, device)  # with aiter's library there, its kernel comes first
    call, chunk = paged_call(23, ((300, 500), (2, 400), (64, 64))), 192
    sums, pages = chunk_pages(call.options["cu_seqlens_q"], call.options["pages"], 1, chunk)
    done = fmha(*call.arrays, dispatcher=dispatcher, dtype="bf16", mask="bottom_right", cu_seqlens_q=sums, pages=pages)
    assert all("_v3_" in name for name in done.ran.kernels), done.ran.kernels
    assert (verdict := reference.agreement(done.o, mask_chunks(call, chunk), "bf16")).passed, verdict


def test_contiguous_keys_in_chunks_agree_with_chunked_mask(dispatcher: Dispatcher) -> None:
    call = contiguous(22, LENGTHS, layout="")
    sums = chunk_lengths(call.options["cu_seqlens_q"], call.options["cu_seqlens_k"], CHUNK)
    done = fmha(
        *call.arrays,
        dispatcher=dispatcher,
        dtype="bf16",
        mask="bottom_right",
        cu_seqlens_q=sums[0],
        cu_seqlens_k=sums[1],
    )
    assert (verdict := reference.agreement(done.o, mask_chunks(call), "bf16")).passed, verdict
