"""AITER's fused mixture of experts (fmoe): kernels of 8 bits with a scale for each token and column (g1u1).

Tokens are sorted by experts, in blocks of 32 that are filled up. O is added up in 16 bits, by tiles of the inner dim
and by the experts of a token. The kernels round the inner numbers to 8 bits again, with a scale for each token.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from ckpm.attention.launch.encodings import bits_type, decode, number_type
from ckpm.attention.tolerances import compare
from tests.programs.objects.launching import Array, Launch, Machine, Memory
from tests.programs.objects.package import CodeObject
from tests.programs.objects.products import in_order_of_lanes

# without smooth scales (smf, multix); the host code launches kernels with weights of the input (tkw1) for fp8 alone
_KNOWN = r"pertoken(Fp8_g1u1_(?!.*(multix|smf))|Int8_g1u1_(?!.*(multix|smf|tkw1))).*32x\d+\.co$"
SAMPLE = 30  # of each arch
_THREADS, _BLOCK = 256, 32
_TOKENS, _DIM, _EXPERTS, _TOPK = 45, 512, 3, 2
_PERSISTENT = 12  # workgroups
_STEPS = {"bf16": 2.0**-8, "fp16": 2.0**-11}  # half an ulp
_GELU = 1e-3  # the kernels' approximation


@dataclass(frozen=True, slots=True)
class Kind:
    """A kernel's features, by its file's name: ``first`` means that a token's weight multiplies its input."""

    o: str
    small: str
    gelu: bool
    first: bool
    persistent: bool
    tile: int

    @classmethod
    def of(cls, code: CodeObject) -> Kind:
        """Read the parts of the file's name."""
        parts = code.name_parts
        small = "int8" if "pertokenInt8" in parts else "fp8"
        tile = int(re.findall(r"32x(\d+)", code.name)[0])
        return cls(parts[1], small, "gelu" in parts, "tkw1" in parts, "ps" in parts, tile)


