"""Matrix instructions D = A * B + C by the ISA's layout (CDNA3/CDNA4 ISA, section 7 "Matrix arithmetic instructions").

Layout (facts/emulation.md, AMD's matrix instruction calculator) for N = 32, 16 or 4 rows or columns, E elements a lane:
A and B: lane l holds row (column) l % N; element e is k = E * (l / N) + e.
C and D of 32x32: register r, lane l is row 8 * (r / 4) + 4 * (l / 32) + r % 4, column l % 32.
C and D of 16x16: row 4 * (l / 16) + r, column l % 16. EXEC is ignored.

Tolerance: products of f16, bf16 and fp8 are exact in float64. The hardware adds them to an f32 accumulator in an order
and with intermediate precision that the ISA leaves open, so a result may differ from the exact sum by one f32 rounding
(of any direction) for each of the K + 1 terms, of partial sums not above S = sum(|a * b|) + |c|: (K + 1) * 2**-23 * S.
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.emulator.oracle import floats
from tests.emulator.oracle.floats import Format
from tests.emulator.oracle.operands import State
from tests.emulator.oracle.values import Modes

INT8 = Format("i8", 0, 7, 0, "integer")
Array = npt.NDArray[np.float64]
_NAME = re.compile(r"V_MFMA_(?:SCALE_)?([FI]\d+)_(\d+)X\d+X(\d+)(?:_(\d+)B)?_([A-Z0-9]+?)(?:_([A-Z0-9]+))?$")


@dataclass(frozen=True)
class Shape:
    """What the opcode's name says."""

    result: str
    n: int
    k: int
    blocks: int
    a: str
    b: str

    @property
    def elements(self) -> int:
        """Elements of A (or B) that a lane holds."""
        return self.n * self.k * self.blocks // 64

    @property
    def registers(self) -> int:
        """32-bit registers of C and D."""
        return self.n * self.n * self.blocks // 64


def shape_of(name: str) -> Shape:
    match = _NAME.match(name)
    if match is None:
        raise NotImplementedError(name)
    result, n, k, blocks, a, b = match.groups()
    return Shape(result, int(n), int(k), int(blocks or 1), a, b or a)


EIGHT_BITS = ("FP8", "BF8")  # what cbsz and blgp of F8F6F4 name first, of A and of B


def shape_of_instruction(inst: Any) -> Shape:
    shape = shape_of(inst.op.name)
    if shape.a != "F8F6F4":
        return shape
    return dataclasses.replace(shape, a=EIGHT_BITS[inst.cbsz], b=EIGHT_BITS[inst.blgp])


def format_by_name(name: str, modes: Modes) -> Format:
    named = {"I8": INT8, "F16": floats.F16, "BF16": floats.BF16, "F32": floats.F32, "FP8": modes.fp8, "BF8": modes.bf8}
    return named[name]


def tolerance(shape: Shape, magnitude: Array) -> Array:
    """`magnitude`: sum of |a * b| plus |c| of every element of D."""
    return (shape.k + 1) * 2.0**-23 * magnitude + (shape.k + 1) * 2.0**-149


def decode(bits: npt.NDArray[np.uint32], fmt: Format) -> Array:
    """Bit patterns to float64, by the format definition."""
    if fmt is INT8:
        return bits.astype(np.uint8).view(np.int8).astype(np.float64)
    table = _table(fmt) if fmt.width <= 16 else None
    if table is not None:
        return table[bits]
    return bits.astype(np.uint32).view(np.float32).astype(np.float64)


_TABLES: dict[str, Array] = {}


def _table(fmt: Format) -> Array:
    if fmt.name not in _TABLES:
        codes = range(1 << fmt.width)
        packed = np.array([floats.F64.pack(fmt.unpack(code)) for code in codes], dtype=np.uint64)
        _TABLES[fmt.name] = packed.view(np.float64)
    return _TABLES[fmt.name]


