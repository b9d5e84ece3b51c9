"""Matrix instructions D = A * B + C by the ISA's layout (CDNA3/CDNA4 ISA, section 7 "Matrix arithmetic instructions").

The layout is that of 7.1.4. EXEC is ignored.

- `A[b, i, k]` is item `k % K_L` of lane `i + M * (b + B * (k / K_L))`, with `K_L = K / (64 / (M * B))`.
- `D[b, i, j]` is item `i % H + H * (i / (H * M_I) + G * (b / B_I))` of lane
  `j + N * ((i / H) % M_I + M_I * (b % B_I))`.

Products of f16, bf16 and fp8 are exact in float64. The ISA leaves the order and the intermediate precision of the
hardware's f32 sums open. A result may thus differ from the exact sum by one f32 rounding in any direction for each of
the K + 1 terms. Partial sums are at most `S = sum(|a * b|) + |c|`, so the tolerance is `(K + 1) * 2**-23 * S`.
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from oracle import floats
from oracle.floats import Format
from oracle.operands import State
from oracle.values import Modes

INT8 = Format("i8", 0, 7, 0, "integer")
Array = npt.NDArray[np.float64]
_NAME = re.compile(r"V_(?:MFMA|SMFMAC)_(?:SCALE_)?([FI]\d+)_(\d+)X\d+X(\d+)(?:_(\d+)B)?_([A-Z0-9]+?)(?:_([A-Z0-9]+))?$")


@dataclass(frozen=True)
class Shape:
    """The shape in the opcode's name."""

    result: str
    n: int
    k: int
    blocks: int
    a: str
    b: str

    sparse: bool = False

    @property
    def elements(self) -> int:
        """Elements of A (or B) that a lane holds; of a sparse A half of them."""
        return self.n * self.k * self.blocks // 64

    @property
    def registers(self) -> int:
        """Registers of C and D, of f64 pairs of them."""
        return self.n * self.n * self.blocks // 64


def shape_of(name: str) -> Shape:
    match = _NAME.match(name)
    if match is None:
        raise NotImplementedError(name)
    result, n, k, blocks, a, b = match.groups()
    return Shape(result, int(n), int(k), int(blocks or 1), a, b or a, name.startswith("V_SMFMAC"))


# What cbsz and blgp of F8F6F4 name, of A and of B (7.1.5).
SMALL = ("FP8", "BF8", "FP6", "BF6", "FP4")


def shape_of_instruction(inst: Any) -> Shape:
    shape = shape_of(inst.op.name)
    if shape.a != "F8F6F4":
        return shape
    return dataclasses.replace(shape, a=SMALL[inst.cbsz], b=SMALL[inst.blgp])


def format_by_name(name: str, modes: Modes) -> Format:
    named = {"I8": INT8, "F16": floats.F16, "BF16": floats.BF16, "F32": floats.F32, "FP8": modes.fp8, "BF8": modes.bf8}
    more = {"XF32": floats.F32, "F64": floats.F64, "FP6": floats.E2M3, "BF6": floats.E3M2, "FP4": floats.E2M1}
    return (named | more)[name]


def tolerance(shape: Shape, magnitude: Array) -> Array:
    """`magnitude`: sum of |a * b| plus |c| of every element of D."""
    last_place, least = (2.0**-52, 2.0**-1074) if shape.result == "F64" else (2.0**-23, 2.0**-149)
    return (shape.k + 1) * last_place * magnitude + (shape.k + 1) * least


def decode(bits: npt.NDArray[Any], fmt: Format) -> Array:
    """Bit patterns to float64, by the format definition."""
    if fmt is INT8:
        return bits.astype(np.uint8).view(np.int8).astype(np.float64)
    if fmt.width == 64:
        return bits.astype(np.uint64).view(np.float64)
    if fmt.width <= 16:
        table: Array = _table(fmt)[bits]
        return table
    return bits.astype(np.uint32).view(np.float32).astype(np.float64)


_TABLES: dict[str, Array] = {}


def _table(fmt: Format) -> Array:
    if fmt.name not in _TABLES:
        codes = range(1 << fmt.width)
        packed = np.array([floats.F64.pack(fmt.unpack(code)) for code in codes], dtype=np.uint64)
        _TABLES[fmt.name] = packed.view(np.float64)
    return _TABLES[fmt.name]


