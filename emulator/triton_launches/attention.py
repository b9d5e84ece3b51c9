"""Attention in Triton, forward and backward, a head a program's second number: no tensor of scores is in memory."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _block(base, first, length, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """Rows of a (length, WIDTH) matrix, zeros after its end."""
    rows = first + tl.arange(0, BLOCK)
    across = tl.arange(0, WIDTH)
    return tl.load(base + rows[:, None] * WIDTH + across[None, :], mask=(rows < length)[:, None], other=0.0)


@triton.jit
def _visible(rows, columns, length, CAUSAL: tl.constexpr):
    """Mask of the scores of a tile that count."""
    seen = (rows < length)[:, None] & (columns < length)[None, :]
    if CAUSAL:
        seen = seen & (rows[:, None] >= columns[None, :])
    return seen


@triton.jit
def forward(q, k, v, out, logsum, length, scale, CAUSAL: tl.constexpr, WIDTH: tl.constexpr, BLOCK_M: tl.constexpr,
            BLOCK_N: tl.constexpr):  # fmt: skip
    """Softmax(q @ k.T * scale) @ v with a running maximum; ``logsum`` keeps the base-2 logarithm of each row's sum."""
    first, head = tl.program_id(0) * BLOCK_M, tl.program_id(1)
    matrix = head.to(tl.int64) * length * WIDTH
    rows = first + tl.arange(0, BLOCK_M)
    query = _block(q + matrix, first, length, WIDTH, BLOCK_M)
    highest = tl.full([BLOCK_M], -1e30, tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    result = tl.zeros([BLOCK_M, WIDTH], tl.float32)
    end = length
    if CAUSAL:
        end = tl.minimum(length, first + BLOCK_M)
    for start in range(0, end, BLOCK_N):
        columns = start + tl.arange(0, BLOCK_N)
        key = _block(k + matrix, start, length, WIDTH, BLOCK_N)
        scores = tl.dot(query, tl.trans(key)) * (scale * 1.4426950408889634)
        scores = tl.where(_visible(rows, columns, length, CAUSAL), scores, -1e30)
        higher = tl.maximum(highest, tl.max(scores, 1))
        p = tl.exp2(scores - higher[:, None])
        factor = tl.exp2(highest - higher)
        value = _block(v + matrix, start, length, WIDTH, BLOCK_N)
        result = tl.dot(p.to(value.dtype), value, result * factor[:, None])
        total = total * factor + tl.sum(p, 1)
        highest = higher
    at = rows[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
    inside = rows < length
    tl.store(out + matrix + at, (result / total[:, None]).to(out.dtype.element_ty), mask=inside[:, None])
    tl.store(logsum + head * length + rows, highest + tl.log2(total), mask=inside)


@triton.jit
def row_sums(out, grad, delta, length, WIDTH: tl.constexpr, BLOCK_M: tl.constexpr):
    """The dot product of each row of the output with its gradient, which the backward pass subtracts."""
    first, head = tl.program_id(0) * BLOCK_M, tl.program_id(1)
    matrix = head.to(tl.int64) * length * WIDTH
    rows = first + tl.arange(0, BLOCK_M)
    o = _block(out + matrix, first, length, WIDTH, BLOCK_M).to(tl.float32)
    do = _block(grad + matrix, first, length, WIDTH, BLOCK_M).to(tl.float32)
    tl.store(delta + head * length + rows, tl.sum(o * do, 1), mask=rows < length)


@triton.jit
def backward(q, k, v, grad, logsum, delta, dq, dk, dv, length, scale, CAUSAL: tl.constexpr, WIDTH: tl.constexpr,
             BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):  # fmt: skip
    """Gradients of a block of keys and values, which see every query; those of queries are added up by atomics."""
    first, head = tl.program_id(0) * BLOCK_N, tl.program_id(1)
    matrix = head.to(tl.int64) * length * WIDTH
    columns = first + tl.arange(0, BLOCK_N)
    key, value = _block(k + matrix, first, length, WIDTH, BLOCK_N), _block(v + matrix, first, length, WIDTH, BLOCK_N)
    of_key, of_value = tl.zeros([BLOCK_N, WIDTH], tl.float32), tl.zeros([BLOCK_N, WIDTH], tl.float32)
    across = tl.arange(0, WIDTH)
    for start in range(0, length, BLOCK_M):
        rows = start + tl.arange(0, BLOCK_M)
        inside = rows < length
        query, do = (
            _block(q + matrix, start, length, WIDTH, BLOCK_M),
            _block(grad + matrix, start, length, WIDTH, BLOCK_M),
        )
        sums = tl.load(logsum + head * length + rows, mask=inside, other=0.0)
        scores = tl.dot(query, tl.trans(key)) * (scale * 1.4426950408889634)
        p = tl.where(_visible(rows, columns, length, CAUSAL), tl.exp2(scores - sums[:, None]), 0.0)
        of_value = tl.dot(tl.trans(p.to(do.dtype)), do, of_value)
        ds = p * (tl.dot(do, tl.trans(value)) - tl.load(delta + head * length + rows, mask=inside, other=0.0)[:, None])
        ds = ds.to(query.dtype)
        of_key = tl.dot(tl.trans(ds), query, of_key)
        at = dq + matrix + rows[:, None] * WIDTH + across[None, :]
        tl.atomic_add(at, tl.dot(ds, key) * scale, mask=inside[:, None])
    at = matrix + columns[:, None] * WIDTH + across[None, :]
    inside = (columns < length)[:, None]
    tl.store(dk + at, of_key * scale, mask=inside)
    tl.store(dv + at, of_value, mask=inside)
