"""AITER's forward attention (fmha_v3_fwd): shapes, arguments and the float64 reference.

The kernels read K and V up to a tile beyond their last row (docs/upstream/aiter-objects.md), so each has such a tail.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ckpm.attention.launch.encodings import decode, encode
from ckpm.attention.reference import exact, inputs_of
from ckpm.attention.tolerances import compare, lse_tolerance, o_tolerance
from ckpm.matrix.problems.problem import Problem
from tests.programs.objects.launching import Array, Launch, Machine, Memory
from tests.programs.objects.package import CodeObject

TAIL_ROWS, TAIL = 256, 2.0  # beyond each tensor: more than a tile
_TUNING, _FEW_HEADS = 5, 3  # s_opt of the host code: 3 under a mask, unless the count of heads is a multiple of 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Lengths of each sequence. In batch mode all have one length."""

    seqlens_q: tuple[int, ...]
    seqlens_k: tuple[int, ...]
    nhead_q: int
    nhead_k: int


BATCH = (
    Shape(seqlens_q=(300, 300), seqlens_k=(333, 333), nhead_q=4, nhead_k=2),
    Shape(seqlens_q=(513,), seqlens_k=(544,), nhead_q=8, nhead_k=1),
)
GROUP = (
    Shape(seqlens_q=(300, 129), seqlens_k=(333, 257), nhead_q=4, nhead_k=2),
    Shape(seqlens_q=(1, 513), seqlens_k=(64, 544), nhead_q=8, nhead_k=8),
)


def numbers(generator: np.random.Generator, shape: Sequence[int], arch: str) -> Array:
    """Random numbers that bf16 holds."""
    return decode(encode(generator.standard_normal(shape), "bf16", arch), "bf16", arch)


def problem(arch: str, shape: Shape, *, mode: str, hdim_q: int, hdim_v: int, causal: bool) -> Problem:
    """The call as one problem."""
    return Problem(
        arch=arch,
        mode=mode,
        batch=len(shape.seqlens_q),
        seqlen_q=max(shape.seqlens_q),
        seqlen_k=max(shape.seqlens_k),
        nhead_q=shape.nhead_q,
        nhead_k=shape.nhead_k,
        hdim_q=hdim_q,
        hdim_v=hdim_v,
        mask="bottom_right" if causal else "no",
        window_right=0 if causal else -1,
        lse=True,
    )


def strides(name: str, row: int, head: int, batch: int, size: int = 2) -> dict[str, int]:
    """The three strides of a tensor in bytes."""
    return {f"{name}_row": row * size, f"{name}_head": head * size, f"{name}_batch": batch * size}


def check(machine: Machine, code: CodeObject) -> None:
    """Launch the kernel for each shape and compare O and LSE.

    Raises:
        AssertionError: another result.
        DeviceError: the device lacks an instruction, or the launch faults.
    """
    group = "group" in code.name_parts
    for number, shape in enumerate(GROUP if group else BATCH):
        with machine.memory() as memory:
            for line in _run(machine, memory, code, shape, np.random.default_rng(number), group=group):
                assert line.passed, str(line)


def _run(
    machine: Machine, memory: Memory, code: CodeObject, shape: Shape, generator: np.random.Generator, *, group: bool
) -> Iterator[Any]:
    arch, hdim_q = machine.arch, 192 if "hd192" in code.name_parts else 128
    hdim_v, causal = 128, "causal" in code.name_parts
    posed = problem(arch, shape, mode="group" if group else "batch", hdim_q=hdim_q, hdim_v=hdim_v, causal=causal)
    q = [numbers(generator, (length, shape.nhead_q, hdim_q), arch) for length in shape.seqlens_q]
    k = [numbers(generator, (length, shape.nhead_k, hdim_q), arch) for length in shape.seqlens_k]
    v = [numbers(generator, (length, shape.nhead_k, hdim_v), arch) for length in shape.seqlens_k]
    inputs = inputs_of(posed, q, k, v)
    expected = exact(inputs)
    total_q = sum(shape.seqlens_q)
    o = memory.room((total_q + TAIL_ROWS, shape.nhead_q, hdim_v), np.uint16)
    lse = memory.room((shape.nhead_q, total_q), np.float32)
    values = {
        **_sizes(posed, shape, total_q, group=group),
        **{name: upload(memory, rows, arch) for name, rows in (("q", q), ("k", k), ("v", v))},
        **starts(memory, shape),
        **{"o": o, "lse": lse, "scale": posed.softmax_scale, "store_lse": 1},
    }
    tile = 128 if hdim_q == 192 else 256
    values["q_tile"] = tile * values["q_row"]
    tiles = -(-posed.seqlen_q // tile)
    tiles = -(-tiles // 2) if causal else tiles  # a workgroup has two of them
    heads, batch = shape.nhead_q, posed.batch
    grid = (heads, batch, tiles) if group else (tiles, heads, batch)
    machine.launch(code, Launch("fmha_v3_fwd", grid, 256 if hdim_q == 192 else 512, values))
    computed = decode(memory.read(o, (total_q, heads, hdim_v), np.uint16), "bf16", arch)
    yield compare("o", computed, expected.o, o_tolerance(inputs.problem, expected))
    rows = memory.read(lse, (heads, total_q), np.float32).astype(np.float64)
    if not group:
        rows = rows.reshape(batch, heads, -1).transpose(1, 0, 2).reshape(heads, -1)
    yield compare("lse", rows, expected.lse, lse_tolerance(inputs.problem, expected))


def _sizes(posed: Problem, shape: Shape, total_q: int, *, group: bool) -> dict[str, int]:
    heads, kv_heads = shape.nhead_q, shape.nhead_k
    few = posed.mask != "no" and heads % 8 != 0
    return {
        **{"seqlen_q": posed.seqlen_q, "seqlen_k": posed.seqlen_k, "hdim_q": posed.hdim_q, "hdim_v": posed.hdim_v},
        **{"nhead_q": heads, "gqa": heads // kv_heads, "tuning": _FEW_HEADS if few else _TUNING},
        **strides("q", heads * posed.hdim_q, posed.hdim_q, posed.seqlen_q * heads * posed.hdim_q),
        **strides("k", kv_heads * posed.hdim_q, posed.hdim_q, posed.seqlen_k * kv_heads * posed.hdim_q),
        **strides("v", kv_heads * posed.hdim_v, posed.hdim_v, posed.seqlen_k * kv_heads * posed.hdim_v),
        **strides("o", heads * posed.hdim_v, posed.hdim_v, posed.seqlen_q * heads * posed.hdim_v),
        "lse_head": 4 * (total_q if group else posed.seqlen_q),
    }


def upload(memory: Memory, sequences: Sequence[Array], arch: str) -> Any:
    """The rows of all sequences and a tail."""
    rows = np.concatenate(sequences)
    tail = np.full((TAIL_ROWS, *rows.shape[1:]), TAIL)
    return memory.upload(encode(np.concatenate([rows, tail]), "bf16", arch))


def starts(memory: Memory, shape: Shape) -> Mapping[str, Any]:
    """The first rows of sequences, which have no padding between them."""
    first = {
        name: memory.upload(np.cumsum((0, *lengths), dtype=np.int32))
        for name, lengths in (("start_q", shape.seqlens_q), ("start_k", shape.seqlens_k))
    }
    return {**first, "start_padded_q": first["start_q"], "start_padded_k": first["start_k"]}