def sample(codes: Sequence[CodeObject]) -> tuple[CodeObject, ...]:
    """Kernels from all over the list of those that this module can launch."""
    launchable = [code for code in codes if re.search(_KNOWN, code.name)]
    return tuple(launchable[i * len(launchable) // SAMPLE] for i in range(SAMPLE))


def check(machine: Machine, code: CodeObject) -> None:
    """Compare a kernel's output with float64: a difference is an AssertionError, a fault a DeviceError."""
    kind, generator = Kind.of(code), np.random.default_rng(0)
    inter = 2 * kind.tile
    x = _Rounded.of(generator.standard_normal((_TOKENS, _DIM)), kind, machine.arch)
    w1 = _Rounded.of(generator.standard_normal((_EXPERTS, 2 * inter, _DIM)) / _DIM**0.5, kind, machine.arch)
    w2 = _Rounded.of(generator.standard_normal((_EXPERTS, _DIM, inter)) / inter**0.5, kind, machine.arch)
    chosen = np.argsort(generator.random((_TOKENS, _EXPERTS)), axis=1)[:, :_TOPK]
    weights = generator.random((_TOKENS, _TOPK)).astype(np.float32)
    expected, tolerance = _exact(kind, x.values, w1.values, w2.values, chosen, weights)
    with machine.memory() as memory:
        o = memory.upload(np.zeros((_TOKENS, _DIM), np.uint16))
        ids, of_ids, experts = _sort(chosen, weights)
        values = {
            **{"o": o, "x": memory.upload(x.bits), "x_scales": memory.upload(x.scales)},
            **{"w1": _weights(memory, w1), "w1_scales": memory.upload(w1.scales)},
            **{"w2": _weights(memory, w2), "w2_scales": memory.upload(w2.scales)},
            **{"valid": memory.upload(np.array([len(ids), _TOKENS], np.int32)), "tokens": memory.upload(ids)},
            **{"weights": memory.upload(of_ids), "experts": memory.upload(experts), "dim": _DIM, "inter": inter},
            **{"count_tokens": _TOKENS, "count_experts": _EXPERTS, "topk": _TOPK, "tiles": inter // kind.tile},
            **{"x_row": _DIM, "w1_row": _DIM, "w2_row": inter, "o_row": 2 * _DIM, "w1_expert": 2 * inter * _DIM},
            **{"w2_expert": inter * _DIM, "w1_scales_expert": 8 * inter, "w2_scales_expert": 4 * _DIM},
            **{"smooth_expert": 4 * inter, "groups": _PERSISTENT if kind.persistent else 0},
        }
        grid = (_PERSISTENT, 1, 1) if kind.persistent else (inter // kind.tile, len(experts), 1)
        machine.launch(code, Launch("fmoe", grid, _THREADS, values))
        computed = decode(memory.read(o, (_TOKENS, _DIM), bits_type(kind.o)), kind.o, machine.arch)
    line = compare("o", computed, expected, tolerance)
    assert line.passed, str(line)


@dataclass(frozen=True, slots=True)
class _Rounded:
    """Numbers of 8 bits with a scale for each row."""

    bits: Array
    values: Array
    scales: Array

    @classmethod
    def of(cls, exact: Array, kind: Kind, arch: str) -> _Rounded:
        form = np.dtype(np.int8) if kind.small == "int8" else number_type("fp8", arch)
        most = 127.0 if kind.small == "int8" else float(ml_dtypes.finfo(form).max)
        scales = (np.abs(exact).max(axis=-1, keepdims=True) / most).astype(np.float32)
        small = exact / scales
        stored = (np.rint(small) if kind.small == "int8" else np.clip(small, -most, most)).astype(form)
        return cls(stored.view(np.uint8), stored.astype(np.float64) * scales, scales)


def _weights(memory: Memory, weights: _Rounded) -> object:
    return memory.upload(np.stack([in_order_of_lanes(matrix) for matrix in weights.bits]))


def _sort(chosen: Array, weights: Array) -> tuple[Array, Array, Array]:
    """Tokens (with the number of their choice from bit 24 on), their weights, and the expert of each block."""
    ids, of_ids, experts = list[int](), list[float](), list[int]()
    for expert in range(_EXPERTS):
        rows = [(token, choice) for token, choice in np.argwhere(chosen == expert).tolist()]
        rows_filled = -(-len(rows) // _BLOCK) * _BLOCK
        ids += [choice << 24 | token for token, choice in rows] + [_TOPK << 24 | _TOKENS] * (rows_filled - len(rows))
        of_ids += [float(weights[token, choice]) for token, choice in rows] + [0.0] * (rows_filled - len(rows))
        experts += [expert] * (rows_filled // _BLOCK)
    return np.array(ids, np.int32), np.array(of_ids, np.float32), np.array(experts, np.int32)


def _exact(kind: Kind, x: Array, w1: Array, w2: Array, chosen: Array, weights: Array) -> tuple[Array, Array]:
    """O in float64, and how far the kernels' may be from it."""
    o, tolerance = np.zeros((_TOKENS, _DIM)), np.zeros((_TOKENS, _DIM))
    for token, choice in np.ndindex(chosen.shape):
        expert, weight = chosen[token, choice], float(weights[token, choice])
        gate, up = np.split(w1[expert] @ (x[token] * (weight if kind.first else 1.0)), 2)
        inner = _activation(kind, gate) * up
        share = 1.0 if kind.first else weight
        part = share * (w2[expert] @ inner)
        rounded = np.abs(inner).max() / 127 if kind.small == "int8" else 2.0**-4 * np.abs(inner)
        approximated = _GELU * np.abs(up) if kind.gelu else 2.0**-16 * np.abs(inner)
        o[token] += part
        tolerance[token] += share * (np.abs(w2[expert]) @ (rounded + approximated))
        tolerance[token] += 2 * _STEPS[kind.o] * 2 * np.abs(part).max()  # of two tiles, whose parts may be larger
    return o, tolerance + _STEPS[kind.o] * np.abs(o)


def _activation(kind: Kind, gate: Array) -> Array:
    if kind.gelu:
        from math import erf

        return np.array([0.5 * value * (1 + erf(value / 2**0.5)) for value in gate])
    return np.asarray(gate / (1 + np.exp(-gate)))
