"""Both forms against attention in float64, on the emulated device: types, layouts, head dims, lengths, empty splits."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from kernels.decode.attention import DEVICE_OPTIONS, decode
from kernels.decode.problem import FORCED, RESIDENT, Cache, Launch, Shape, dequantised, quantised
from kernels.launch.device import EmulatedDevice
from kernels.launch.encodings import from_bf16, to_bf16

ARCH = "gfx950"
CAPACITY = 256
SHAPE = Shape(heads_kv=2, heads_q=4, head_dim=128, groups=4, splits=4, page_size=0, stored="fp8")
LENGTHS = (1, 32, 150, 256)  # a single token, a whole tile, splits without tokens, a full cache
# P in bf16 has 2**-9, as has the output; what is summed is of size 1
TOLERANCE = 0.02


@pytest.fixture(scope="session")
def device() -> EmulatedDevice:
    return EmulatedDevice(ARCH, **DEVICE_OPTIONS)


def posed(shape: Shape, seed: int = 1) -> tuple[Any, Cache, Any]:
    rng = np.random.default_rng(seed)
    slots = len(LENGTHS) * CAPACITY
    k, v = (rng.standard_normal((slots, shape.heads_kv, shape.head_dim)) + 0.5 for _ in range(2))
    (kb, ks, kh), (vb, vs, vh) = (quantised(one, shape.groups, shape.stored, ARCH) for one in (k, v))
    q = from_bf16(to_bf16(rng.standard_normal((len(LENGTHS), shape.heads_kv * shape.heads_q, shape.head_dim))))
    pages = None
    if shape.page_size:
        pages = rng.permutation(slots // shape.page_size).astype(np.int32).reshape(len(LENGTHS), -1)
    return (
        q,
        Cache(k=kb, v=vb, k_scale=ks, k_shift=kh, v_scale=vs, v_shift=vh, pages=pages),
        np.array(LENGTHS, np.int32),
    )


def attention(shape: Shape, q: Any, cache: Cache) -> Any:
    """Softmax(q . k / sqrt(d)) . v in float64, head by head."""
    k = dequantised(cache.k, cache.k_scale, cache.k_shift, shape.stored, ARCH)
    v = dequantised(cache.v, cache.v_scale, cache.v_shift, shape.stored, ARCH)
    out = np.zeros(q.shape)
    for sequence, length in enumerate(LENGTHS):
        tokens = np.arange(length)
        slots = sequence * CAPACITY + tokens
        if cache.pages is not None:
            slots = cache.pages[sequence, tokens // shape.page_size] * shape.page_size + tokens % shape.page_size
        for head in range(q.shape[1]):
            scores = k[slots, head // shape.heads_q] @ q[sequence, head].astype(np.float64) / np.sqrt(shape.head_dim)
            p = np.exp(scores - scores.max())
            out[sequence, head] = p @ v[slots, head // shape.heads_q] / p.sum()
    return out


def error(device: EmulatedDevice, form: str, shape: Shape, launch: Launch) -> float:
    q, cache, lengths = posed(shape)
    return float(np.abs(decode(device, form, shape, launch, q, cache, lengths).out - attention(shape, q, cache)).max())


@pytest.mark.parametrize("stored", ["fp8", "int8"])
@pytest.mark.parametrize("page_size", [0, 32, 128])
@pytest.mark.parametrize(("head_dim", "groups"), [(64, 2), (128, 4), (256, 8)])
def test_streaming(device: EmulatedDevice, stored: str, page_size: int, head_dim: int, groups: int) -> None:
    shape = dataclasses.replace(SHAPE, stored=stored, page_size=page_size, head_dim=head_dim, groups=groups)
    assert error(device, "streaming", shape, FORCED[ARCH, head_dim]) < TOLERANCE


@pytest.mark.parametrize("page_size", [0, 128])
def test_resident(device: EmulatedDevice, page_size: int) -> None:
    assert error(device, "resident", dataclasses.replace(SHAPE, page_size=page_size), RESIDENT) < TOLERANCE


@pytest.mark.parametrize("splits", [1, 3, 8])
@pytest.mark.parametrize("heads_q", [1, 16])
def test_splits_and_shared_heads(device: EmulatedDevice, splits: int, heads_q: int) -> None:
    shape = dataclasses.replace(SHAPE, splits=splits, heads_q=heads_q, heads_kv=1)
    assert error(device, "streaming", shape, FORCED[ARCH, 128]) < TOLERANCE


def test_a_shift_left_out_is_seen(device: EmulatedDevice) -> None:
    """The comparison notices what the kernel's second product is for."""
    q, cache, lengths = posed(SHAPE)
    right = attention(SHAPE, q, cache)
    for name in ("k_shift", "v_shift"):
        damaged = dataclasses.replace(cache, **{name: np.zeros_like(cache.k_shift)})
        out = decode(device, "streaming", SHAPE, FORCED[ARCH, 128], q, damaged, lengths).out
        assert np.abs(out - right).max() > 5 * TOLERANCE
