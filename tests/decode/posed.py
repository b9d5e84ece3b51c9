"""Decode problems with random numbers, their answers in float64, and a process for each arch's emulated device."""

from __future__ import annotations

import dataclasses
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np

from ckpm.attention.launch import encodings
from ckpm.attention.launch.device import EmulatedDevice
from ckpm.base.errors import DeviceError
from ckpm.decode.attention import compiled_stages, decode
from ckpm.decode.problem import (
    Array,
    Cache,
    DecodeLaunch,
    DecodeShape,
    attention_candidate,
    quantise,
    reduction_candidate,
)

CAPACITY = 256
LENGTHS = (1, 32, 150, 256)  # a single token, a whole step, splits without tokens, a full cache
SHAPE = DecodeShape(heads_kv=2, heads_q=4, head_dim=128, groups=4, splits=4, page_size=0, stored="fp8")
BEYOND = 1 << 20  # a page that no pool has

_processes: dict[str, ProcessPoolExecutor] = {}
_device: EmulatedDevice | None = None


def worst(arch: str, form: str, shape: DecodeShape, launch: DecodeLaunch, damage: str = "") -> float:
    """The largest difference from float64, on an emulated device in a process of its own: one has one arch.

    ``damage``: ``pages`` names a page beyond the pool, another field of the cache is set to zeros for the kernel alone.

    Raises DeviceError.
    """
    if arch not in _processes:
        _processes[arch] = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))
    return _processes[arch].submit(_worst, arch, form, shape, launch, damage).result(timeout=600)


def end() -> None:
    for process in _processes.values():
        process.shutdown()


def make_inputs(shape: DecodeShape, arch: str) -> tuple[Any, Cache, Any]:
    rng = np.random.default_rng(1)
    slots = len(LENGTHS) * max(CAPACITY, shape.page_size)
    k, v = (rng.standard_normal((slots, shape.heads_kv, shape.head_dim)) + 0.5 for _ in range(2))
    (kb, ks, kh), (vb, vs, vh) = (quantise(values, shape.groups, shape.stored, arch) for values in (k, v))
    q = rng.standard_normal((len(LENGTHS), shape.heads_kv * shape.heads_q, shape.head_dim))
    q = encodings.decode(encodings.encode(q, "bf16", arch), "bf16", arch)
    pages = None
    if shape.page_size:
        pages = rng.permutation(slots // shape.page_size).astype(np.int32).reshape(len(LENGTHS), -1)
    cache = Cache(k=kb, v=vb, k_scale=ks, k_shift=kh, v_scale=vs, v_shift=vh, pages=pages)
    return q, cache, np.array(LENGTHS, np.int32)


def attention(shape: DecodeShape, arch: str, q: Any, cache: Cache) -> Any:
    """Softmax(q . k / sqrt(d)) . v in float64, head by head."""
    k = dequantise(cache.k, cache.k_scale, cache.k_shift, shape.stored, arch)
    v = dequantise(cache.v, cache.v_scale, cache.v_shift, shape.stored, arch)
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


def _worst(arch: str, form: str, shape: DecodeShape, launch: DecodeLaunch, damage: str) -> float:
    global _device
    _device = _device or EmulatedDevice(arch)
    stages = compiled_stages((attention_candidate(form, shape, launch, arch), reduction_candidate(shape, arch)))
    q, cache, lengths = make_inputs(shape, arch)
    right, posed_cache = attention(shape, arch, q, cache), cache
    if damage == "pages":
        posed_cache = dataclasses.replace(cache, pages=np.full_like(cache.pages, BEYOND))
    elif damage:
        posed_cache = dataclasses.replace(cache, **{damage: np.zeros_like(getattr(cache, damage))})
    try:
        return float(np.abs(decode(_device, stages, shape, launch, q, posed_cache, lengths).out - right).max())
    except DeviceError as error:
        _device.recover()
        raise DeviceError(str(error)) from None  # whose cause can't be sent to another process


def dequantise(stored_bytes: Array, scale: Array, shift: Array, stored: str, arch: str) -> Array:
    """The float64 values of a cache, (slots, heads, head_dim)."""
    numbers = stored_bytes.astype(np.float64) if stored == "int8" else encodings.decode(stored_bytes, "fp8", arch)
    grouped = numbers.reshape(*numbers.shape[:2], scale.shape[-1], -1)
    whole = grouped * scale[..., None].astype(np.float64) + shift[..., None]
    return whole.reshape(numbers.shape)
