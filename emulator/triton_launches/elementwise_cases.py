"""Cases of elementwise.py."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from triton_launches import elementwise as kernels
from triton_launches.cases import FP8, Case, close, random, same
from triton_launches.machine import Machine, Tensor, room, tensor
from triton_launches.number_formats import PLAIN, Array, numbers, round_to

_N = 1000
_BLOCK = 256
_GRID = -(-_N // _BLOCK)
# units in the last place: bits of mantissa of the types
_MANTISSA = {"fp16": 10, "bf16": 7, "fp32": 23, "fp64": 52}
_INTEGERS = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")
_FLOATS = ("fp16", "bf16", "fp32", "fp64")


def cases(arch: str) -> Iterator[Case]:
    """All of this group."""
    yield from _operations()
    yield from _conversions(arch)
    for name in _FUNCTIONS:
        for kind in ("fp32", "fp64") if name != "sqrt_rn" else ("fp32",):
            yield Case(f"math {name} {kind}", functools.partial(_function, name, kind))
    for name in _LIBRARY:
        for kind in ("fp32", "fp64"):
            yield Case(f"libdevice {name} {kind}", functools.partial(_library, name, kind))
    yield Case("masked load", _masked_case)
    yield Case("loop until the data say so", _collatz)
    yield Case("philox", _philox)
    yield Case("low-memory dropout", _dropout)
    yield Case("normal distribution", _normal)


def _integers(kind: str, *names: Any) -> Array:
    limits = np.iinfo(PLAIN[kind])
    return random(kind, *names).integers(limits.min, limits.max, _N, PLAIN[kind], endpoint=True)


# ---- operations of two

# names of Triton's that aren't those of the cases
_TRITON = {"less": "__lt__", "equal": "__eq__", "div": "__truediv__", "shl": "__lshift__", "shr": "__rshift__"}
_TRITON |= {"max": "maximum", "min": "minimum"} | {name: name for name in ("umulhi", "div_rn", "fma")}


def _operations() -> Iterator[Case]:
    for kind in _INTEGERS:
        yield Case(f"add {kind}", functools.partial(_of_integers, "add", kind))
    for kind in ("i8", "i16", "i32", "i64", "u32", "u64"):
        for name in ("sub", "mul", "floordiv", "mod", "and", "or", "xor", "shl", "shr", "max", "min", "less", "equal"):
            yield Case(f"{name} {kind}", functools.partial(_of_integers, name, kind))
    for kind in ("u32", "u64"):
        yield Case(f"umulhi {kind}", functools.partial(_of_integers, "umulhi", kind))
    for kind in _FLOATS:
        for name in ("add", "sub", "mul", "div", "max", "min", "less", "fma"):
            yield Case(f"{name} {kind}", functools.partial(_of_floats, name, kind))
    yield Case("div_rn fp32", functools.partial(_of_floats, "div_rn", "fp32"))


def _of_integers(name: str, kind: str, machine: Machine) -> None:
    x, y = _integers(kind, name, "x"), _integers(kind, name, "y")
    width = PLAIN[kind].itemsize * 8
    if name in ("shl", "shr"):
        y = np.abs(y.astype(np.int64) % width).astype(PLAIN[kind])
    if name in ("floordiv", "mod"):
        y[y == 0] = 7
        y[::3] = np.clip(y[::3], 1, 100)  # quotients of more than a bit or two
    if name == "equal":
        y[::2] = x[::2]
    expected = _expected_integers(name, [int(value) for value in x], [int(value) for value in y], width)
    out = room(_N, kind)
    _combine(name, Tensor(x, kind), Tensor(y, kind), out, machine)
    mask = (1 << width) - 1
    same(out.bits, np.array([value & mask for value in expected], f"uint{width}").view(out.bits.dtype))


def _combine(name: str, x: Tensor, y: Tensor, out: Tensor, machine: Machine) -> None:
    what = _TRITON.get(name, f"__{name}__")
    machine.run(kernels.combined, _GRID, x=x, y=y, out=out, n=_N, WHAT=what, BLOCK=_BLOCK)


def _expected_integers(name: str, x: list[int], y: list[int], width: int) -> list[int]:
    """Operations on Python's integers; quotients are rounded towards zero, as in C."""
    operations: dict[str, Callable[[int, int], int]] = {
        "add": lambda a, b: a + b,
        "sub": lambda a, b: a - b,
        "mul": lambda a, b: a * b,
        "floordiv": lambda a, b: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1),
        "mod": lambda a, b: abs(a) % abs(b) * (-1 if a < 0 else 1),
        "and": lambda a, b: a & b,
        "or": lambda a, b: a | b,
        "xor": lambda a, b: a ^ b,
        "shl": lambda a, b: a << b,
        "shr": lambda a, b: a >> b,
        "max": max,
        "min": min,
        "less": lambda a, b: int(a < b),
        "equal": lambda a, b: int(a == b),
        "umulhi": lambda a, b: a * b >> width,
    }
    return [operations[name](a, b) for a, b in zip(x, y, strict=True)]


