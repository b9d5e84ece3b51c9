"""Machine code to instructions, by tinygrad's tables (made from AMD's ISA XML)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

from tinygrad.renderer.amd import decode_inst
from tinygrad.renderer.amd.dsl import OPERANDS, EnumBitField, Reg
from tinygrad.runtime.autogen.amd.cdna import ins
from tinygrad.runtime.autogen.amd.cdna.enum import VOP3POp
from tinygrad.runtime.autogen.amd.cdna.ins import VOP3P_MFMA

from ckpm_emulator.lowering import shapes
from ckpm_emulator.lowering.operands import Form
from ckpm_emulator.lowering.shapes import FIRST_VECTOR, Shape

if TYPE_CHECKING:
    from ckpm_emulator.code_object import Function
    from ckpm_emulator.image import Image

_SIZES = (4, 8, 16)  # bytes
_LONGEST = _SIZES[-1]
_MTBUF = 0b111010  # the six highest bits of its first dword; tinygrad's decoder leaves the format out
# buffer_wbinvl1 and buffer_wbinvl1_vol of gfx90a: all archs' decoder has the caches' later instruction in their place
_MUBUF, _OPCODE_AT, _WBINVL1, _BUFFER_INV = 0b111000, 18, (0x3E, 0x3F), 0x29
_SCALED = b"\xac\xd3"  # bytes 2 and 3 of an MFMA with scales, whose second half may also stand alone


def _complete_tables() -> None:
    """gfx942's xf32 instructions, of which tinygrad has the names alone: their registers are those of f16 ones."""
    opcodes = dict(VOP3P_MFMA._fields)["op"]
    assert isinstance(opcodes, EnumBitField)
    assert opcodes.allowed is not None
    for name, like in (("16X16X8_XF32", "16X16X16_F16"), ("32X32X4_XF32", "32X32X8_F16")):
        operation = VOP3POp[f"V_MFMA_F32_{name}"]
        OPERANDS[operation] = OPERANDS[VOP3POp[f"V_MFMA_F32_{like}"]]
        opcodes.allowed.add(operation)


_complete_tables()


class Encoding:
    """The bits of an instruction, wherever it lies: ``raw``, their shape (None: unknown), and their text."""

    def __init__(self, shape: Shape | None, raw: int) -> None:
        self.shape, self.raw = shape, raw
        self.size = shape.size if shape else _SIZES[0]
        self.format = shape.format if shape else "UNKNOWN"
        self.name = shape.name if shape else "unknown"

    @cached_property
    def record(self) -> Any:
        """tinygrad's record; None if no table has the bits."""
        return self.shape.record(self.raw) if self.shape else None

    @cached_property
    def text(self) -> str:
        return _text(self.shape, self.record) if self.shape else f".long 0x{self.raw:08x}"


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction: its pc, and its encoding, which equal instructions share."""

    pc: int
    encoding: Encoding

    @property
    def size(self) -> int:
        return self.encoding.size

    @property
    def record(self) -> Any:
        return self.encoding.record

    @property
    def forms(self) -> Mapping[str, Form]:
        """The forms of the operands by field name; empty for unknown bits."""
        return self.encoding.shape.forms if self.encoding.shape else {}

    @property
    def text(self) -> str:
        return self.encoding.text

    @property
    def format(self) -> str:
        return self.encoding.format

    @property
    def name(self) -> str:
        return self.encoding.name


def decode(code: bytes, pc: int = 0) -> Iterator[Instruction]:
    """All instructions of a run of code that starts at ``pc``. Bits that no table has become unknown dwords."""
    at = 0
    while at < len(code):
        encoding = _decode_one(code[at : at + _LONGEST])
        yield Instruction(pc + at, encoding)
        at += encoding.size


def decode_function(read: Image, function: Function) -> Iterator[Instruction]:
    """Yield the instructions of a function of a code object. Their pcs count from the start of its text."""
    start = function.address - read.text_address
    return decode(read.text[start : start + function.size], start)


_encodings: dict[bytes, Encoding] = {}  # by their own bytes


def _decode_one(chunk: bytes) -> Encoding:
    """The encoding at the beginning of a chunk; later bytes matter only if it is unknown."""
    for size in reversed(_SIZES) if chunk[2:4] == _SCALED else _SIZES:
        if encoding := _encodings.get(chunk[:size]):
            return encoding
    if _is_wbinvl1(chunk):
        return _decode_one(_buffer_inv(chunk))
    shape = _shape(chunk)
    code = chunk[: shape.size if shape else _SIZES[0]]
    encoding = Encoding(shape, int.from_bytes(code, "little"))
    if shape:
        _encodings[code] = encoding
    return encoding


def _is_wbinvl1(chunk: bytes) -> bool:
    first = int.from_bytes(chunk[:4], "little")
    return len(chunk) >= _SIZES[1] and first >> 26 == _MUBUF and (first >> _OPCODE_AT & 0x7F) in _WBINVL1


def _buffer_inv(chunk: bytes) -> bytes:
    first = int.from_bytes(chunk[:4], "little") & ~(0x7F << _OPCODE_AT) | _BUFFER_INV << _OPCODE_AT
    return first.to_bytes(4, "little") + chunk[4:]


def _shape(chunk: bytes) -> Shape | None:
    if len(chunk) < _SIZES[0]:
        return None
    scaled = chunk[2:4] == _SCALED
    shape = shapes.learned_shape(chunk)
    if shape and (not scaled or shape.size == _LONGEST):
        return shape
    try:
        if chunk[3] >> 2 == _MTBUF:
            return shapes.learn(ins.MTBUF.from_bytes(chunk[: ins.MTBUF._size()]))
        return shapes.learn(decode_inst(chunk if scaled else chunk[: _SIZES[1]], "cdna"))
    except (ValueError, AssertionError, KeyError, RuntimeError):
        return None


_UNSAID = frozenset(  # the name or another operand has it
    ("op", "encoding", "seg", "literal", "soffset_en", "imm", "vsrc0", "s0", "s1", "sd")
)
_NO_ADDRESS = 0x7F  # saddr of GLOBAL and SCRATCH
_LITERAL = "LIT"


def operand(record: Any, name: str) -> Any:
    """An operand by its name in the tables, as tinygrad's Reg (its ``offset`` is the 9-bit encoding), or as a number.

    In the SDWA and DPP forms src0 holds a marker, and vsrc0 the operand. In SDWA's, S0 and S1 say that an operand is
    scalar: its eight bits are then an SGPR or a constant (ISA, microcode formats, VOP_SDWA).
    """
    value = getattr(record, "vsrc0" if name == "src0" and hasattr(type(record), "vsrc0") else name)
    if name.startswith("scale_src"):  # a number in tinygrad's tables
        return Reg(int(value), 1)
    if getattr(record, {"src0": "s0", "vsrc1": "s1"}.get(name, ""), 0):
        return Reg(value.offset - FIRST_VECTOR, value.sz)
    return value


@dataclass(frozen=True, slots=True)
class _Part:
    """A field that the text of a shape's instructions may show. ``texts`` are its texts so far, by its bits."""

    name: str
    low: int
    mask: int
    is_operand: bool
    texts: dict[int, str] = field(default_factory=dict)


