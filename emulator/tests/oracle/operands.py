"""Parts that the pseudocode leaves out: the sources of operands, and modifiers of operands and results.

CDNA3 ISA, sections: 3.3 MODE (rounding, denormals, DX10_CLAMP, IEEE), 6.2 "Operands" (input and output modifiers),
6.2.1 "Instruction inputs" (inline constants and literals), 6.3 op_sel and packed operands, 12.x SDWA and DPP.
LLVM AMDGPUOperandSyntax for the width of inline constants; LLVM GCNSubtarget::zeroesHigh16BitsOfDest for bits 31:16.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from oracle import floats
from oracle.floats import Format, Round
from oracle.values import Modes

VCC, M0, EXEC, SCC = 106, 124, 126, 253
LITERAL = 255
INLINE_FLOATS = {240: 0.5, 241: -0.5, 242: 1.0, 243: -1.0, 244: 2.0, 245: -2.0, 246: 4.0, 247: -4.0}
INVERSE_2_PI = {16: 0x3118, 32: 0x3E22F983, 64: 0x3FC45F306DC9C882}
FORMATS = {"F16": floats.F16, "F32": floats.F32, "F64": floats.F64, "BF16": floats.BF16}


@dataclass
class State:
    """One wave: the same arrays as the emulator's EmuWaveState, plus memory as {base: bytes}."""

    vector: npt.NDArray[np.uint32]
    scalar: npt.NDArray[np.uint32]
    mode: int = 0xF0
    lds: bytearray = field(default_factory=bytearray)
    memory: dict[int, bytearray] = field(default_factory=dict)
    pc: int = 0
    arch: str = "gfx950"
    scratch: list[bytearray] = field(default_factory=list)  # of each lane
    stopped: int = 0  # 1 by s_endpgm, 2 by s_barrier

    def copy(self) -> State:
        memory = {base: bytearray(data) for base, data in self.memory.items()}
        scratch = [bytearray(lane) for lane in self.scratch]
        lds = bytearray(self.lds)
        return State(self.vector.copy(), self.scalar.copy(), self.mode, lds, memory, self.pc, self.arch, scratch)

    def pair(self, code: int) -> int:
        return int(self.scalar[code]) | int(self.scalar[code + 1]) << 32

    def set_pair(self, code: int, bits: int) -> None:
        self.scalar[code], self.scalar[code + 1] = bits & 0xFFFFFFFF, bits >> 32

    @property
    def exec(self) -> int:
        return self.pair(EXEC)

    def modes(self) -> Modes:
        ocp = self.arch != "gfx942"
        return Modes(
            Round(self.mode & 3),
            Round(self.mode >> 2 & 3),
            floats.E4M3FN if ocp else floats.E4M3FNUZ,
            floats.E5M2 if ocp else floats.E5M2FNUZ,
        )

    @property
    def ieee(self) -> bool:
        return bool(self.mode >> 9 & 1)

    @property
    def dx10_clamp(self) -> bool:
        return bool(self.mode >> 8 & 1)

    def flushes(self, width: int, output: bool) -> bool:
        """MODE.FP_DENORM: bits 5:4 for f32, 7:6 for f16 and f64; bit 0 lets inputs through, bit 1 outputs."""
        allowed = self.mode >> (4 if width == 32 else 6) & 3
        return not allowed & (2 if output else 1)


@dataclass(frozen=True)
class Operand:
    """A field in tinygrad's operand table: element format, number of packed elements, bits."""

    element: str
    packed: int
    bits: int

    @property
    def format(self) -> Format | None:
        return FORMATS.get(self.element)


_FORMAT = re.compile(r"FMT_NUM_(?:PK(\d+)_)?([A-Z]+\d+)$")


def operand(inst: Any, name: str) -> Operand:
    entry = inst.operands.get(name)
    if entry is None:
        entry = inst.operands.get("v" + name) or inst.operands.get("s" + name)
    if entry is None:
        return Operand("B32", 1, 32)
    match = _FORMAT.match(entry[0].name)
    if match is None:
        return Operand("B32", 1, entry[1])
    return Operand(match[2], int(match[1] or 1), entry[1])


def constant(code: int, element: str, bits: int) -> int | None:
    """Inline constants: small integers, and floats in the format of the operand."""
    if 128 <= code <= 192:
        return code - 128
    if 193 <= code <= 208:
        return (192 - code) & ((1 << max(bits, 32)) - 1)
    if not 240 <= code <= 248:
        return None
    width = 64 if bits == 64 and element not in ("F32", "B32") else 16 if element == "F16" else 32
    if code == 248:
        return INVERSE_2_PI[width]
    return {16: floats.F16, 32: floats.F32, 64: floats.F64}[width].pack(floats.from_float(INLINE_FLOATS[code]))


def literal(value: int, element: str, bits: int) -> int:
    """A 32-bit literal in a 64-bit operand: the high half of an f64, sign- or zero-extended otherwise."""
    if bits < 64 or element in ("F32", "B32"):
        return value
    if element == "F64":
        return value << 32
    return (value - (value >> 31 << 32)) & (1 << 64) - 1 if element == "I64" else value


