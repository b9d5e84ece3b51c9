"""AITER's paged attention of decoding (pa): caches in pages, K and V of 16 or 8 bits with a scale for each token."""

from __future__ import annotations

import re
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from ckpm.attention.launch.encodings import bits_type, decode, encode, number_type
from ckpm.attention.reference import exact, inputs_of
from ckpm.attention.tolerances import compare, o_tolerance
from ckpm.matrix.problems.problem import Problem
from tests.programs.objects.launching import Array, Launch, Machine
from tests.programs.objects.package import CodeObject

_THREADS, _HDIM, _KV_HEADS = 256, 128, 2
_CONTEXTS = (333, 37, 256)
_LINE = 16  # bytes of a head of K that lie together, and of V's tokens
_LOG2E = 1.4426950408889634
# 8-bit kernels round Q and P to 8 bits, too: the scale is of the row's largest number
_ROUNDED = {"fp8": 2.0**-4, "int8": 2.0**-7}


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kernel's features, by its file's name."""

    dtype: str
    cache: str  # a dtype, or int8
    gqa: int
    queries: int  # of each sequence
    causal: bool
    page_tokens: int

    @classmethod
    def of(cls, code: CodeObject) -> Kind:
        """Read the parts of the file's name."""
        parts, name = code.name_parts, code.name
        gqa, several = int(re.findall(r"gqa(\d+)", name)[0]), re.findall(r"qlen(\d)", name)
        cache = {"noquant": parts[1], "pertokenFp8": "fp8", "pertokenInt8": "int8"}[parts[2]]
        return cls(
            dtype=parts[1],
            cache=cache,
            gqa=gqa,
            queries=int(several[0]) if several else 2 if "mtp" in parts else 1,
            causal="msk1" in parts,
            page_tokens=1024 if several else 16,
        )


def check(machine: Machine, code: CodeObject) -> None:
    """Compare a kernel's output with float64: a difference is an AssertionError, a fault a DeviceError."""
    kind, arch, generator = Kind.of(code), machine.arch, np.random.default_rng(0)
    heads, batch = _KV_HEADS * kind.gqa, len(_CONTEXTS)
    q = decode(
        encode(generator.standard_normal((batch, kind.queries, heads, _HDIM)), kind.dtype, arch), kind.dtype, arch
    )
    pages = [-(-tokens // kind.page_tokens) for tokens in _CONTEXTS]
    count = sum(pages) + 1
    tables = np.zeros((batch, max(pages)), np.int32)
    order = iter(generator.permutation(count))
    for row, used in zip(tables, pages, strict=True):
        row[:used] = [next(order) for _ in range(used)]
    caches = [_Cache.random(generator, kind, count, arch) for _ in range(2)]
    k, v = ([cache.tokens(tables[i], length) for i, length in enumerate(_CONTEXTS)] for cache in caches)
    problem = Problem(
        arch=arch,
        dtype=kind.dtype,
        mode="group",
        batch=batch,
        seqlen_q=kind.queries,
        seqlen_k=max(_CONTEXTS),
        nhead_q=heads,
        nhead_k=_KV_HEADS,
        mask="bottom_right" if kind.causal else "no",
        window_right=0 if kind.causal else -1,
    )
    inputs = inputs_of(problem, list(q), k, v)
    expected = exact(inputs)
    shape = (batch * kind.queries, heads, _HDIM)
    with machine.memory() as memory:
        o = memory.room(shape, bits_type(kind.dtype))
        size = caches[0].bits.itemsize
        values = {
            **{"o": o, "q": memory.upload(encode(q, kind.dtype, arch)), "k": memory.upload(caches[0].as_k())},
            **{"v": memory.upload(caches[1].as_v()), "block_tables": memory.upload(tables)},
            **{"context_lens": memory.upload(np.array(_CONTEXTS, np.int32)), "blocks_of_row": tables.shape[1]},
            **{"scale": _LOG2E * problem.softmax_scale, "nhead_k": _KV_HEADS, "gqa": kind.gqa},
            **{"q_token": heads * _HDIM * 2, "kv_head": kind.page_tokens * _HDIM * size},
            **{"block": _KV_HEADS * kind.page_tokens * _HDIM * size},
        }
        if kind.cache != kind.dtype:
            values |= {
                name: memory.upload(cache.scales) for name, cache in zip(("k_scales", "v_scales"), caches, strict=True)
            }
        if kind.queries > 1:
            values["start_q"] = memory.upload(np.arange(batch + 1, dtype=np.int32) * kind.queries)
        machine.launch(code, Launch("pa", (_KV_HEADS, batch, 1), _THREADS, values))
        computed = decode(memory.read(o, shape, bits_type(kind.dtype)), kind.dtype, arch)
    tolerance = o_tolerance(inputs.problem, expected)
    if kind.cache in _ROUNDED:
        tolerance = tolerance + _ROUNDED[kind.cache] * (expected.magnitude + expected.floor)
    line = compare("o", computed, expected.o, tolerance)
    assert line.passed, str(line)


@dataclass(frozen=True, slots=True)
class _Cache:
    """``bits`` and ``values`` [page, head, token, dim], ``scales`` [page, head, token]."""

    bits: Array
    values: Array
    scales: Array

    @classmethod
    def random(cls, generator: np.random.Generator, kind: Kind, pages: int, arch: str) -> _Cache:
        exact = generator.standard_normal((pages, _KV_HEADS, kind.page_tokens, _HDIM))
        if kind.cache == kind.dtype:
            bits = encode(exact, kind.dtype, arch)
            return cls(bits, decode(bits, kind.dtype, arch), np.ones(bits.shape[:3], np.float32))
        form = np.dtype(np.int8) if kind.cache == "int8" else number_type("fp8", arch)
        most = 127.0 if kind.cache == "int8" else float(ml_dtypes.finfo(form).max)
        scales = (np.abs(exact).max(axis=-1) / most).astype(np.float32)
        small = exact / scales[..., None]
        stored = (np.rint(small) if kind.cache == "int8" else np.clip(small, -most, most)).astype(form)
        return cls(stored.view(np.uint8), stored.astype(np.float64) * scales[..., None], scales)

    def tokens(self, pages: Array, length: int) -> Array:
        """The numbers of a sequence: [token, head, dim]."""
        return self.values[pages].transpose(0, 2, 1, 3).reshape(-1, _KV_HEADS, _HDIM)[:length]

    def as_k(self) -> Array:
        """[page, head, dims by lines, token, dims of a line]."""
        line = _LINE // self.bits.itemsize
        parts = self.bits.reshape(*self.bits.shape[:3], _HDIM // line, line)
        return np.ascontiguousarray(parts.transpose(0, 1, 3, 2, 4))

    def as_v(self) -> Array:
        """[page, head, tokens by lines, dim, tokens of a line]."""
        line = _LINE // self.bits.itemsize
        parts = self.bits.reshape(*self.bits.shape[:2], -1, line, _HDIM)
        return np.ascontiguousarray(parts.transpose(0, 1, 2, 4, 3))
