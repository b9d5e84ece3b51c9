"""Cases of shapes.py."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np

from triton_launches import shapes as kernels
from triton_launches.cases import Case, close, random, same
from triton_launches.machine import Machine, Tensor, room, tensor
from triton_launches.number_formats import PLAIN, Array

_ROWS, _COLUMNS = 16, 64
_SHAPE = (_ROWS, _COLUMNS)


def cases(arch: str) -> Iterator[Case]:
    """All of this group, the same for every arch."""
    del arch
    yield from _reductions()
    for what in ("cumsum", "cumprod", "recurrence"):
        for reverse in (False, True):
            for kind in ("fp32", "fp64"):
                yield Case(f"{what} {kind}{' reversed' * reverse}", functools.partial(_scan, what, reverse, kind))
    yield Case("cumsum i32", functools.partial(_scan, "cumsum", False, "i32"))
    yield Case("variance by a reduction of three tensors", _variance)
    for kind in ("fp32", "fp16", "bf16", "i32", "i16", "i8", "i64", "u32"):
        for descending in (False, True):
            yield Case(f"sort {kind}{' descending' * descending}", functools.partial(_sort, kind, descending))
        yield Case(f"topk {kind}", functools.partial(_topk, kind))
    yield Case("histogram", _histogram)
    for axis in (0, 1):
        for kind in ("fp32", "fp16", "i64", "u8"):
            yield Case(f"gather axis {axis} {kind}", functools.partial(_gather, axis, kind))
    for what in _RESHAPED:
        for kind in ("fp32", "i8", "fp16", "fp64"):
            yield Case(f"{what} {kind}", functools.partial(_reshape, what, kind))
    yield from _atomics()
    yield Case("lock by compare-and-swap", _lock)
    for columns in (64, 781, 2000):
        yield Case(f"softmax {columns}", functools.partial(_softmax, columns))
        yield Case(f"softmax persistent {columns}", functools.partial(_softmax_persistent, columns))
    for kind in ("fp32", "fp16", "bf16"):
        yield Case(f"layer norm forward and backward {kind}", functools.partial(_layer_norm, kind))


def _spread(kind: str, *names: Any, shape: Any = _SHAPE) -> Tensor:
    """Numbers of a type: of floats normal, of integers the whole range."""
    rng = random(kind, *names)
    if kind in PLAIN and kind[0] in "iu":
        limits = np.iinfo(PLAIN[kind])
        return Tensor(rng.integers(limits.min, limits.max, shape, PLAIN[kind], endpoint=True), kind)
    return tensor(rng.standard_normal(shape), kind)


# ---- reductions, scans


def _reductions() -> Iterator[Case]:
    for axis in (0, 1):
        for what in ("sum", "max", "min", "argmax", "argmin"):
            for kind in ("fp32", "fp64", "fp16", "i32", "i64", "u32"):
                yield Case(f"{what} axis {axis} {kind}", functools.partial(_reduce, what, axis, kind))
        for kind in ("i32", "i64"):
            yield Case(f"xor axis {axis} {kind}", functools.partial(_reduce, "xor", axis, kind))


def _reduce(what: str, axis: int, kind: str, machine: Machine) -> None:
    x = _spread(kind, what, axis)
    left = _SHAPE[1 - axis]
    out = room(left, "i32" if what.startswith("arg") else kind)
    function = "xor_sum" if what == "xor" else what
    machine.run(kernels.reduced, 1, x=x, out=out, WHAT=function, AXIS=axis, ROWS=_ROWS, COLUMNS=_COLUMNS)
    values = x.values
    if what == "sum" and kind.startswith("fp"):
        error = {"fp16": 2.0**-9, "fp32": 2.0**-21, "fp64": 2.0**-50}[kind]
        close(out.values, values.sum(axis), error, error * 8)
    elif what == "sum":
        same(out.values, values.sum(axis, dtype=values.dtype))
    elif what == "xor":
        same(out.values, np.bitwise_xor.reduce(values, axis))
    else:
        functions: dict[str, Any] = {"max": np.max, "min": np.min, "argmax": np.argmax, "argmin": np.argmin}
        same(out.values, functions[what](values, axis))


def _scan(what: str, reverse: bool, kind: str, machine: Machine) -> None:
    rng = random(what, reverse, kind)
    x = tensor(rng.uniform(0.8, 1.2, _SHAPE) * (50 if kind == "i32" else 1), kind)
    y, out = tensor(rng.uniform(0.1, 0.9, _SHAPE), kind), room(_SHAPE, kind)
    machine.run(kernels.scanned, 1, x=x, y=y, out=out, WHAT=what, REVERSE=reverse, ROWS=_ROWS, COLUMNS=_COLUMNS)
    values, decay = (operand.values[:, ::-1] if reverse else operand.values for operand in (x, y))
    expected: Array
    if what == "recurrence":
        expected = np.zeros(_SHAPE)
        state = np.zeros(_ROWS)
        for column in range(_COLUMNS):
            state = decay[:, column] * state + values[:, column]
            expected[:, column] = state
    else:
        expected = (np.cumsum if what == "cumsum" else np.cumprod)(values, 1)
    if reverse:
        expected = expected[:, ::-1]
    close(out.values.astype(np.float64), expected, {"fp32": 2.0**-18, "fp64": 2.0**-47, "i32": 0.0}[kind])


def _variance(machine: Machine) -> None:
    x, out = _spread("fp32", "variance"), room(_ROWS)
    machine.run(kernels.variance, 1, x=x, out=out, ROWS=_ROWS, COLUMNS=_COLUMNS)
    close(out.values, x.values.var(1), 2.0**-19)


# ---- order, indices


def _sort(kind: str, descending: bool, machine: Machine) -> None:
    x, out = _spread(kind, "sort"), room(_SHAPE, kind)
    machine.run(kernels.ordered, 1, x=x, out=out, DESCENDING=descending, ROWS=_ROWS, COLUMNS=_COLUMNS)
    expected = np.sort(x.values, 1)
    same(out.values, expected[:, ::-1] if descending else expected)


def _topk(kind: str, machine: Machine) -> None:
    x, out = _spread(kind, "topk"), room((_ROWS, 8), kind)
    machine.run(kernels.largest, 1, x=x, out=out, K=8, ROWS=_ROWS, COLUMNS=_COLUMNS)
    same(out.values, np.sort(x.values, 1)[:, ::-1][:, :8])


def _histogram(machine: Machine) -> None:
    for bins, n in ((16, 900), (256, 1024)):
        x, out = tensor(random("histogram", bins).integers(0, bins, n), "i32"), room(bins, "i32")
        machine.run(kernels.counted, 1, x=x, out=out, n=n, BINS=bins, BLOCK=1024)
        same(out.values, np.bincount(x.values, minlength=bins).astype(np.int32))


def _gather(axis: int, kind: str, machine: Machine) -> None:
    x, index = _spread(kind, "gather"), tensor(random("index", axis).integers(0, _SHAPE[axis], _SHAPE), "i32")
    out = room(_SHAPE, kind)
    machine.run(kernels.gathered, 1, x=x, index=index, out=out, AXIS=axis, ROWS=_ROWS, COLUMNS=_COLUMNS)
    same(out.values, np.take_along_axis(x.values, index.values, axis))


# ---- shapes


def _split(x: Array) -> Array:
    return np.stack([x[:, 1::2], x[:, ::2]], 2)


def _interleave(x: Array) -> Array:
    left, right = x[:, ::2], x[:, 1::2]
    return np.stack([left, left + right], 2)


_RESHAPED: dict[str, Any] = {
    "transpose": np.transpose,
    "flip": lambda x: x[:, ::-1],
    "permute": lambda x: x.reshape(4, _ROWS // 4, _COLUMNS).transpose(1, 2, 0),
    "split": _split,
    "interleave": _interleave,
    "broadcast": lambda x: np.broadcast_to(x[:, :1] * 0 + x.sum(1, keepdims=True, dtype=x.dtype), _SHAPE),
}


def _reshape(what: str, kind: str, machine: Machine) -> None:
    x = tensor(random(what, kind).integers(-3, 4, _SHAPE), kind)  # whose sums are exact in every type
    out = room(_ROWS * _COLUMNS, kind)
    machine.run(kernels.reshaped, 1, x=x, out=out, WHAT=what, ROWS=_ROWS, COLUMNS=_COLUMNS)
    same(out.values, _RESHAPED[what](x.values).reshape(-1))


# ---- atomics


def _atomics() -> Iterator[Case]:
    for kind in ("i32", "u32", "i64", "u64", "fp32", "fp64", "fp16", "bf16"):
        yield Case(f"atomic add {kind}", functools.partial(_atomic, "add", kind))
    for kind in ("i32", "fp32"):
        yield Case(f"atomic add relaxed {kind}", functools.partial(_atomic, "add relaxed", kind))
    for what in ("max", "min"):
        for kind in ("i32", "u32", "i64", "u64", "fp32", "fp64"):
            yield Case(f"atomic {what} {kind}", functools.partial(_atomic, what, kind))
    for what in ("and", "or", "xor"):
        for kind in ("i32", "i64", "u32"):
            yield Case(f"atomic {what} {kind}", functools.partial(_atomic, what, kind))
    for kind in ("i32", "i64", "fp32", "fp64"):
        yield Case(f"atomic exchange {kind}", functools.partial(_atomic, "xchg", kind))


def _atomic(what: str, kind: str, machine: Machine) -> None:
    """300 elements to 16 places, whose order is free: small whole numbers, exact in every type."""
    n, places = 300, 16
    rng = random(what, kind)
    x, index = tensor(rng.integers(1, 5, n), kind), tensor(rng.integers(0, places, n), "i32")
    start = np.arange(places) % 3
    out, before = tensor(start, kind), room(n, kind)
    function = what if what == "add relaxed" else f"atomic_{what}"
    machine.run(kernels.atomically, 3, x=x, index=index, out=out, before=before, n=n, WHAT=function, BLOCK=128)
    values, old = x.values, before.values
    for slot in range(places):
        here = index.values == slot
        if what == "xchg":  # a chain: each value but the last is what another one saw
            same(np.sort(np.append(old[here], out.values[slot])), np.sort(np.append(values[here], start[slot])))
            continue
        operation = {"add": np.add, "max": np.maximum, "min": np.minimum, "and": np.bitwise_and, "or": np.bitwise_or,
                     "xor": np.bitwise_xor}[what.split()[0]]  # fmt: skip
        first = np.asarray(start[slot]).astype(values.dtype)
        expected = operation.reduce(np.append(first, values[here]))
        assert out.values[slot] == expected, f"place {slot}: {out.values[slot]} and not {expected}"
        if here.any():
            assert (old[here] == first).any(), f"no program saw the first value at index {slot}"
    if what.startswith("add"):  # what each saw is another partial sum
        for slot in range(places):
            here = index.values == slot
            assert len(set(old[here])) == here.sum()


def _lock(machine: Machine) -> None:
    x, lock, total = tensor(random("lock").integers(0, 9, 10 * 64)), tensor([0], "i32"), tensor([0.0])
    machine.run(kernels.locked_sum, 10, x=x, lock=lock, total=total, BLOCK=64)
    same(total.values, np.array([x.values.sum()]))
    same(lock.values, np.array([0], np.int32))


# ---- rows


def _expected_softmax(x: Array) -> Array:
    power = np.exp(x - x.max(1, keepdims=True))
    return np.asarray(power / power.sum(1, keepdims=True))


def _softmax(columns: int, machine: Machine) -> None:
    x, out = _spread("fp32", "softmax", shape=(5, columns)), room((5, columns))
    machine.run(kernels.softmax, 5, x=x, out=out, columns=columns, BLOCK=1 << (columns - 1).bit_length())
    close(out.values, _expected_softmax(x.values), 1e-5)


def _softmax_persistent(columns: int, machine: Machine) -> None:
    x, out = _spread("fp32", "persistent", shape=(11, columns)), room((11, columns))
    arguments = {"x": x, "out": out, "rows": 11, "columns": columns, "BLOCK": 1 << (columns - 1).bit_length()}
    machine.run(kernels.softmax_persistent, 3, {"num_warps": 8}, **arguments)
    close(out.values, _expected_softmax(x.values), 1e-5)


def _layer_norm(kind: str, machine: Machine) -> None:
    rows, columns, block, epsilon = 6, 500, 512, 1e-5
    x, grad = (_spread(kind, name, shape=(rows, columns)) for name in ("x", "grad"))
    weight, bias = (_spread("fp32", name, shape=columns) for name in ("weight", "bias"))
    out, dx, means, scales = room((rows, columns), kind), room((rows, columns), kind), room(rows), room(rows)
    shared = {"x": x, "weight": weight, "means": means, "scales": scales, "columns": columns, "BLOCK": block}
    machine.run(kernels.layer_norm, rows, bias=bias, out=out, epsilon=epsilon, **shared)
    dw, db = tensor(np.zeros(columns)), tensor(np.zeros(columns))
    machine.run(kernels.layer_norm_backward, rows, grad=grad, dx=dx, dw=dw, db=db, **shared)
    error = {"fp32": 2.0**-17, "fp16": 2.0**-10, "bf16": 2.0**-7}[kind]
    scale = 1 / np.sqrt(x.values.var(1, keepdims=True) + epsilon)
    normal = (x.values - x.values.mean(1, keepdims=True)) * scale
    close(out.values, normal * weight.values + bias.values, error, error)
    weighted = grad.values * weight.values
    expected = weighted - weighted.mean(1, keepdims=True) - normal * (weighted * normal).mean(1, keepdims=True)
    close(dx.values, expected * scale, error, error)
    close(dw.values, (grad.values * normal).sum(0), 1e-4, 1e-4)
    close(db.values, grad.values.sum(0), 1e-4, 1e-4)
