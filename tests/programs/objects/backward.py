"""AITER's backward attention (fmha_v3_bwd): shapes, arguments and the float64 gradients.

A kernel's tables of arguments differ in their size alone, which its metadata have. Kernels with 16-bit atomic additions
(a16) and padding leave dQ in an order of their own, from which a dq_shuffle kernel makes rows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ckpm.attention.backward.reference import BackwardInputs, BoundedGradients, exact_gradients
from ckpm.attention.launch.encodings import bits_type, decode, encode
from ckpm.attention.reference import exact, inputs_of
from ckpm.attention.tolerances import ROUNDING, compare
from ckpm.matrix.problems.problem import Problem, mask_corner
from tests.programs.objects.attention import TAIL, TAIL_ROWS, Shape, starts, strides
from tests.programs.objects.launching import Array, Launch, Machine, Memory
from tests.programs.objects.package import CodeObject, code_objects

_THREADS, _SHUFFLED_ROWS = 256, 64
_LOG2E = 1.4426950408889634
_TABLES = {
    **{352: "fmha_v3_bwd", 272: "fmha_v3_bwd_padded", 288: "fmha_v3_bwd_window"},
    **{248: "fmha_v3_bwd_group", 704: "fmha_v3_bwd_gfx950"},
}
_WINDOW = (70, 20)
# A partial sum of dQ that 16-bit additions round: at most this multiple of the row's largest number.
_PARTIAL = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kernel's features, by the parts of its file's name and the size of its arguments."""

    table: str
    dtype: str
    hdim: int  # what the kernel is made for
    hdim_v: int
    mask: str  # no, top_left, bottom_right, window
    half: bool  # dQ is added up in 16 bits
    group: bool
    padded_hdim: bool

    @classmethod
    def of(cls, code: CodeObject) -> Kind:
        """Read the parts of the file's name."""
        parts, heads = code.name_parts, [int(word[2:]) for word in code.name_parts if word.startswith("hd")]
        causal = "bottom_right" if "br" in parts else "top_left"
        return cls(
            table=_TABLES[code.kernel.kernarg_bytes],
            dtype="fp16" if "fp16" in parts else "bf16",
            hdim=heads[0],
            hdim_v=heads[-1],
            mask="window" if "swa" in parts else causal if "causal" in parts else "no",
            half="a16" in parts,
            group="group" in parts,
            padded_hdim=any(word.endswith("ddv") for word in parts),
        )

    @property
    def shuffled(self) -> bool:
        """True if dQ is in an order of its own."""
        return self.half and self.table == "fmha_v3_bwd_gfx950"


def check(machine: Machine, code: CodeObject) -> None:
    """Launch the kernel, and the kernel of its dQ, and compare all gradients.

    Raises:
        AssertionError: another result.
        DeviceError: the device lacks an instruction, or a launch faults.
    """
    if "shuffle" in code.name_parts:
        code = _partner(machine.arch, code)
    kind = Kind.of(code)
    with machine.memory() as memory:
        _Run(machine, memory, code, kind, _shape(kind)).compare()


def _partner(arch: str, code: CodeObject) -> CodeObject:
    """The first kernel whose dQ a dq_shuffle kernel takes."""
    named = [candidate for candidate in code_objects(arch, "fmha_v3_bwd") if "shuffle" not in candidate.name_parts]
    return next(
        candidate
        for candidate in named
        if Kind.of(candidate).shuffled and _shuffle_name(Kind.of(candidate)) == code.name
    )


def _shuffle_name(kind: Kind) -> str:
    return f"fmha_v3_bwd/bwd_hd{kind.hdim}_dq_shuffle{'_group' if kind.group else ''}.co"


def _shape(kind: Kind) -> Shape:
    if kind.table == "fmha_v3_bwd":  # equal lengths, multiples of 64
        return Shape(seqlens_q=(320, 320), seqlens_k=(320, 320), nhead_q=2, nhead_k=1)
    if kind.group:
        return Shape(seqlens_q=(200, 97), seqlens_k=(333, 130), nhead_q=2, nhead_k=1)
    return Shape(seqlens_q=(201, 201), seqlens_k=(333, 333), nhead_q=2, nhead_k=1)


