"""AITER's multi-head latent attention (mla): one K of 576 dims in pages, whose first 512 dims are V, for all heads.

The kernels write parts of O and LSE, which are joined here in float64. A persistent kernel (ps) takes its work from a
list: batch, place of a part (-1: O itself), first and last query, first and last page.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from ckpm.attention.launch.encodings import bits_type, decode, encode
from ckpm.attention.reference import Expected, exact, inputs_of
from ckpm.attention.tolerances import compare, o_tolerance
from ckpm.matrix.problems.problem import Problem
from tests.programs.objects.launching import Array, Launch, Machine, Memory
from tests.programs.objects.package import CodeObject

_THREADS, _HDIM, _HDIM_V, _SPLITS = 256, 576, 512, 2
_CONTEXTS, _LONGER = (333, 140), (300, 200)
_TAIL = 256  # pages after the list, which kernels read ahead
_Q_SCALE, _KV_SCALE = 0.5, 0.25
_FP8_STEP = 2.0**-4


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kernel's features, by its file's name; ``rows`` are those of a workgroup."""

    q: str
    kv: str
    heads: int
    queries: tuple[int, ...]
    rows: int
    prefill: bool
    persistent: bool
    page_tokens: int

    @classmethod
    def of(cls, code: CodeObject) -> Kind:
        """Read the parts of the file's name."""
        name, prefill = code.name, "pfl" in code.name_parts
        heads = int(re.findall(r"(?:qh|mqa)(\d+)", name)[0])
        count = 8 if "m32x4_n16x1" in name else 4 if "m16x4" in name else 1
        several = re.findall(r"qseqlen(\d)", name)
        queries = (40, 25) if prefill else (int(several[0]) if several else count,) * len(_CONTEXTS)
        bits = re.findall(r"a(8|16)w(8|16)", name)[0]
        return cls(
            q="fp8" if bits[0] == "8" else "bf16",
            kv="fp8" if bits[1] == "8" else "bf16",
            heads=heads,
            queries=queries,
            rows=16 if "subQ16" in code.name_parts and not prefill else 128,
            prefill=prefill,
            persistent="ps" in code.name_parts,
            page_tokens=64 if "page" in code.name_parts else 1,
        )


