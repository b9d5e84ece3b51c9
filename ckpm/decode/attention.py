"""Decode attention on the emulated device: both stages compiled by Triton, launched as Triton's runtime does it."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ckpm.attention.launch import encodings
from ckpm.attention.launch.device import EmulatedDevice
from ckpm.attention.launch.hip_api import Memory
from ckpm.attention.launch.kv_pool import Buffer
from ckpm.attention.launch.launching import host_buffers, upload
from ckpm.decode.guard.candidates import Candidate
from ckpm.decode.guard.compiling import Code, compile_candidate, function_of
from ckpm.decode.problem import Array, Cache, DecodeLaunch, DecodeShape

SOURCE = Path(__file__).with_name("splitk.py")
_LANES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """The output, (sequences, heads, head_dim), as float32 of the kernels' bf16; the counters of both stages."""

    out: Array
    counters: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stages:
    """Code of both kernels: attention of each split, and the sum over the splits."""

    attention: Code
    reduction: Code


def compiled_stages(candidates: tuple[Candidate, Candidate]) -> Stages:
    """Compile both stages."""
    first, second = (compile_candidate(function_of(SOURCE, candidate.kernel), candidate) for candidate in candidates)
    return Stages(attention=first, reduction=second)


def decode(
    device: EmulatedDevice,
    stages: Stages,
    shape: DecodeShape,
    launch: DecodeLaunch,
    q: Array,
    cache: Cache,
    lengths: Array,
    after_first: Callable[[], None] = lambda: None,
) -> Decoded:
    """Attention of one token of each sequence, ``q`` (sequences, heads_kv * heads_q, head_dim), softmax over lengths.

    ``stages`` are of this shape and launch, and of the device's arch. ``after_first`` is called between the
    two launches, because a device keeps only the recording of the last launch.
    """
    sequences, heads = len(lengths), shape.heads_kv * shape.heads_q
    capacity = cache.pages.shape[1] if cache.pages is not None else cache.k.shape[0] // sequences
    pages = cache.pages if cache.pages is not None else np.zeros(1, np.int32)
    inputs = {
        "q": encodings.encode(q, "bf16", device.arch), "k": cache.k, "v": cache.v, "k_scale": cache.k_scale,
        "k_shift": cache.k_shift, "v_scale": cache.v_scale, "v_shift": cache.v_shift,
    }  # fmt: skip
    rows = 4 * sequences * heads * shape.splits
    outputs = {"parts": rows * shape.head_dim, "sums": rows, "out": 2 * q.size}
    rest = {"lengths": np.asarray(lengths, np.int32), "pages": pages}
    unwritten = {name: Buffer(size=size) for name, size in outputs.items()}
    with upload(device, host_buffers(inputs, {}) | unwritten | host_buffers(rest, {})) as memory:
        parts, sums, out = (memory[name] for name in outputs)
        numbers = [ctypes.c_int32(capacity), ctypes.c_float(math.log2(math.e) / math.sqrt(shape.head_dim))]
        device.reset_counters()
        grid = (sequences, shape.heads_kv, shape.splits)
        buffers = [buffer for name, buffer in memory.items() if name != "out"]
        _launch(device, stages.attention, grid, launch.num_warps, buffers, numbers)
        after_first()
        _launch(device, stages.reduction, (sequences * heads, 1, 1), 1, [parts, sums, out])
        answer = encodings.decode(device.hip.read(out, np.uint16, q.shape), "bf16", device.arch)
        return Decoded(out=answer.astype(np.float32), counters=dict(device.counters()))


def _launch(
    device: EmulatedDevice,
    code: Code,
    grid: tuple[int, int, int],
    warps: int,
    buffers: list[Memory],
    numbers: list[Any] | None = None,
) -> None:
    """Launch a kernel. Triton appends two scratch pointers to the arguments, which these kernels don't use."""
    pointers = [ctypes.c_uint64(buffer.address) for buffer in buffers]
    arguments = [*pointers, *(numbers or []), ctypes.c_uint64(0), ctypes.c_uint64(0)]
    device.launch_code(code.binary, code.symbol, grid, _LANES * warps, arguments, code.lds_bytes)
