"""A decode problem, its 8-bit cache and the launch parameters of its kernels, as data: no Triton, no device.

:func:`problems` lists the problems of perf-gate: each form on problems of one sequence.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ckpm.attention.launch.encodings import encode
from ckpm.base.errors import UsageError
from ckpm.decode.guard.candidates import Candidate

Array = NDArray[Any]
STORED = ("fp8", "int8")
HEAD_DIMS = (64, 128, 256)
_LARGEST = {"int8": 127.0}
_FP8 = {"gfx942": "*fp8e4b8", "gfx950": "*fp8e4nv"}  # the fp8 that an arch has instructions for, as Triton writes it
_LARGEST_PAGE = 1024
_TILE_ROWS = 16  # of the smallest matrix instruction: heads that share a KV head


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeLaunch:
    """Launch parameters of a kernel. The compiler leaves registers for ``waves`` on a SIMD; 0 sets no number.

    ``step`` tokens of a tile are in registers at a time; 0: the whole tile, as ``resident`` does.
    """

    block_m: int
    block_n: int
    num_stages: int
    num_warps: int
    waves: int = 0
    step: int = 0

    @property
    def options(self) -> Mapping[str, int]:
        more = {"waves_per_eu": self.waves} if self.waves else {}
        return {"num_warps": self.num_warps, "num_stages": self.num_stages, **more}


# The default launches of streaming, fixed so that no heuristic drifts; each is in guard.yaml.
FORCED: Mapping[tuple[str, int], DecodeLaunch] = {
    ("gfx942", 64): DecodeLaunch(block_m=16, block_n=64, step=32, num_stages=2, num_warps=1, waves=3),
    ("gfx942", 128): DecodeLaunch(block_m=16, block_n=64, step=32, num_stages=2, num_warps=1, waves=3),
    ("gfx942", 256): DecodeLaunch(block_m=16, block_n=64, step=16, num_stages=2, num_warps=1, waves=2),
    ("gfx950", 64): DecodeLaunch(block_m=16, block_n=64, step=32, num_stages=2, num_warps=1, waves=4),
    ("gfx950", 128): DecodeLaunch(block_m=16, block_n=64, step=32, num_stages=2, num_warps=1, waves=4),
    ("gfx950", 256): DecodeLaunch(block_m=16, block_n=64, step=32, num_stages=2, num_warps=1, waves=2),
}
SMALL_PAGE_STEP = 16  # tokens at a time where each is looked up: the rows' addresses take registers of their own
RESIDENT = DecodeLaunch(block_m=16, block_n=128, num_stages=2, num_warps=1)  # 512 VGPRs and spills: the bad example


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeShape:
    """``heads_q`` query heads share each of ``heads_kv``; ``page_size`` in tokens, 0 is a contiguous cache."""

    heads_kv: int
    heads_q: int
    head_dim: int
    groups: int
    splits: int
    page_size: int
    stored: str

    def __post_init__(self) -> None:
        if self.stored not in STORED or self.head_dim not in HEAD_DIMS:
            raise UsageError(f"the cache is {', '.join(STORED)} with head dims {', '.join(map(str, HEAD_DIMS))}.")
        width = self.head_dim // max(self.groups, 1)
        if self.groups not in (2, 4, 8) or width < _TILE_ROWS:
            raise UsageError(f"{self.groups} groups of head dim {self.head_dim}: 2, 4 or 8 of 16 or more are served.")
        if not 1 <= self.heads_q <= _TILE_ROWS:
            raise UsageError(f"{self.heads_q} query heads share a KV head: 1 to {_TILE_ROWS} are served.")
        if self.page_size and (self.page_size > _LARGEST_PAGE or self.page_size & (self.page_size - 1)):
            raise UsageError(f"pages of {self.page_size} tokens: powers of two up to {_LARGEST_PAGE} are served.")

    def constexprs(self, launch: DecodeLaunch) -> dict[str, int]:
        return {
            "HEADS_KV": self.heads_kv,
            "HEADS_Q": self.heads_q,
            "HEAD_DIM": self.head_dim,
            "GROUPS": self.groups,
            "SPLITS": self.splits,
            "PAGE_SIZE": self.page_size,
            "BLOCK_M": launch.block_m,
            "BLOCK_N": launch.block_n,
            **({"STEP": launch.step} if launch.step else {}),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Cache:
    """``k`` and ``v``: bytes, (slots, heads_kv, head_dim); scales and shifts: float32, (slots, heads_kv, groups).

    ``pages``: (sequences, entries) of a paged cache, int32; None for a contiguous one, slots / sequences each.
    """

    k: Array
    v: Array
    k_scale: Array
    k_shift: Array
    v_scale: Array
    v_shift: Array
    pages: Array | None = None


def forced_launch(arch: str, shape: DecodeShape) -> DecodeLaunch:
    """Launch parameters of streaming for a shape: FORCED, with shorter steps on pages smaller than a step."""
    if (arch, shape.head_dim) not in FORCED:
        raise no_kernels(arch)
    launch = FORCED[arch, shape.head_dim]
    if shape.page_size % launch.step:
        return dataclasses.replace(launch, step=SMALL_PAGE_STEP)
    return launch


def no_kernels(arch: str) -> UsageError:
    """Return the error for an arch that the kernels have no launches for."""
    archs = ", ".join(dict.fromkeys(arch for arch, _ in FORCED))
    return UsageError(f"there are no decode kernels of {arch}, only of {archs}.")


def attention_candidate(form: str, shape: DecodeShape, launch: DecodeLaunch, arch: str) -> Candidate:
    """The first stage as the guard compiles it."""
    stored = "*i8" if shape.stored == "int8" else _FP8[arch]
    floats = ("k_scale", "k_shift", "v_scale", "v_shift", "partial", "logsum")
    signature = {
        "q": "*bf16:16",
        **dict.fromkeys(("k", "v"), f"{stored}:16"),
        **dict.fromkeys(floats, "*fp32:16"),
        **dict.fromkeys(("lengths", "pages"), "*i32:16"),
        "capacity": "i32",
        "scale": "fp32",
    }
    return Candidate(
        kernel=form, arch=arch, signature=signature, constexprs=shape.constexprs(launch), options=launch.options
    )


def reduction_candidate(shape: DecodeShape, arch: str) -> Candidate:
    """The second stage, which weighs the splits."""
    return Candidate(
        kernel="reduction",
        arch=arch,
        signature={"partial": "*fp32:16", "logsum": "*fp32:16", "out": "*bf16:16"},
        constexprs={
            "HEAD_DIM": shape.head_dim,
            "SPLITS": shape.splits,
            "BLOCK_SPLITS": max(2, 1 << (shape.splits - 1).bit_length()),
        },
        options={"num_warps": 1, "num_stages": 1},
    )


def quantise(values: Array, groups: int, stored: str, arch: str) -> tuple[Array, Array, Array]:
    """Quantise (slots, heads, head_dim) to bytes, scales and shifts: a group's middle is its shift, its extent its
    scale.
    """
    grouped = values.reshape(*values.shape[:2], groups, -1)
    low, high = grouped.min(-1), grouped.max(-1)
    largest = _LARGEST.get(stored, 240.0)  # of fp8: within both kinds
    shift = ((low + high) / 2).astype(np.float32)
    scale = np.maximum((high - low) / 2 / largest, math.ulp(1.0)).astype(np.float32)
    numbers = (grouped - shift[..., None]) / scale[..., None]
    if stored == "int8":
        return np.rint(numbers).astype(np.int8).reshape(values.shape), scale, shift
    return encode(numbers, "fp8", arch).reshape(values.shape), scale, shift


TOKENS = 4096  # of the one sequence
BASE = DecodeShape(heads_kv=1, heads_q=8, head_dim=128, groups=4, splits=8, page_size=0, stored="fp8")
_SHAPES = {
    "fp8": {},
    "int8": {"stored": "int8"},
    "page1": {"page_size": 1},
    "page16": {"page_size": 16},
    "page64": {"page_size": 64},
    "d64": {"head_dim": 64, "groups": 2},
    "d256": {"head_dim": 256, "groups": 8},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeProblem:
    """A form of the kernels on a shape. ``name`` identifies its figures in the gate."""

    name: str
    form: str
    shape: DecodeShape
    launch: DecodeLaunch

    def candidates(self, arch: str) -> tuple[Candidate, Candidate]:
        """The two kernels to compile: the attention and the reduction."""
        return attention_candidate(self.form, self.shape, self.launch, arch), reduction_candidate(self.shape, arch)


def problems(arch: str) -> tuple[DecodeProblem, ...]:
    """Streaming on every kind of cache, then the bad example on the first."""
    shapes = {name: dataclasses.replace(BASE, **changes) for name, changes in _SHAPES.items()}  # type: ignore[arg-type]
    streaming = [
        DecodeProblem(name=f"streaming-{name}", form="streaming", shape=shape, launch=forced_launch(arch, shape))
        for name, shape in shapes.items()
    ]
    return (*streaming, DecodeProblem(name="resident-fp8", form="resident", shape=BASE, launch=RESIDENT))