def _of_floats(name: str, kind: str, machine: Machine) -> None:
    x, y = (tensor(random(name, kind, operand).standard_normal(_N) * 3 + 0.01, kind) for operand in "xy")
    out = room(_N, kind)
    _combine(name, x, y, out, machine)
    a, b = x.values.astype(np.longdouble), y.values.astype(np.longdouble)
    exact = {
        "add": a + b,
        "sub": a - b,
        "mul": a * b,
        "div": a / b,
        "div_rn": a / b,
        "max": np.maximum(a, b),
        "min": np.minimum(a, b),
        "less": (a < b).astype(np.longdouble),
        "fma": a * b + a,
    }[name]
    last_place = 2.0 ** -_MANTISSA[kind]
    # of a sum of both signs the last place is that of the terms; a fast division is allowed 2.5 (OpenCL's)
    terms = np.abs(a) + np.abs(a * b) if name == "fma" else np.abs(exact)
    allowed = {"div": 2.5, "fma": 1.0}.get(name, 0.5)
    expected = exact.astype(np.float64)
    assert (np.abs(out.values - expected) <= (allowed * last_place * terms).astype(np.float64) * 1.0001).all(), name


# ---- conversions


def _conversions(arch: str) -> Iterator[Case]:
    for source in _FLOATS:
        for target in (*_FLOATS, "i8", "i16", "i32", "i64"):
            if source != target:
                yield Case(f"convert {source} to {target}", functools.partial(_convert, source, target))
    for source in ("i8", "i16", "i32", "i64", "u8", "u32", "u64"):
        for target in (*_FLOATS, "i8", "i32", "i64"):
            if source != target:
                yield Case(f"convert {source} to {target}", functools.partial(_convert, source, target))
    for small in sorted({*FP8[arch], "fp8e4nv", "fp8e5"}):
        for wide in ("fp16", "bf16", "fp32"):
            yield Case(f"convert {small} to {wide}", functools.partial(_widen, small, wide))
            yield Case(f"convert {wide} to {small}", functools.partial(_narrow, wide, small))
    yield Case("bits of fp32 as i32", functools.partial(_reinterpret, "fp32", "i32"))
    yield Case("bits of bf16 as i16", functools.partial(_reinterpret, "bf16", "i16"))


def _convert(source: str, target: str, machine: Machine) -> None:
    rng = random(source, target)
    largest = 100 if "i8" in (source, target) else 30000
    numbers_ = rng.integers(0 if "u" in source + target else -largest, largest, 1024)
    x = tensor(np.minimum(numbers_, 200 if source == "u8" else largest), source)
    if source in _FLOATS and target in _FLOATS:
        x = tensor(rng.standard_normal(1024) * 10.0 ** rng.integers(-6, 4, 1024), source)
    out = room(1024, target)
    machine.run(kernels.converted, 1, x=x, out=out, BITCAST=False, BLOCK=1024)
    if target in _FLOATS:
        same(out.values, round_to(x.values.astype(np.float64), target))
    else:
        same(out.values, np.trunc(x.values).astype(PLAIN[target]))


def _widen(small: str, wide: str, machine: Machine) -> None:
    """All codes; of types without an instruction, whose bits Triton shifts into a bf16, those that are finite."""
    x, out = Tensor(np.arange(256, dtype=np.uint8), small), room(256, wide)
    machine.run(kernels.converted, 1, x=x, out=out, BITCAST=False, BLOCK=256)
    shifted = wide == "bf16" and small not in FP8[machine.arch]
    compared = np.isfinite(numbers(small)) if shifted else np.ones(256, bool)
    close(out.values[compared], numbers(small)[compared], 0)