def _text(shape: Shape, record: Any) -> str:
    """The text of an instruction of this shape."""
    operands: list[str] = []
    modifiers: list[str] = []
    raw = record._raw
    for part in _parts(shape):
        bits = raw >> part.low & part.mask
        text = part.texts.get(bits)
        if text is None:
            text = _operand(record, part.name) if part.is_operand else _modifier(record, part.name)
            if text != _LITERAL:
                part.texts[bits] = text
        if part.is_operand:
            operands.append(hex(record.literal) if text == _LITERAL else text)
        elif text:
            modifiers.append(text)
    literal = getattr(record, "literal", None)
    if literal is not None and hex(literal) not in operands:
        operands.append(hex(literal))
    return " ".join((_name(shape), ", ".join(operands), *modifiers)).strip()


@cache
def _name(shape: Shape) -> str:
    return str(shape.sample.op.name).lower()


@cache
def _parts(shape: Shape) -> tuple[_Part, ...]:
    """The fields that instructions of a shape show, in order."""
    record = shape.sample
    fields = dict(type(record)._fields)
    parts = []
    for name, bit_field in fields.items():
        if name in _UNSAID or (name == "soffset" and not getattr(record, "soffset_en", True)):
            continue
        if name in record.operands:
            held = fields["vsrc0"] if name == "src0" and "vsrc0" in fields else bit_field  # as operand() has it
            parts.append(_Part(name, held.lo, held.mask, is_operand=True))
        elif name == "sdst" and getattr(record, "sd", 0):  # a comparison in SDWA form; else vcc
            parts.insert(0, _Part(name, bit_field.lo, bit_field.mask, is_operand=True))
        elif isinstance(getattr(record, name), int):
            parts.append(_Part(name, bit_field.lo, bit_field.mask, is_operand=False))
    return tuple(parts)


def _operand(record: Any, name: str) -> str:
    """The text of an operand; _LITERAL stands for the record's literal."""
    value = operand(record, name)
    if name == "sdst" and name not in record.operands:
        return repr(Reg(value.offset, 2))
    if name == "saddr" and value.offset == _NO_ADDRESS:
        return "off"
    if name == "simm16" and record.op.name == "S_WAITCNT":  # vmcnt [15:14],[3:0], lgkmcnt [11:8]
        counts = int(value)
        return f"vmcnt({counts & 15 | counts >> 14 << 4}) lgkmcnt({counts >> 8 & 15})"
    return repr(value)


def _modifier(record: Any, name: str) -> str:
    """The text of a modifier; empty for its default."""
    value = getattr(record, name)
    default = dict(type(record)._fields)[name].default or 0
    return f"{name}:{int(value)}" if value != default else ""
