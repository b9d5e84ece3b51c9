"""Triton kernels that combine elements: reductions, scans, sorting, gathering, atomics, changes of shape."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def reduced(x, out, WHAT: tl.constexpr, AXIS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """A reduction of a tile along an axis by a function of Triton's."""
    rows, columns = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    tile = tl.load(x + rows[:, None] * COLUMNS + columns[None, :])
    result = getattr(tl, WHAT)(tile, AXIS)
    if AXIS == 0:
        tl.store(out + columns, result)
    else:
        tl.store(out + rows, result)


@triton.jit
def _welford(mean_a, square_a, weight_a, mean_b, square_b, weight_b):
    """Combine mean, sum of squared differences and weight of two parts."""
    weight = weight_a + weight_b
    share = weight_b / weight
    delta = mean_b - mean_a
    return mean_a + delta * share, square_a + square_b + delta * delta * weight_a * share, weight


@triton.jit
def variance(x, out, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Variance of each row by a reduction with a function of our own over three tensors."""
    rows, columns = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    tile = tl.load(x + rows[:, None] * COLUMNS + columns[None, :])
    _mean, square, weight = tl.reduce((tile, tl.zeros_like(tile), tl.full(tile.shape, 1.0, tl.float32)), 1, _welford)
    tl.store(out + rows, square / weight)


@triton.jit
def _recurrence(decay_a, value_a, decay_b, value_b):
    """Two steps of ``state = decay * state + value`` as one."""
    return decay_a * decay_b, value_a * decay_b + value_b


@triton.jit
def scanned(x, y, out, WHAT: tl.constexpr, REVERSE: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """A scan along rows, by its name."""
    at = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    tile = tl.load(x + at)
    if WHAT == "cumsum":
        result = tl.cumsum(tile, 1, reverse=REVERSE)
    elif WHAT == "cumprod":
        result = tl.cumprod(tile, 1, reverse=REVERSE)
    else:
        _decay, result = tl.associative_scan((tl.load(y + at), tile), 1, _recurrence, reverse=REVERSE)
    tl.store(out + at, result)


@triton.jit
def ordered(x, out, DESCENDING: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Each row sorted."""
    at = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    tl.store(out + at, tl.sort(tl.load(x + at), descending=DESCENDING))


@triton.jit
def largest(x, out, K: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """The K largest of each row, in descending order."""
    rows = tl.arange(0, ROWS)[:, None]
    tile = tl.load(x + rows * COLUMNS + tl.arange(0, COLUMNS)[None, :])
    tl.store(out + rows * K + tl.arange(0, K)[None, :], tl.topk(tile, K))


@triton.jit
def counted(x, out, n, BINS: tl.constexpr, BLOCK: tl.constexpr):
    """A histogram of ``n`` numbers below BINS."""
    at = tl.arange(0, BLOCK)
    counts = tl.histogram(tl.load(x + at, mask=at < n, other=0), BINS, mask=at < n)
    tl.store(out + tl.arange(0, BINS), counts)


@triton.jit
def gathered(x, index, out, AXIS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Elements at indices along an axis."""
    at = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    tl.store(out + at, tl.gather(tl.load(x + at), tl.load(index + at), AXIS))


@triton.jit
def reshaped(x, out, WHAT: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """A change of shape that moves elements, by its name; the result is stored in its own order."""
    tile = tl.load(x + tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :])
    if WHAT == "transpose":
        result = tl.trans(tile)
    elif WHAT == "flip":
        result = tl.flip(tile, 1)
    elif WHAT == "permute":
        result = tl.permute(tl.reshape(tile, [4, ROWS // 4, COLUMNS]), [1, 2, 0])
    elif WHAT == "split":
        left, right = tl.split(tl.reshape(tile, [ROWS, COLUMNS // 2, 2]))
        result = tl.join(right, left)
    elif WHAT == "interleave":
        left, right = tl.split(tl.reshape(tile, [ROWS, COLUMNS // 2, 2]))
        result = tl.interleave(left, left + right)
    else:
        result = tl.broadcast_to(tl.sum(tile, 1)[:, None], [ROWS, COLUMNS])
    flat = tl.reshape(result, [ROWS * COLUMNS])
    tl.store(out + tl.arange(0, ROWS * COLUMNS), flat)


@triton.jit
def atomically(x, index, out, before, n, WHAT: tl.constexpr, BLOCK: tl.constexpr):
    """An atomic operation of each element on ``out[index]``: "add relaxed", or a function of Triton's.

    ``before`` gets what was there.
    """
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    value, pointer = tl.load(x + at, mask=inside), out + tl.load(index + at, mask=inside, other=0)
    if WHAT == "add relaxed":
        old = tl.atomic_add(pointer, value, mask=inside, sem="relaxed", scope="cta")
    else:
        old = getattr(tl, WHAT)(pointer, value, mask=inside)
    tl.store(before + at, old, mask=inside)


@triton.jit
def locked_sum(x, lock, total, BLOCK: tl.constexpr):
    """Add up sums of programs under a lock of compare-and-swap."""
    part = tl.sum(tl.load(x + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)))
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(total, tl.load(total) + part)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


@triton.jit
def softmax(x, out, columns, BLOCK: tl.constexpr):
    """Softmax of a row a program."""
    at = tl.program_id(0) * columns + tl.arange(0, BLOCK)
    inside = tl.arange(0, BLOCK) < columns
    row = tl.load(x + at, mask=inside, other=-float("inf"))
    power = tl.exp(row - tl.max(row, 0))
    tl.store(out + at, power / tl.sum(power, 0), mask=inside)


@triton.jit
def softmax_persistent(x, out, rows, columns, BLOCK: tl.constexpr):
    """Softmax of every row, by programs that take one after the other in a pipelined loop."""
    across = tl.arange(0, BLOCK)
    inside = across < columns
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0), num_stages=2):
        values = tl.load(x + row * columns + across, mask=inside, other=-float("inf"))
        power = tl.exp2((values - tl.max(values, 0)) * 1.4426950408889634)
        tl.store(out + row * columns + across, power / tl.sum(power, 0), mask=inside)


@triton.jit
def layer_norm(x, weight, bias, out, means, scales, columns, epsilon, BLOCK: tl.constexpr):
    """``(row - mean) / sqrt(variance + epsilon) * weight + bias``; mean and reciprocal root are kept."""
    row, across = tl.program_id(0), tl.arange(0, BLOCK)
    inside = across < columns
    values = tl.load(x + row * columns + across, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(values, 0) / columns
    apart = tl.where(inside, values - mean, 0.0)
    scale = 1 / tl.sqrt(tl.sum(apart * apart, 0) / columns + epsilon)
    tl.store(means + row, mean)
    tl.store(scales + row, scale)
    w, b = tl.load(weight + across, mask=inside), tl.load(bias + across, mask=inside)
    tl.store(out + row * columns + across, (apart * scale * w + b).to(out.dtype.element_ty), mask=inside)


@triton.jit
def layer_norm_backward(x, weight, grad, means, scales, dx, dw, db, columns, BLOCK: tl.constexpr):
    """Gradients of a row's input; those of weight and bias are added up by atomics."""
    row, across = tl.program_id(0), tl.arange(0, BLOCK)
    inside = across < columns
    values = tl.load(x + row * columns + across, mask=inside, other=0.0).to(tl.float32)
    upstream = tl.load(grad + row * columns + across, mask=inside, other=0.0).to(tl.float32)
    w = tl.load(weight + across, mask=inside, other=0.0)
    scale = tl.load(scales + row)
    normal = tl.where(inside, (values - tl.load(means + row)) * scale, 0.0)
    weighted = upstream * w
    projection = tl.sum(normal * weighted, 0) / columns
    centre = tl.sum(weighted, 0) / columns
    gradient = (weighted - normal * projection - centre) * scale
    tl.store(dx + row * columns + across, gradient.to(dx.dtype.element_ty), mask=inside)
    tl.atomic_add(dw + across, upstream * normal, mask=inside)
    tl.atomic_add(db + across, upstream, mask=inside)