def items(state: State, row: int, count: int, fmt: Format) -> Array:
    """The items in the registers from `row` on, [item, lane], low bits first."""
    dwords = -(-count * fmt.width // 32)
    held = [0] * 64
    for lane in range(64):
        held[lane] = int.from_bytes(state.vector[row : row + dwords, lane].astype("<u4").tobytes(), "little")
    codes = [[bits >> fmt.width * item & (1 << fmt.width) - 1 for bits in held] for item in range(count)]
    return decode(np.array(codes, dtype=np.uint64), fmt)


def broadcast(lane: int, cbsz: int, abid: int, n: int) -> int:
    """AMD's matrix_instruction_calculator: the lane of A, in blocks of n, that is read in place of `lane`.

    7.1.6.1 has other lanes, unless all blocks read the same one (device-semantics.md).
    """
    return (lane // n // (1 << cbsz) * (1 << cbsz) + abid) * n + lane % n if cbsz else lane


def permute_lane(lane: int, blgp: int) -> int:
    """Table 29: the lane of B."""
    patterns = (lane, lane % 32, lane % 32 + 32, (lane + 16) % 64, *(lane % 16 + 16 * q for q in range(4)))
    return patterns[blgp]


def gather(state: State, row: int, shape: Shape, name: str, *, stored: bool = False, lanes: Any = None) -> Array:
    """Rows of A, or columns of B: [block, n, k]. `stored`: of a sparse A what is stored. `lanes`: a permutation."""
    fmt = format_by_name(name, state.modes())
    depth = shape.k // 2 if stored else shape.k
    count = shape.n * depth * shape.blocks // 64
    held = items(state, row, count, fmt)
    if name == "XF32":  # ten bits of the mantissa
        held = (held.astype(np.float32).view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)
    if name == "F32" and not state.mode >> 4 & 1:
        held = np.where(np.abs(held) < 2.0**-126, 0.0, held)
    matrix = np.zeros((shape.blocks, shape.n, depth))
    for block, index, k in np.ndindex(matrix.shape):
        group, item = divmod(k, count)
        if count * fmt.width == 256:  # the tables of layouts: 16 bytes of a row lie in a lane, then those of the next
            chunk, item = divmod(k, 128 // fmt.width)
            group = chunk % (64 // shape.n)
            item += chunk // (64 // shape.n) * (128 // fmt.width)
        lane = index + shape.n * (block + shape.blocks * group)
        matrix[block, index, k] = held[item, lanes(lane) if lanes else lane]
    return matrix


def select_values(state: State, inst: Any, shape: Shape, b: Array) -> Array:
    """The values of B that a row's stored ones meet, [row, column, stored]: 7.5, tables 35 and 37 and the index layouts
    of CDNA4."""
    count = shape.elements // 2
    first = 0 if inst.cbsz & 3 else inst.abid % (16 // count) * 2 * count
    index_row = inst.src2.offset - 256
    met = np.zeros((shape.n, shape.n, shape.k // 2))
    for row, at in np.ndindex(shape.n, shape.k // 2):
        word = int(state.vector[index_row, row + shape.n * (at // count)])
        met[row, :, at] = b[0, :, at // 2 * 4 + (word >> first + 2 * (at % count) & 3)]
    return met


def scales(state: State, source: int, byte: int, shape: Shape) -> Array:
    """[1, n, k]: 7.2.1, a scale for 32 values of k in a lane of its own."""
    factors = np.zeros((1, shape.n, shape.k))
    for row, k in np.ndindex(shape.n, shape.k):
        exponent = int(state.vector[source - 256, row + shape.n * (k // 32)]) >> 8 * byte & 0xFF
        factors[0, row, k] = 2.0 ** (exponent - 127) if exponent != 255 else np.nan
    return factors


def position(shape: Shape, register: int, lane: int) -> tuple[int, int, int]:
    """Block, row and column of D in `register` (of f64: pair) of `lane`."""
    return _item_places(shape)[register, lane]


def _item_places(shape: Shape) -> dict[tuple[int, int], tuple[int, int, int]]:
    height = 1 if shape.result == "F64" else 4
    in_item = -(-64 // (shape.n * shape.n // height))
    rows = 64 // in_item // shape.n
    below = shape.n // (height * rows)
    return {
        (
            i % height + height * (i // (height * rows) + below * (b // in_item)),
            j + shape.n * (i // height % rows + rows * (b % in_item)),
        ): (b, i, j)
        for b, i, j in np.ndindex(shape.blocks, shape.n, shape.n)
    }


def positions(shape: Shape) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """position() of all registers and lanes: three arrays [register, lane]."""
    places = _item_places(shape)
    coordinates = np.array([[places[r, lane] for lane in range(64)] for r in range(shape.registers)])
    return coordinates[..., 0], coordinates[..., 1], coordinates[..., 2]


def rows_of(inst: Any) -> tuple[int, int, int | None, int]:
    """Rows of A, B, C and D in the unified vector file; C is None if it is a constant."""
    acc = getattr(inst, "acc", 0)
    a = inst.src0.offset - 256 + (256 if acc & 1 else 0)
    b = inst.src1.offset - 256 + (256 if acc & 2 else 0)
    cd = 256 if getattr(inst, "acc_cd", 0) else 0
    d = inst.vdst.offset - 256 + cd
    if inst.op.name.startswith("V_SMFMAC"):
        return a, b, d, d
    c = inst.src2.offset - 256 + cd if inst.src2.offset >= 256 else None
    return a, b, c, d


def factors(inst: Any, state: State, shape: Shape) -> tuple[Array, Array]:
    """A, [block, row, k], and B, [block, column, k], with everything that the instruction does to them.

    Of a sparse A what is stored, and what it meets: [1, row, stored] and [1, row, column, stored].
    """
    row_a, row_b, _, _ = rows_of(inst)
    if shape.sparse:
        stored = gather(state, row_a, shape, shape.a, stored=True)
        return stored, select_values(state, inst, shape, gather(state, row_b, shape, shape.b))[None]
    plain = shape.result == "F64" or (shape.a in SMALL and inst.op.name.endswith("F8F6F4"))
    a = gather(
        state,
        row_a,
        shape,
        shape.a,
        lanes=None if plain else lambda lane: broadcast(lane, inst.cbsz, inst.abid, shape.n),
    )
    b = gather(state, row_b, shape, shape.b, lanes=None if plain else lambda lane: permute_lane(lane, inst.blgp))
    if shape.result == "F64":
        a, b = a * (-1 if inst.blgp & 1 else 1), b * (-1 if inst.blgp & 2 else 1)
    if "_SCALE_" in inst.op.name:
        byte = [inst.opsel >> i & 1 | (inst.opsel_hi >> i & 1) << 1 for i in range(2)]
        with np.errstate(all="ignore"):
            a = a * scales(state, int(inst.scale_src0), byte[0], shape)
            b = b * scales(state, int(inst.scale_src1), byte[1], shape)
    return a, b


def addends(inst: Any, state: State, shape: Shape) -> Array:
    """C, [register, lane]."""
    row = rows_of(inst)[2]
    wide = shape.result == "F64"
    if row is None:
        from oracle.operands import constant

        value = constant(inst.src2.offset, shape.result, 64 if wide else 32)
        bits = np.full((shape.registers, 64), value, dtype=np.uint64 if wide else np.uint32)
    elif wide:
        halves = state.vector[row : row + 2 * shape.registers].astype(np.uint64)
        bits = halves[1::2] << np.uint64(32) | halves[0::2]
    else:
        bits = state.vector[row : row + shape.registers].copy()
    kinds = {"F64": np.float64, "I32": np.int32, "F32": np.float32}
    c = bits.view(kinds[shape.result]).astype(np.float64)
    return -c if wide and inst.blgp & 4 else c


def reference(inst: Any, state: State) -> tuple[Array, Array, Shape]:
    """D in float64 and its tolerance, both [register, lane]. NaN where D must be a NaN."""
    shape = shape_of_instruction(inst)
    a, b = factors(inst, state, shape)
    c = addends(inst, state, shape)
    block, row, column = positions(shape)
    with np.errstate(all="ignore"):
        sums = "bik,bijk->bij" if shape.sparse else "bik,bjk->bij"
        product = np.einsum(sums, a, b)
        size = np.einsum(sums, np.abs(a), np.abs(b))
        d = product[block, row, column] + c
        slack = tolerance(shape, size[block, row, column] + np.abs(c))
    if state.mode >> 23 & 1:  # FP16_OVFL (7.1.5): what is too large becomes the largest number
        most = {"I32": 2.0**31 - 1, "F32": float(np.finfo(np.float32).max), "F64": np.inf}[shape.result]
        least = -(2.0**31) if shape.result == "I32" else -most
        d = np.where(np.isfinite(d), np.clip(d, least, most), d)
    return d, np.zeros_like(d) if shape.result == "I32" else slack, shape


def result(state: State, inst: Any, shape: Shape) -> Array:
    """D as `state` holds it, [register, lane]."""
    row = rows_of(inst)[3]
    if shape.result == "F64":
        halves = state.vector[row : row + 2 * shape.registers].astype(np.uint64)
        return (halves[1::2] << np.uint64(32) | halves[0::2]).view(np.float64)
    return state.vector[row : row + shape.registers].view(np.float32).astype(np.float64)


def execute(inst: Any, state: State) -> None:
    """Write the reference, rounded: for comparisons of everything but D itself."""
    d, _, shape = reference(inst, state)
    row = rows_of(inst)[3]
    if shape.result == "I32":
        state.vector[row : row + shape.registers] = d.astype(np.int64).astype(np.uint32)
        return
    if shape.result == "F64":
        bits = d.view(np.uint64)
        state.vector[row : row + 2 * shape.registers : 2] = bits & np.uint64(0xFFFFFFFF)
        state.vector[row + 1 : row + 2 * shape.registers : 2] = bits >> np.uint64(32)
        return
    with np.errstate(all="ignore"):
        state.vector[row : row + shape.registers] = d.astype(np.float32).view(np.uint32)
