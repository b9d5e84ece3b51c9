"""How instructions read: like the assembler's, operands first, then what differs from its default as name:value."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any

from tinygrad.renderer.amd.dsl import Reg

from emulator.lowering.shapes import FIRST_VECTOR, Shape

_UNSAID = frozenset(  # the name or another operand says it
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
    """A field that the text of a shape's instructions may show, and how it reads by its bits, as far as is known."""

    name: str
    low: int
    mask: int
    is_operand: bool
    known: dict[int, str] = field(default_factory=dict)


def text_of(shape: Shape, record: Any) -> str:
    """The text of an instruction of this shape."""
    operands: list[str] = []
    modifiers: list[str] = []
    raw = record._raw
    for part in _parts(shape):
        bits = raw >> part.low & part.mask
        text = part.known.get(bits)
        if text is None:
            text = _operand(record, part.name) if part.is_operand else _modifier(record, part.name)
            if text != _LITERAL:
                part.known[bits] = text
        if part.is_operand:
            operands.append(hex(record.literal) if text == _LITERAL else text)
        elif text:
            modifiers.append(text)
    literal = getattr(record, "literal", None)
    if literal is not None and hex(literal) not in operands:
        operands.append(hex(literal))
    return " ".join((_name(shape), ", ".join(operands), *modifiers)).strip()


@functools.cache
def _name(shape: Shape) -> str:
    return str(shape.sample.op.name).lower()


@functools.cache
def _parts(shape: Shape) -> tuple[_Part, ...]:
    """Which fields an instruction shows is the same in all of a shape, and in which order."""
    record = shape.sample
    parts = []
    for name, place in type(record)._fields:
        if name in _UNSAID or (name == "soffset" and not getattr(record, "soffset_en", True)):
            continue
        if name in record.operands:
            parts.append(_Part(name, place.lo, place.mask, is_operand=True))
        elif name == "sdst" and getattr(record, "sd", 0):  # a comparison in SDWA form; else vcc
            parts.insert(0, _Part(name, place.lo, place.mask, is_operand=True))
        elif isinstance(getattr(record, name), int):
            parts.append(_Part(name, place.lo, place.mask, is_operand=False))
    return tuple(parts)


def _operand(record: Any, name: str) -> str:
    """_LITERAL stands for what the record's literal says."""
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
    """Empty if it is the default."""
    value = getattr(record, name)
    default = dict(type(record)._fields)[name].default or 0
    return f"{name}:{int(value)}" if value != default else ""
