"""Triton kernels that handle elements one by one: arithmetic, conversions, functions of both kinds of libraries."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    """``x + y`` of ``n`` elements; the last program's block is not full."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(out + at, tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside), mask=inside)


@triton.jit
def combined(x, y, out, n, WHAT: tl.constexpr, BLOCK: tl.constexpr):
    """A binary operation by its name."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a, b = tl.load(x + at, mask=at < n), tl.load(y + at, mask=at < n, other=1)
    if WHAT == "sub":
        c = a - b
    elif WHAT == "mul":
        c = a * b
    elif WHAT == "div":
        c = a / b
    elif WHAT == "floordiv":
        c = a // b
    elif WHAT == "mod":
        c = a % b
    elif WHAT == "and":
        c = a & b
    elif WHAT == "or":
        c = a | b
    elif WHAT == "xor":
        c = a ^ b
    elif WHAT == "shl":
        c = a << b
    elif WHAT == "shr":
        c = a >> b
    elif WHAT == "max":
        c = tl.maximum(a, b)
    elif WHAT == "min":
        c = tl.minimum(a, b)
    elif WHAT == "umulhi":
        c = tl.umulhi(a, b)
    elif WHAT == "less":
        c = a < b
    elif WHAT == "equal":
        c = a == b
    elif WHAT == "div_rn":
        c = tl.div_rn(a, b)
    else:
        c = tl.fma(a, b, a)
    tl.store(out + at, c.to(out.dtype.element_ty), mask=at < n)


@triton.jit
def converted(x, out, BLOCK: tl.constexpr):
    """Elements in another type."""
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at).to(out.dtype.element_ty))


@triton.jit
def reinterpreted(x, out, BLOCK: tl.constexpr):
    """The same bits in another type of the same size."""
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at).to(out.dtype.element_ty, bitcast=True))


@triton.jit
def of_one(x, out, n, FUNCTION: tl.constexpr, BLOCK: tl.constexpr):
    """A function of Triton's own, by name."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(x + at, mask=at < n, other=0.5)
    if FUNCTION == "exp":
        c = tl.exp(a)
    elif FUNCTION == "exp2":
        c = tl.exp2(a)
    elif FUNCTION == "log":
        c = tl.log(a)
    elif FUNCTION == "log2":
        c = tl.log2(a)
    elif FUNCTION == "sin":
        c = tl.sin(a)
    elif FUNCTION == "cos":
        c = tl.cos(a)
    elif FUNCTION == "sqrt":
        c = tl.sqrt(a)
    elif FUNCTION == "sqrt_rn":
        c = tl.sqrt_rn(a)
    elif FUNCTION == "rsqrt":
        c = tl.rsqrt(a)
    elif FUNCTION == "erf":
        c = tl.erf(a)
    elif FUNCTION == "floor":
        c = tl.floor(a)
    elif FUNCTION == "ceil":
        c = tl.ceil(a)
    elif FUNCTION == "abs":
        c = tl.abs(a)
    else:
        c = tl.sigmoid(a)
    tl.store(out + at, c, mask=at < n)


@triton.jit
def of_device_library(x, y, out, n, FUNCTION: tl.constexpr, BLOCK: tl.constexpr):
    """A function of one or two arguments of AMD's device library."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a, b = tl.load(x + at, mask=at < n, other=0.5), tl.load(y + at, mask=at < n, other=0.5)
    if FUNCTION == "atan2":
        c = libdevice.atan2(a, b)
    elif FUNCTION == "pow":
        c = libdevice.pow(a, b)
    elif FUNCTION == "hypot":
        c = libdevice.hypot(a, b)
    elif FUNCTION == "fmod":
        c = libdevice.fmod(a, b)
    elif FUNCTION == "copysign":
        c = libdevice.copysign(a, b)
    elif FUNCTION == "nextafter":
        c = libdevice.nextafter(a, b)
    else:
        c = getattr(libdevice, FUNCTION)(a)
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
