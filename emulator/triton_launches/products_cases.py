"""Cases of products.py and attention.py."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np

from triton_launches import attention
from triton_launches import products as kernels
from triton_launches.cases import FP8, Case, close, random, same
from triton_launches.machine import Addresses, Machine, Tensor, room, tensor
from triton_launches.number_formats import Array, numbers

_M, _N, _K = 100, 70, 96  # no multiples of the tiles
_TILE = {"BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 32}
# of elements of size 1, relative to what is summed: the accumulator has float32, the first of bf16x3 its 16 bits
_FLOAT32 = 2.0**-18


def cases(arch: str) -> Iterator[Case]:
    """All of this group."""
    kinds = ("fp16", "bf16", "fp32", "fp64", "i8", *FP8[arch])
    for kind in kinds:
        for deep in (16, 32, 64) if kind != "i8" else (32, 64):
            yield Case(f"matmul {kind} K {deep}", functools.partial(_product, kind, "ieee", deep, False))
    yield Case("matmul fp16 leaky", functools.partial(_product, "fp16", "ieee", 32, True))
    for precision in ("bf16x3", "bf16x6", *(["tf32"] if arch == "gfx942" else [])):
        yield Case(f"matmul fp32 {precision}", functools.partial(_product, "fp32", precision, 32, False))
    first, second = FP8[arch]
    yield Case(f"matmul {first} by {second}", functools.partial(_launch, first, second, {}))
    yield Case(f"matmul {second} by {first}", functools.partial(_launch, second, first, {}))
    if arch == "gfx942":
        yield Case("matmul fp8e4nv, in fp16", functools.partial(_product, "fp8e4nv", "ieee", 32, False))
    for warps in (1, 2, 8):
        yield Case(f"matmul fp16 {warps} warps", functools.partial(_launch, "fp16", "fp16", {"num_warps": warps}))
    for wide in (16, 32):
        options = {"matrix_instr_nonkdim": wide, "num_stages": 3}
        yield Case(f"matmul fp16 instruction {wide}", functools.partial(_launch, "fp16", "fp16", options))
    yield Case("matmul persistent", functools.partial(_by_kernel, kernels.persistent, 5, {"GROUP": 2}))
    yield Case("grouped gemm", _grouped_case)
    yield Case("matmul split along K", functools.partial(_by_kernel, kernels.split, (4, 3, _K // 32), {}))
    for kind in ("fp16", "fp32"):
        yield Case(f"batched matmul {kind}", functools.partial(_batched_case, kind))
    for a, b in _SCALED:
        yield Case(f"dot_scaled {a} by {b}", functools.partial(_scaled_case, a, b))
    for causal in (False, True):
        for kind in ("fp16", "bf16"):
            for width in (64, 128):
                word = f"{kind} d{width}{' causal' * causal}"
                yield Case(f"attention forward {word}", functools.partial(_attention, kind, width, causal, False))
        yield Case(
            f"attention backward fp16{' causal' * causal}", functools.partial(_attention, "fp16", 64, causal, True)
        )


def _operands(a: str, b: str) -> tuple[Tensor, Tensor]:
    rng = random("operands", a, b)
    if a == "i8":
        return Tensor(rng.integers(-128, 128, (_M, _K), np.int8), a), Tensor(
            rng.integers(-128, 128, (_K, _N), np.int8), b
        )
    return tensor(rng.standard_normal((_M, _K)), a), tensor(rng.standard_normal((_K, _N)), b)


def _tiles() -> int:
    return -(-_M // 32) * -(-_N // 32)


def _compare(out: Tensor, a: Tensor, b: Tensor, error: float) -> None:
    """Against the product in float64; ``error`` is relative to the sum of the sizes of what is summed."""
    left, right = a.values.astype(np.float64), b.values.astype(np.float64)
    apart = np.abs(out.values - left @ right)
    allowed = error * (np.abs(left) @ np.abs(right))
    assert (apart <= allowed).all(), f"{(apart > allowed).sum()} of {apart.size} differ, by up to {apart.max()}"


def _product(kind: str, precision: str, deep: int, leaky: bool, machine: Machine) -> None:
    a, b = _operands(kind, kind)
    out = room((_M, _N), {"i8": "i32", "fp64": "fp64"}.get(kind, "fp32"))
    import triton.language as tl

    accumulator = {"i8": tl.int32, "fp64": tl.float64}.get(kind, tl.float32)
    arguments = {**_TILE, "BLOCK_K": deep, "TYPE": accumulator, "PRECISION": precision, "LEAKY": leaky, "GROUP": 2}
    # of fp64 Triton can't copy elements to LDS one by one, which two stages would
    options = {"num_stages": 1} if kind == "fp64" else {}
    machine.run(kernels.product, _tiles(), options, a=a, b=b, out=out, m=_M, n=_N, k=_K, **arguments)
    if kind == "i8":
        same(out.values, a.values.astype(np.int32) @ b.values.astype(np.int32))
    elif leaky:
        exact = a.values @ b.values
        close(out.values, np.where(exact >= 0, exact, 0.01 * exact), 1e-4, 1e-4)
    else:
        errors = {"fp64": 2.0**-48, "bf16x3": 2.0**-15, "tf32": 2.0**-9}
        _compare(out, a, b, errors.get(kind) or errors.get(precision) or _FLOAT32)


def _launch(first: str, second: str, options: dict[str, int], machine: Machine) -> None:
    import triton.language as tl

    a, b = _operands(first, second)
    out = room((_M, _N))
    arguments = {**_TILE, "TYPE": tl.float32, "PRECISION": "ieee", "LEAKY": False, "GROUP": 4}
    machine.run(kernels.product, _tiles(), options, a=a, b=b, out=out, m=_M, n=_N, k=_K, **arguments)
    _compare(out, a, b, _FLOAT32)


def _by_kernel(kernel: Any, grid: int | tuple[int, ...], options: dict[str, int], machine: Machine) -> None:
    a, b = _operands("fp16", "fp16")
    out = tensor(np.zeros((_M, _N)))
    machine.run(kernel, grid, a=a, b=b, out=out, m=_M, n=_N, k=_K, **options, **_TILE)
    _compare(out, a, b, _FLOAT32)


def _grouped_case(machine: Machine) -> None:
    rng = random("grouped")
    sizes = np.array([(64, 64, 64), (33, 100, 48), (128, 16, 80)])
    problems = [
        (tensor(rng.standard_normal((m, k)), "fp16"), tensor(rng.standard_normal((k, n)), "fp16"), room((m, n), "fp16"))
        for m, n, k in sizes
    ]
    addresses = Addresses(tuple(operand for problem in problems for operand in problem))
    machine.run(kernels.grouped, 4, addresses=addresses, sizes=tensor(sizes, "i32"), problems=len(sizes), **_TILE)
    for a, b, out in problems:
        close(out.values, a.values @ b.values, 2.0**-10, 2.0**-10)


def _batched_case(kind: str, machine: Machine) -> None:
    rng = random("batched", kind)
    a, b = tensor(rng.standard_normal((4, 32, 32)), kind), tensor(rng.standard_normal((4, 32, 64)), kind)
    out = room((4, 32, 64))
    machine.run(kernels.batched, 1, a=a, b=b, out=out, BATCH=4, M=32, N=64, K=32)
    _compare(out, a, b, _FLOAT32)


# ---- microscaling

_SCALED = [
    *((a, b) for a in ("e4m3", "e5m2", "e2m1") for b in ("e4m3", "e5m2", "e2m1")),
    ("bf16", "e2m1"), ("fp16", "e2m1"), ("bf16", "e4m3"), ("e5m2", "bf16"),
]  # fmt: skip
_KINDS = {"e4m3": "fp8e4nv", "e5m2": "fp8e5"}


def _microscaled_case(name: str, axis: int, shape: tuple[int, int]) -> tuple[Tensor, Tensor | None, Array]:
    """An operand, its scales (rows of ``axis`` 0, of the other's transpose) and what they stand for together."""
    rng = random("scaled", name, axis)
    if name in ("bf16", "fp16"):
        plain = tensor(rng.standard_normal(shape), name)
        return plain, None, plain.values
    other = shape[axis]
    exponents = rng.integers(122, 132, (other, shape[1 - axis] // 32)).astype(np.uint8)
    factors = np.repeat(2.0 ** (exponents.astype(np.float64) - 127), 32, 1)
    if axis == 1:
        factors = factors.T
    if name == "e2m1":
        codes = rng.integers(0, 16, shape).astype(np.uint8)
        pairs = np.moveaxis(codes, 1 - axis, -1)
        packed = np.moveaxis(pairs[..., ::2] | pairs[..., 1::2] << 4, -1, 1 - axis)  # the first in the lower bits
        return Tensor(packed, "u8"), Tensor(exponents, "u8"), numbers("fp4")[codes] * factors
    held = tensor(rng.standard_normal(shape), _KINDS[name])
    return held, Tensor(exponents, "u8"), held.values * factors


def _scaled_case(first: str, second: str, machine: Machine) -> None:
    m, n, k = 64, 64, 256
    a, a_scale, left = _microscaled_case(first, 0, (m, k))
    b, b_scale, right = _microscaled_case(second, 1, (k, n))
    out = room((m, n))
    packed = {"A_PACKED": 1 + (first == "e2m1"), "B_PACKED": 1 + (second == "e2m1")}
    scales = {"a_scale": a_scale, "b_scale": b_scale, "A_FORMAT": first, "B_FORMAT": second}
    machine.run(kernels.scaled, 1, a=a, b=b, out=out, M=m, N=n, K=k, BLOCK_K=128, **scales, **packed)
    apart = np.abs(out.values - left @ right)
    # elements times scales are rounded to bf16 where the arch has no such product (Triton's documentation)
    assert (apart <= _FLOAT32 * (np.abs(left) @ np.abs(right))).all(), f"{apart.max()} apart"


# ---- attention


def _attention(kind: str, width: int, causal: bool, gradients: bool, machine: Machine) -> None:
    heads, length = 2, 100
    rng = random("attention", kind, width, causal)
    q, k, v, grad = (tensor(rng.standard_normal((heads, length, width)), kind) for _ in range(4))
    out, logsum = room((heads, length, width), kind), room((heads, length))
    scale = float(width**-0.5)
    shared = {"length": length, "WIDTH": width, "BLOCK_M": 32}
    more = {**shared, "q": q, "k": k, "v": v, "scale": scale, "CAUSAL": causal, "BLOCK_N": 32}
    machine.run(attention.forward, (4, heads), out=out, logsum=logsum, **more)
    scores = np.einsum("hik,hjk->hij", q.values, k.values) * scale
    if causal:
        scores = np.where(np.tril(np.ones((length, length), bool)), scores, -np.inf)
    highest = scores.max(2, keepdims=True)
    p = np.exp(scores - highest)
    p, total = p / p.sum(2, keepdims=True), p.sum(2)
    error = {"fp16": 2.0**-9, "bf16": 2.0**-6}[kind]
    close(out.values, p @ v.values, error, error)
    close(logsum.values, (highest[..., 0] + np.log(total)) / np.log(2), 1e-3, 1e-3)
    if not gradients:
        return
    delta, dk, dv = room((heads, length)), *(room((heads, length, width)) for _ in range(2))
    dq = tensor(np.zeros((heads, length, width)))
    machine.run(attention.row_sums, (4, heads), out=out, grad=grad, delta=delta, **shared)
    machine.run(attention.backward, (4, heads), grad=grad, logsum=logsum, delta=delta, dq=dq, dk=dk, dv=dv, **more)
    dp = np.einsum("hik,hjk->hij", grad.values, v.values)
    ds = p * (dp - (p * dp).sum(2, keepdims=True))
    close(dv.values, p.swapaxes(1, 2) @ grad.values, 0.02, 0.02)
    close(dq.values, ds @ k.values * scale, 0.02, 0.02)
    close(dk.values, ds.swapaxes(1, 2) @ q.values * scale, 0.02, 0.02)