def _narrow(wide: str, small: str, machine: Machine) -> None:
    """Numbers within the range, those half-way between two codes among them."""
    representable = numbers(small)
    representable = np.sort(representable[np.isfinite(representable)])
    middle = (representable[1:] + representable[:-1]) / 2
    spread = random(wide, small).uniform(representable[0], representable[-1], 1024 - len(representable) - len(middle))
    x, out = tensor(np.concatenate([representable, middle, spread]), wide), room(1024, small)
    machine.run(kernels.converted, 1, x=x, out=out, BITCAST=False, BLOCK=1024)
    same(out.values, round_to(x.values, small))


def _reinterpret(source: str, target: str, machine: Machine) -> None:
    x, out = tensor(random(source).standard_normal(256), source), room(256, target)
    machine.run(kernels.converted, 1, x=x, out=out, BITCAST=True, BLOCK=256)
    same(out.bits.view(x.bits.dtype), x.bits)


# ---- functions: the exact one, the range of arguments, units in the last place of fp32

_erf = np.vectorize(math.erf, otypes=[float])
_FUNCTIONS: dict[str, tuple[Any, float, float, float]] = {
    "exp": (np.exp, -20, 20, 64),
    "exp2": (np.exp2, -20, 20, 64),
    "log": (np.log, 2, 1000, 8),
    "log2": (np.log2, 2, 1000, 8),
    "sin": (np.sin, 0.1, 3, 64),
    "cos": (np.cos, -1.4, 1.4, 64),
    "sqrt": (np.sqrt, 0, 1000, 3),
    "sqrt_rn": (np.sqrt, 0, 1000, 0.5),
    "rsqrt": (lambda a: 1 / np.sqrt(a), 0.01, 1000, 4),
    "erf": (_erf, 0.1, 3, 16),
    "floor": (np.floor, -100, 100, 0),
    "ceil": (np.ceil, -100, 100, 0),
    "abs": (np.abs, -100, 100, 0),
    "sigmoid": (lambda a: 1 / (1 + np.exp(-a)), -10, 10, 64),
}
_LIBRARY: dict[str, tuple[Any, float, float, float]] = {
    "acos": (np.arccos, -0.9, 0.9, 16),
    "acosh": (np.arccosh, 1.5, 100, 16),
    "asin": (np.arcsin, 0.1, 0.99, 16),
    "asinh": (np.arcsinh, 0.1, 100, 16),
    "atan": (np.arctan, 0.1, 100, 16),
    "atan2": (np.arctan2, 0.1, 100, 16),
    "atanh": (np.arctanh, 0.1, 0.99, 16),
    "ceil": (np.ceil, -100, 100, 0),
    "copysign": (np.copysign, -10, 10, 0),
    "cos": (np.cos, -1.4, 1.4, 16),
    "cosh": (np.cosh, -10, 10, 16),
    "erf": (_erf, 0.1, 3, 32),
    "erfc": (np.vectorize(math.erfc, otypes=[float]), -2, 3, 32),
    "expm1": (np.expm1, 0.1, 10, 16),
    "floor": (np.floor, -100, 100, 0),
    "fmod": (np.fmod, 1, 100, 0),
    "hypot": (np.hypot, 0.1, 100, 16),
    "lgamma": (np.vectorize(math.lgamma, otypes=[float]), 4, 100, 32),
    "log10": (np.log10, 2, 1000, 16),
    "log1p": (np.log1p, 0.1, 100, 16),
    "nextafter": (None, -10, 10, 0),
    "pow": (np.power, 0.5, 5, 32),
    "rint": (np.rint, -100, 100, 0),
    "rsqrt": (lambda a: 1 / np.sqrt(a), 0.01, 1000, 4),
    "sin": (np.sin, 0.1, 3, 16),
    "sinh": (np.sinh, 0.1, 10, 16),
    "sqrt": (np.sqrt, 0, 1000, 3),
    "tan": (np.tan, 0.1, 1.4, 32),
    "tanh": (np.tanh, 0.1, 10, 16),
    "trunc": (np.trunc, -100, 100, 0),
}
_OF_TWO = ("atan2", "copysign", "fmod", "hypot", "nextafter", "pow")


def _arguments(name: str, kind: str, low: float, high: float) -> tuple[Tensor, Tensor]:
    return tuple(tensor(random(name, operand).uniform(low, high, _N), kind) for operand in "xy")  # type: ignore[return-value]