class _Run:
    """One launch. ``hdim`` and ``hdim_v`` of the problem are smaller than the kernel's if it pads them."""

    def __init__(self, machine: Machine, memory: Memory, code: CodeObject, kind: Kind, shape: Shape) -> None:
        self.machine, self.memory, self.code, self.kind, self.shape = machine, memory, code, kind, shape
        self.hdim = kind.hdim - 24 if kind.padded_hdim else kind.hdim
        self.hdim_v = kind.hdim_v - 24 if kind.padded_hdim else kind.hdim_v
        self.heads, self.kv_heads, self.batch = shape.nhead_q, shape.nhead_k, len(shape.seqlens_q)
        self.longest_q, self.longest_k = max(shape.seqlens_q), max(shape.seqlens_k)
        self.total_q, self.total_k = sum(shape.seqlens_q), sum(shape.seqlens_k)

    def compare(self) -> None:
        backward = self._pose()
        expected = self._widen(exact_gradients(backward))
        for name, computed in self._launch(backward).items():
            line = compare(name, computed, expected.values[name], expected.tolerances[name])
            assert line.passed, str(line)

    def _pose(self) -> BackwardInputs:
        kind, generator = self.kind, np.random.default_rng(0)
        left, right = _WINDOW if kind.mask == "window" else (-1, 0 if kind.mask != "no" else -1)
        problem = Problem(
            arch=self.machine.arch,
            dtype=kind.dtype,
            mode="group" if kind.group else "batch",
            batch=self.batch,
            seqlen_q=self.longest_q,
            seqlen_k=self.longest_k,
            nhead_q=self.heads,
            nhead_k=self.kv_heads,
            hdim_q=self.hdim,
            hdim_v=self.hdim_v,
            mask="bottom_right" if kind.mask == "window" else kind.mask,
            window_left=left,
            window_right=right,
        )

        def numbers(*shape: int) -> Array:
            return self._decode(self._encode(generator.standard_normal(shape)))

        q = [numbers(length, self.heads, self.hdim) for length in self.shape.seqlens_q]
        k = [numbers(length, self.kv_heads, self.hdim) for length in self.shape.seqlens_k]
        v = [numbers(length, self.kv_heads, self.hdim_v) for length in self.shape.seqlens_k]
        inputs = inputs_of(problem, q, k, v)
        forward = exact(inputs)
        return BackwardInputs(
            inputs=inputs, o=forward.o, dout=numbers(self.total_q, self.heads, self.hdim_v), lse=forward.lse
        )

    def _widen(self, expected: BoundedGradients) -> BoundedGradients:
        """Add the rounding of each addition to a dQ of 16 bits."""
        if not self.kind.half:
            return expected
        values, tolerances = dict(expected.values), dict(expected.tolerances)
        additions = -(-self.longest_k // 64)
        largest = np.abs(values["dq"]).max(axis=-1, keepdims=True)
        step = ROUNDING[self.kind.dtype].o_step
        tolerances["dq"] = tolerances["dq"] + additions * step * _PARTIAL * largest
        return dataclasses.replace(expected, tolerances=tolerances)

    def _launch(self, backward: BackwardInputs) -> Mapping[str, Array]:
        kind, memory = self.kind, self.memory
        inputs = backward.inputs
        d = (backward.dout * backward.o).sum(axis=2).T
        dq, dq_shape = self._room_of_dq()
        dk = memory.room((self.total_k + TAIL_ROWS, self.heads, self.hdim), np.uint16)
        dv = memory.room((self.total_k + TAIL_ROWS, self.heads, self.hdim_v), np.uint16)
        problem = inputs.problem
        values = {
            **{"dq": dq, "dk": dk, "dv": dv, "q": self._upload(np.concatenate(inputs.q))},
            **{"k": self._upload(np.concatenate(inputs.k)), "v": self._upload(np.concatenate(inputs.v))},
            **{"do": self._upload(backward.dout), "lse": self._rows(backward.lse), "d": self._rows(d)},
            **{"scale": problem.softmax_scale, "log2e": _LOG2E, "gqa": self.heads // self.kv_heads},
            **self._sizes(problem),
        }
        fields = self._layout_fields(values)
        self.machine.launch(self.code, Launch(kind.table, self._grid(), _THREADS, fields))
        if kind.shuffled:
            dq, dq_shape = self._shuffle(dq, values)
        return {
            "dq": self._rows_of_dq(memory.read(dq, dq_shape, bits_type(kind.dtype) if kind.half else np.float32)),
            "dk": self._decode(memory.read(dk, (self.total_k, self.heads, self.hdim), np.uint16)),
            "dv": self._decode(memory.read(dv, (self.total_k, self.heads, self.hdim_v), np.uint16)),
        }

    def _layout_fields(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        from tests.programs.objects.launching import layouts

        names = {argument.name for argument in layouts()[self.kind.table]}
        return {name: value for name, value in values.items() if name in names}

    def _grid(self) -> tuple[int, int, int]:
        tile = self._tile()
        tiles = -(-self.longest_k // tile)
        if self.kind.mask in ("top_left", "bottom_right"):
            tiles = -(-tiles // 2)
        return tiles, self.heads, self.batch

    def _tile(self) -> int:
        kind = self.kind
        if kind.table == "fmha_v3_bwd_gfx950":
            return 256 if kind.hdim == 128 else 192
        return 64 if kind.hdim == 192 else 192

    def _sizes(self, problem: Problem) -> dict[str, Any]:
        heads, kv_heads = self.heads, self.kv_heads
        dimensions: dict[str, Any] = {
            **{"seqlen_q": self.longest_q, "seqlen_k": self.longest_k, "hdim": self.hdim, "hdim_v": self.hdim_v},
            **{"nhead_q": heads, "total_k": self.total_k, "lse_head": 4 * self.total_q},
            **{"k_tile": self._tile() * kv_heads * self.hdim * 2},
            **starts(self.memory, self.shape),
        }
        dimensions["longest_q"] = -(-self.longest_q // 16) * 16 if self.kind.half else self.longest_q
        sizes = {
            **{"q": (heads, self.hdim, self.longest_q), "do": (heads, self.hdim_v, self.longest_q)},
            **{"k": (kv_heads, self.hdim, self.longest_k), "v": (kv_heads, self.hdim_v, self.longest_k)},
            **{"dk": (heads, self.hdim, self.longest_k), "dv": (heads, self.hdim_v, self.longest_k)},
        }
        for name, (count, hdim, length) in sizes.items():
            dimensions |= strides(name, count * hdim, hdim, length * count * hdim)
        if self.kind.mask == "window":
            dimensions["mask_y"], dimensions["mask_x"] = mask_corner(problem, self.longest_q, self.longest_k)
        return dimensions

    def _room_of_dq(self) -> tuple[Any, tuple[int, ...]]:
        """Memory for dQ, to whose zeros kernels add: [batch, head, query, dim], rows of all tokens for a16 alone."""
        kind = self.kind
        shape: tuple[int, ...]
        if kind.shuffled:
            shape = (self.batch, self.heads, -(-self.longest_q // 16) * 16, kind.hdim)
        elif kind.half:
            shape = (self.total_q, self.heads, self.hdim)
        elif kind.group:
            shape = (self.heads, self.total_q, self.hdim)
        else:
            shape = (self.batch, self.heads, self.longest_q, self.hdim)
        return self.memory.upload(np.zeros(shape, np.uint16 if kind.half else np.float32)), shape

    def _shuffle(self, dq_acc: Any, values: Mapping[str, Any]) -> tuple[Any, tuple[int, ...]]:
        kind, shape = self.kind, (self.total_q, self.heads, self.hdim)
        longest = values["longest_q"]
        dq = self.memory.room((self.total_q + TAIL_ROWS, self.heads, self.hdim), np.uint16)
        fields = {
            **{"dq_acc": dq_acc, "dq": dq, "dq_tile": _SHUFFLED_ROWS * 2 * self.heads * self.hdim},
            **strides("dq_acc", kind.hdim, longest * kind.hdim, self.heads * longest * kind.hdim),
            **strides("dq", self.heads * self.hdim, self.hdim, self.longest_q * self.heads * self.hdim),
            **{"seqlen_q": self.longest_q, "hdim": self.hdim, "longest_q": longest},
            **{name: values[name] for name in ("start_q", "start_padded_q")},
        }
        name = _shuffle_name(kind)
        code = next(candidate for candidate in code_objects(self.machine.arch, "fmha_v3_bwd") if candidate.name == name)
        grid = (-(-self.longest_q // _SHUFFLED_ROWS), self.heads, self.batch)
        self.machine.launch(code, Launch("dq_shuffle", grid, _THREADS, fields))
        return dq, shape

    def _rows_of_dq(self, computed: Array) -> Array:
        """dQ as [token, head, dim]."""
        numbers = self._decode(computed) if self.kind.half else computed.astype(np.float64)
        if self.kind.half:
            return numbers
        if self.kind.group:
            return numbers.transpose(1, 0, 2)
        return numbers.transpose(0, 2, 1, 3).reshape(self.total_q, self.heads, self.hdim)

    def _rows(self, of_tokens: Array) -> Any:
        """A number of each row: [batch, head, query], in group mode [head, token]; with a tail."""
        rows = of_tokens
        if not self.kind.group:
            rows = rows.reshape(self.heads, self.batch, -1).transpose(1, 0, 2)
        return self.memory.upload(np.concatenate([rows.ravel(), np.full(TAIL_ROWS, TAIL)]).astype(np.float32))

    def _upload(self, rows: Array) -> Any:
        tail = np.full((TAIL_ROWS, *rows.shape[1:]), TAIL)
        return self.memory.upload(self._encode(np.concatenate([rows, tail])))

    def _encode(self, values: Array) -> Array:
        return encode(values, self.kind.dtype, self.machine.arch)

    def _decode(self, bits: Array) -> Array:
        return decode(bits, self.kind.dtype, self.machine.arch)