def read_scalar(state: State, code: int, kind: Operand, literal_value: int | None) -> int:
    inline = constant(code, kind.element, kind.bits)
    if inline is not None:
        return inline
    if code == LITERAL:
        assert literal_value is not None
        return literal(literal_value, kind.element, kind.bits)
    if code == 251:
        return int(state.pair(VCC) == 0)
    if code == 252:
        return int(state.exec == 0)
    bits = 0
    for n in range(max(1, kind.bits // 32)):
        bits |= int(state.scalar[code + n]) << 32 * n
    return bits


def write_scalar(state: State, code: int, bits: int, width: int) -> None:
    for n in range(max(1, width // 32)):
        state.scalar[code + n] = bits >> 32 * n & 0xFFFFFFFF


def read_vector(state: State, row: int, lane: int, bits: int) -> int:
    value = 0
    for n in range(max(1, (bits + 31) // 32)):
        value |= int(state.vector[row + n, lane]) << 32 * n
    return value


def write_vector(state: State, row: int, lane: int, bits: int, width: int) -> None:
    for n in range(max(1, (width + 31) // 32)):
        state.vector[row + n, lane] = bits >> 32 * n & 0xFFFFFFFF


def read_source(state: State, code: int, lane: int, kind: Operand, literal_value: int | None, acc: bool = False) -> int:
    if code >= 256:
        return read_vector(state, code - 256 + (256 if acc else 0), lane, kind.bits)
    return read_scalar(state, code, kind, literal_value)


def modify(bits: int, element: str, negative: bool, absolute: bool) -> int:
    """neg and abs of floating-point operands: absolute value first (6.2.2). NaNs stay NaNs with their payload."""
    width = {"F64": 64, "F16": 16, "BF16": 16}.get(element, 32)
    top = 1 << (width - 1)
    if absolute:
        bits &= ~top
    return bits ^ top if negative else bits


def flush(bits: int, fmt: Format) -> int:
    """A denormal becomes a zero of its sign."""
    return bits & 1 << (fmt.width - 1) if fmt.is_denormal(bits) else bits


def select(bits: int, selection: int, sign: bool) -> int:
    """SDWA SRC_SEL: BYTE_0..3, WORD_0..1, DWORD; zero- or sign-extended to 32 bits."""
    if selection == 6:
        return bits & 0xFFFFFFFF
    low, width = (8 * selection, 8) if selection < 4 else (16 * (selection - 4), 16)
    part = bits >> low & ((1 << width) - 1)
    if sign and part >> (width - 1):
        part -= 1 << width
    return part & 0xFFFFFFFF


def insert(old: int, new: int, selection: int, unused: int) -> int:
    """SDWA DST_SEL with DST_UNUSED: 0 pad with zeros, 1 sign-extend, 2 keep the other bits."""
    if selection == 6:
        return new
    low, width = (8 * selection, 8) if selection < 4 else (16 * (selection - 4), 16)
    mask = (1 << width) - 1
    part = new & mask
    if unused == 2:
        return old & ~(mask << low) & 0xFFFFFFFF | part << low
    if unused == 1 and part >> (width - 1):
        return (-1 << (low + width) | part << low) & 0xFFFFFFFF
    return part << low


def dpp_source(control: int, lane: int) -> int | None:
    """Lane that DPP_CTRL reads for `lane`; None is out of bounds. Rows have 16 lanes (CDNA3 ISA, "DPP")."""
    row, at = lane & ~15, lane & 15
    if control < 0x100:
        return lane & ~3 | control >> 2 * (lane & 3) & 3
    amount = control & 15
    group = control >> 4
    if group == 0x10 and amount:
        return row | at + amount if at + amount < 16 else None
    if group == 0x11 and amount:
        return row | at - amount if at >= amount else None
    if group == 0x12 and amount:
        return row | (at - amount) % 16
    if group == 0x15:
        return row | amount
    special = {
        0x130: lane + 1 if lane < 63 else None,
        0x134: (lane + 1) % 64,
        0x138: lane - 1 if lane else None,
        0x13C: (lane - 1) % 64,
        0x140: row | 15 - at,
        0x141: lane & ~7 | 7 - (lane & 7),
        0x142: row - 1 if row else None,
        0x143: 31 if lane >= 32 else None,
    }
    if control not in special:
        raise ValueError(f"DPP_CTRL {control:#x} is reserved")
    return special[control]


def clamp(bits: int, fmt: Format, dx10: bool) -> int:
    """CLAMP of a floating-point result: to [0, 1]; a NaN becomes 0 if MODE.DX10_CLAMP."""
    if fmt.is_nan(bits):
        return 0 if dx10 else bits
    unit = fmt.pack(floats.from_int(1))
    if fmt.sign(bits):
        return 0
    return min(bits, unit)


def scale_output(bits: int, omod: int, fmt: Format, mode: Round) -> int:
    """OMOD: times 2, times 4, divided by 2."""
    if not omod or fmt.is_nan(bits):
        return bits
    number = fmt.unpack(bits)
    factor = floats.Number(floats.Kind.FINITE, 0, 1, {1: 1, 2: 2, 3: -1}[omod])
    return fmt.pack(floats.multiply(number, factor), mode)