def _function(name: str, kind: str, machine: Machine) -> None:
    exact, low, high, units = _FUNCTIONS[name]
    x, _ = _arguments(name, kind, low, high)
    out = room(_N, kind)
    machine.run(kernels.of_one, _GRID, x=x, out=out, n=_N, FUNCTION=name, BLOCK=_BLOCK)
    close(out.values, exact(x.values), max(units, 1.01 if units else 0) * 2.0 ** -_MANTISSA[kind])


def _library(name: str, kind: str, machine: Machine) -> None:
    exact, low, high, units = _LIBRARY[name]
    x, y = _arguments(name, kind, low, high)
    out = room(_N, kind)
    of_two = name in _OF_TWO
    machine.run(kernels.of_device_library, _GRID, x=x, y=y, out=out, n=_N, FUNCTION=name, OF_TWO=of_two, BLOCK=_BLOCK)
    operands = (x.values, y.values) if of_two else (x.values,)
    if name == "nextafter":  # depends on the type
        close(out.values, np.nextafter(x.bits, y.bits).astype(np.float64), 0)
    else:
        close(out.values, exact(*operands), units * 2.0 ** -_MANTISSA[kind])


# ---- masks, control flow, random numbers


def _masked_case(machine: Machine) -> None:
    """Load up to the end of the allocation: a lane that is masked out must not touch memory after it."""
    x, out = tensor(random("masked").standard_normal(100)), room(256)
    machine.run(kernels.filled_up, 1, x=x, out=out, n=100, VALUE=-2.5, BLOCK=256)
    same(out.values, np.concatenate([x.values, np.full(156, -2.5)]))


def _collatz(machine: Machine) -> None:
    start = np.arange(1, 41)
    x, out = tensor(start, "i32"), room(40, "i32")
    machine.run(kernels.collatz, 40, x=x, out=out)
    expected = []
    for value in map(int, start):
        steps = 0
        while value != 1:
            value, steps = (value // 2 if value % 2 == 0 else 3 * value + 1), steps + 1
        expected.append(steps)
    same(out.values, np.array(expected, np.int32))


def philox(counters: Array, seed: int) -> Array:
    """Philox 4x32 with 10 rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3"), a row a word."""
    state = [counters.astype(np.uint64), *(np.zeros(len(counters), np.uint64) for _ in range(3))]
    key, low = [seed & 0xFFFFFFFF, seed >> 32], np.uint64(0xFFFFFFFF)
    for _ in range(10):
        first, second = state[0] * np.uint64(0xD2511F53), state[2] * np.uint64(0xCD9E8D57)
        state = [
            (second >> np.uint64(32)) ^ state[1] ^ np.uint64(key[0]),
            second & low,
            (first >> np.uint64(32)) ^ state[3] ^ np.uint64(key[1]),
            first & low,
        ]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return np.array(state).astype(np.uint32)


def _uniform(bits: Array) -> Array:
    """Triton's number of [0, 1) for a word: its size as a signed one (of a negative one ``-x - 1``) over 2**31."""
    signed = bits.view(np.int32).astype(np.int64)
    return np.where(signed < 0, -signed - 1, signed) * np.float64(np.float32(4.6566127342e-10))


def _philox(machine: Machine) -> None:
    for seed in (0, 12345, 1 << 40 | 7):
        out = room((4, 256), "u32")
        machine.run(kernels.random_bits, 1, out=out, seed=seed, BLOCK=256)
        same(out.bits, philox(np.arange(256), seed))


def _dropout(machine: Machine) -> None:
    x, out = tensor(random("dropout").standard_normal(_N)), room(_N)
    machine.run(kernels.dropped, _GRID, x=x, out=out, n=_N, seed=123, p=0.25, BLOCK=_BLOCK)
    kept = _uniform(philox(np.arange(_N), 123)[0]) > 0.25
    close(out.values, np.where(kept, x.values / 0.75, 0), 2.0**-22)


def _normal(machine: Machine) -> None:
    """Box and Muller's transformation of the first two words."""
    out = room(1024)
    machine.run(kernels.normal, 4, out=out, seed=99, BLOCK=256)
    bits = philox(np.arange(1024), 99)
    u, v = np.maximum(_uniform(bits[0]), 1e-7), _uniform(bits[1])
    close(out.values, np.sqrt(-2 * np.log(u)) * np.cos(2 * np.pi * v), 1e-5, 1e-5)