def check(machine: Machine, code: CodeObject) -> None:
    """Compare a kernel's output with float64: a difference is an AssertionError, a fault a DeviceError."""
    kind, arch, generator = Kind.of(code), machine.arch, np.random.default_rng(0)
    lengths = _LONGER if kind.prefill else _CONTEXTS
    total, longest, batch = sum(kind.queries), max(kind.queries), len(lengths)
    pages = [-(-length // kind.page_tokens) for length in lengths]
    q_bits = encode(generator.standard_normal((total, kind.heads, _HDIM)), kind.q, arch)
    kv_bits = encode(generator.standard_normal((sum(pages) + 3, kind.page_tokens, _HDIM)), kind.kv, arch)
    order = generator.permutation(len(kv_bits))[: sum(pages)].astype(np.int32)
    q = decode(q_bits, kind.q, arch) * (_Q_SCALE if kind.q == "fp8" else 1.0)
    kv = decode(kv_bits, kind.kv, arch) * (_KV_SCALE if kind.kv == "fp8" else 1.0)
    parts = np.split(order, np.cumsum(pages)[:-1])
    k = [kv[part].reshape(-1, 1, _HDIM)[:length] for part, length in zip(parts, lengths, strict=True)]
    problem = Problem(
        arch=arch,
        mode="group",
        batch=batch,
        seqlen_q=longest,
        seqlen_k=max(lengths),
        nhead_q=kind.heads,
        hdim_q=_HDIM,
        hdim_v=_HDIM_V,
        mask="bottom_right",
        window_right=0,
    )
    queries = np.split(q, np.cumsum(kind.queries)[:-1])
    inputs = inputs_of(problem, queries, k, [keys[..., :_HDIM_V] for keys in k])
    expected = exact(inputs)
    with machine.memory() as memory:
        starts = {
            name: memory.upload(np.cumsum((0, *counts), dtype=np.int32))
            for name, counts in (("start_q", kind.queries), ("start_pages", pages))
        }
        last = [length - (count - 1) * kind.page_tokens for length, count in zip(lengths, pages, strict=True)]
        output = _Output(memory, kind, total)
        size = q_bits.itemsize
        values = {
            **starts,
            **{
                "q": memory.upload(q_bits),
                "kv": memory.upload(kv_bits),
                "pages": memory.upload(np.append(order, np.zeros(_TAIL, np.int32))),
            },
            **{"last_page_lens": memory.upload(np.array(last, np.int32)), "scale": problem.softmax_scale},
            **{"rows": kind.heads * (1 if kind.prefill else longest), "splits": output.splits, "direct": output.splits},
            **{"q_batch": kind.heads * _HDIM * size * (1 if kind.prefill else longest)},
            **{
                "page": kind.page_tokens * _HDIM * kv_bits.itemsize,
                "log2_page_tokens": kind.page_tokens.bit_length() - 1,
            },
            **{"split_o": output.parts, "split_lse": output.lse, "o": output.o},
            **{"q_scale": memory.upload(np.full(1, _Q_SCALE, np.float32))},
            **{"kv_scale": memory.upload(np.full(1, _KV_SCALE, np.float32))},
            "start_splits": memory.upload(np.arange(batch + 1, dtype=np.int32) * output.splits),
        }
        grid = (-(-longest * kind.heads // kind.rows), batch, output.splits)
        if kind.persistent:
            values["start_splits"], grid = _work(memory, kind, pages), (batch, 1, 1)
        machine.launch(code, Launch("mla", grid, _THREADS, values))
        o = output.join()
    line = compare("o", o, expected.o, _tolerance(kind, o_tolerance(inputs.problem, expected), expected))
    assert line.passed, str(line)


def _tolerance(kind: Kind, tolerance: Array, expected: Expected) -> Array:
    if kind.kv == "fp8":
        return tolerance + _FP8_STEP * expected.magnitude
    return tolerance


def _work(memory: Memory, kind: Kind, pages: list[int]) -> Any:
    """Addresses of the list's starts and of the list: a workgroup has one sequence."""
    starts_q, starts_kv = np.cumsum((0, *kind.queries)), np.cumsum((0, *pages))
    items = np.zeros((len(pages), 8), np.int32)
    for i in range(len(pages)):
        items[i] = (i, -1, starts_q[i], starts_q[i + 1], starts_kv[i], starts_kv[i + 1], 0, 0)
    lists = [memory.upload(np.arange(len(pages) + 1, dtype=np.int32)), memory.upload(items)]
    return memory.upload(np.array([*(buffer.address for buffer in lists), *(0,) * 8], np.uint64))


class _Output:
    """The results of a kernel: parts of each split, or O itself."""

    def __init__(self, memory: Memory, kind: Kind, total: int) -> None:
        self.memory, self.kind = memory, kind
        self.splits = 1 if kind.prefill or kind.persistent else _SPLITS
        self.shape = (total, self.splits, kind.heads)
        self.parts = memory.room((*self.shape, _HDIM_V), np.float32)
        self.lse = memory.room(self.shape, np.float32)
        self.o = memory.room((total, kind.heads, _HDIM_V), np.uint16)

    def join(self) -> Array:
        """O of all splits."""
        total, splits, heads = self.shape
        if splits == 1:
            buffer = self.parts if self.kind.prefill else self.o
            return decode(self.memory.read(buffer, (total, heads, _HDIM_V), bits_type("bf16")), "bf16", "gfx950")
        parts = self.memory.read(self.parts, (*self.shape, _HDIM_V), np.float32).astype(np.float64)
        lse = self.memory.read(self.lse, self.shape, np.float32).astype(np.float64)[..., None]
        weights = np.exp(lse - lse.max(axis=1, keepdims=True))
        return np.asarray((parts * weights).sum(axis=1) / weights.sum(axis=1))
