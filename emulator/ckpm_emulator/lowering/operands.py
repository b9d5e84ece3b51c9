"""Operands of machine instructions as sources and destinations of micro-ops."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any

from ckpm_emulator.lowering import microop as m


class UnknownError(Exception):
    """Something in an instruction that the emulator lacks; becomes a trap micro-op with this text."""


@dataclass(slots=True)
class Source:
    """A source, as struct Source of core/isa/microop.h."""

    code: int = m.NONE
    mods: int = 0
    select: int = m.DWORD


@dataclass(slots=True)
class MicroOp:
    """One micro-op while it is made; field names as in core/isa/microop.h."""

    name: str
    src: list[Source] = field(default_factory=lambda: [Source(), Source(), Source()])
    dst: int = m.NONE
    scalar_dst: int = m.NONE
    literal: int = 0
    literal_high: int = 0
    offset: int = 0
    flags: int = 0
    control: int = 0
    dwords: list[int] = field(default_factory=lambda: [0, 0, 0, 0])
    extra: list[int] = field(default_factory=lambda: [0, 0])
    destination_select: int = m.DWORD
    destination_unused: int = 0
    omod: int = 0
    target: int | None = None  # branches: pc of the destination, resolved to an offset at the end


@dataclass(frozen=True, slots=True)
class Form:
    """An operand in tinygrad's table: bits, and the number format without NUM_, such as F32 or PK2_F16."""

    bits: int
    number: str

    @property
    def dwords(self) -> int:
        return max(1, self.bits // 32)

    @property
    def is_float(self) -> bool:
        return self.number in ("F16", "F32", "F64", "BF16")

    @property
    def is_half(self) -> bool:
        return self.bits == 16 and self.number in ("F16", "U16", "I16", "B16", "BF16")


def forms(record: Any) -> dict[str, Form]:
    """The forms of an instruction's operands by field name."""
    return {
        name: Form(bits, entry[0].name.removeprefix("FMT_").removeprefix("NUM_"))
        for (name, entry), bits in zip(record.operands.items(), record.op_bits.values(), strict=True)
    }


_INLINE_FLOATS = {240: 0.5, 241: -0.5, 242: 1.0, 243: -1.0, 244: 2.0, 245: -2.0, 246: 4.0, 247: -4.0}
_INVERSE_TWO_PI = 248
_BEYOND_REGISTERS = {251: "vccz", 252: "execz", 254: "src_lds_direct", 249: "SDWA", 250: "DPP"}
# src_shared_base, src_shared_limit, src_private_base, src_private_limit: apertures as in core/isa/wave.h.
_APERTURES = {235: 0x0001_0000 << 32, 236: 0x0001_0000_FFFF_FFFF, 237: 0x0002_0000 << 32, 238: 0x0002_0000_FFFF_FFFF}


def source(op: MicroOp, register: int, form: Form, literal: int | None = None) -> Source:
    """A source operand by its 9-bit encoding. Constants that the core does not hold go to the micro-op's literal."""
    if register >= 256:
        return Source(register - 256)
    if register in _BEYOND_REGISTERS:
        raise UnknownError(f"operand {_BEYOND_REGISTERS[register]}")
    if register == 255:
        if literal is None:
            raise UnknownError("a literal where there is none")
        return _literal(op, literal, form)
    if register in _APERTURES:
        return _wide(op, _APERTURES[register]) if form.bits == 64 else _narrow(op, _APERTURES[register] & 0xFFFFFFFF)
    if register >= 128 and register != 253:
        return _constant(op, register, form)
    return Source(m.SCALAR + register)


def _constant(op: MicroOp, register: int, form: Form) -> Source:
    is_number = register in _INLINE_FLOATS or register == _INVERSE_TWO_PI
    if form.bits == 64 and not form.number.startswith("PK"):
        if register == _INVERSE_TWO_PI:
            return _wide(op, int.from_bytes(struct.pack("<d", 0.15915494309189532), "little"))
        demand(is_number or register <= 208, f"operand with encoding {register}")
        return Source(m.SCALAR + register)  # the core sign-extends integers, and makes f64 of floats
    if is_number and (form.is_half or form.number in ("PK2_F16", "PK_F16")):
        if form.number in ("F16", "PK2_F16", "PK_F16"):
            if register == _INVERSE_TWO_PI:
                return _narrow(op, 0x3118)
            return _narrow(op, int.from_bytes(struct.pack("<e", _INLINE_FLOATS[register]), "little"))
        raise UnknownError(f"an inline float constant as operand of format {form.number}")
    return Source(m.SCALAR + register)


def _literal(op: MicroOp, literal: int, form: Form) -> Source:
    if form.bits == 64 and not form.number.startswith("PK"):
        if form.number == "F64":
            return _wide(op, literal << 32)
        signed = form.number == "I64" and literal >> 31
        return _wide(op, literal | (0xFFFFFFFF00000000 if signed else 0))
    return _narrow(op, literal)


def _narrow(op: MicroOp, value: int) -> Source:
    _claim_literal(op, value)
    return Source(m.LITERAL)


def _wide(op: MicroOp, value: int) -> Source:
    _claim_literal(op, value)
    return Source(m.WIDE)


def _claim_literal(op: MicroOp, value: int) -> None:
    """Put a constant into a micro-op, which has room for one. No instruction in practice has two different ones."""
    held = op.literal_high << 32 | op.literal
    if held not in (0, value):
        raise UnknownError("two constants that differ and need a literal each")
    op.literal, op.literal_high = value & 0xFFFFFFFF, value >> 32


def scalar_destination(register: int) -> int:
    """The code of a scalar destination."""
    if register >= 128:
        raise UnknownError(f"scalar destination with encoding {register}")
    return m.SCALAR + register


def demand(condition: bool, what: str) -> None:
    """Raise UnknownError unless ``condition`` holds."""
    if not condition:
        raise UnknownError(what)