def gather(state: State, row: int, shape: Shape, name: str) -> Array:
    """Rows of A, or columns of B: [block, n, k]."""
    fmt = format_by_name(name, state.modes())
    per_register = 32 // fmt.width
    matrix = np.zeros((shape.blocks, shape.n, shape.k))
    groups = 64 // shape.n
    for element in range(shape.elements):
        register, part = divmod(element, per_register)
        bits = state.vector[row + register] >> np.uint32(part * fmt.width) & np.uint32((1 << fmt.width) - 1)
        numbers = decode(bits, fmt)
        for lane in range(64):
            index, group = lane % shape.n, lane // shape.n
            if shape.blocks == 1:
                matrix[0, index, shape.elements * group + element] = numbers[lane]
            else:  # each group of lanes is a block of its own
                block = group * shape.blocks // groups
                matrix[block, index, element] = numbers[lane]
    return matrix


def position(shape: Shape, register: int, lane: int) -> tuple[int, int, int]:
    """Block, row and column of D in `register` of `lane`."""
    if shape.n == 32:
        block, register = divmod(register, 16)
        return block, 8 * (register // 4) + 4 * (lane // 32) + register % 4, lane % 32
    if shape.n == 16:
        block, register = divmod(register, 4)
        return block, 4 * (lane // 16) + register, lane % 16
    return lane // 4, register, lane % 4


def positions(shape: Shape) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """position() of all registers and lanes: three arrays [register, lane]."""
    found = np.array([[position(shape, r, lane) for lane in range(64)] for r in range(shape.registers)])
    return found[..., 0], found[..., 1], found[..., 2]


def rows_of(inst: Any) -> tuple[int, int, int | None, int]:
    """Rows of A, B, C and D in the unified vector file; C is None if it is a constant."""
    acc = getattr(inst, "acc", 0)
    a = inst.src0.offset - 256 + (256 if acc & 1 else 0)
    b = inst.src1.offset - 256 + (256 if acc & 2 else 0)
    cd = 256 if getattr(inst, "acc_cd", 0) else 0
    c = inst.src2.offset - 256 + cd if inst.src2.offset >= 256 else None
    return a, b, c, inst.vdst.offset - 256 + cd


def reference(inst: Any, state: State) -> tuple[Array, Array, Shape]:
    """D in float64 and its tolerance, both [register, lane]. NaN where D must be a NaN."""
    shape = shape_of_instruction(inst)
    row_a, row_b, row_c, _ = rows_of(inst)
    a, b = gather(state, row_a, shape, shape.a), gather(state, row_b, shape, shape.b)
    block, row, column = positions(shape)
    if row_c is None:
        from tests.emulator.oracle.operands import constant

        bits = np.full((shape.registers, 64), constant(inst.src2.offset, "F32", 32), dtype=np.uint32)
    else:
        bits = state.vector[row_c : row_c + shape.registers].copy()
    if shape.result == "I32":  # exact: sums of products of bytes fit a double, the result wraps
        c = bits.view(np.int32).astype(np.float64)
        total = np.einsum("bik,bjk->bij", a, b)[block, row, column] + c
        return total, np.zeros_like(total), shape
    c = bits.view(np.float32).astype(np.float64)
    with np.errstate(all="ignore"):
        product = np.einsum("bik,bjk->bij", a, b)
        size = np.einsum("bik,bjk->bij", np.abs(a), np.abs(b))
        d = product[block, row, column] + c
        slack = tolerance(shape, size[block, row, column] + np.abs(c))
    return d, slack, shape


def execute(inst: Any, state: State) -> None:
    """Write the reference, rounded to f32: for comparisons of everything but D itself."""
    d, _, shape = reference(inst, state)
    row = rows_of(inst)[3]
    if shape.result == "I32":
        state.vector[row : row + shape.registers] = d.astype(np.int64).astype(np.uint32)
        return
    with np.errstate(all="ignore"):
        state.vector[row : row + shape.registers] = d.astype(np.float32).view(np.uint32)
