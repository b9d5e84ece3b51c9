"""Triton kernels that handle elements one by one: arithmetic, conversions, functions of both kinds of libraries."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def combined(x, y, out, n, WHAT: tl.constexpr, BLOCK: tl.constexpr):
    """A binary operation: a method of tensors (``__sub__``), or a function of Triton's."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a, b = tl.load(x + at, mask=at < n), tl.load(y + at, mask=at < n, other=1)
    if WHAT == "fma":
        c = tl.fma(a, b, a)
    elif hasattr(a, WHAT):
        c = getattr(a, WHAT)(b)
    else:
        c = getattr(tl, WHAT)(a, b)
    tl.store(out + at, c.to(out.dtype.element_ty), mask=at < n)


@triton.jit
def converted(x, out, BITCAST: tl.constexpr, BLOCK: tl.constexpr):
    """Elements in another type, or the same bits in one of the same size."""
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at).to(out.dtype.element_ty, bitcast=BITCAST))


@triton.jit
def of_one(x, out, n, FUNCTION: tl.constexpr, BLOCK: tl.constexpr):
    """A function of Triton's own, by name."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(x + at, mask=at < n, other=0.5)
    tl.store(out + at, getattr(tl, FUNCTION)(a), mask=at < n)


@triton.jit
def of_device_library(x, y, out, n, FUNCTION: tl.constexpr, OF_TWO: tl.constexpr, BLOCK: tl.constexpr):
    """A function of one or two arguments of AMD's device library."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a, b = tl.load(x + at, mask=at < n, other=0.5), tl.load(y + at, mask=at < n, other=0.5)
    c = getattr(libdevice, FUNCTION)(a, b) if OF_TWO else getattr(libdevice, FUNCTION)(a)
    tl.store(out + at, c.to(out.dtype.element_ty), mask=at < n)


@triton.jit
def filled_up(x, out, n, VALUE: tl.constexpr, BLOCK: tl.constexpr):
    """Values of a masked load where the mask is false, from addresses of which only ``n`` may be read."""
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n, other=VALUE))


@triton.jit
def collatz(x, out):
    """Steps of the Collatz sequence: a loop whose length the data decide, in one program an element."""
    value = tl.load(x + tl.program_id(0))
    steps = 0
    while value != 1:
        value = value // 2 if value % 2 == 0 else 3 * value + 1
        steps += 1
    tl.store(out + tl.program_id(0), steps)


@triton.jit
def dropped(x, out, n, seed, p, BLOCK: tl.constexpr):
    """Dropout that keeps no mask: Philox at the element's number, kept elements divided by ``1 - p``."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n)
    kept = tl.rand(seed, at) > p
    tl.store(out + at, tl.where(kept, value / (1 - p), 0.0), mask=at < n)


@triton.jit
def random_bits(out, seed, BLOCK: tl.constexpr):
    """The four words of Philox of each number, in rows."""
    at = tl.arange(0, BLOCK)
    a, b, c, d = tl.randint4x(seed, at)
    for_row = out + at
    tl.store(for_row, a.to(tl.uint32))
    tl.store(for_row + BLOCK, b.to(tl.uint32))
    tl.store(for_row + 2 * BLOCK, c.to(tl.uint32))
    tl.store(for_row + 3 * BLOCK, d.to(tl.uint32))


@triton.jit
def normal(out, seed, BLOCK: tl.constexpr):
    """Numbers of a normal distribution."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.randn(seed, at))
