"""Machine code to instructions, by tinygrad's tables (made from AMD's ISA XML)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from tinygrad.renderer.amd import decode_inst

_LONGEST = 16  # bytes


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction: tinygrad's record of it (None: unknown bits), where it is, and how it reads."""

    pc: int
    size: int
    record: Any
    text: str

    @property
    def format(self) -> str:
        """Encoding, such as VOP3 or VOP2_SDWA."""
        return type(self.record).__name__ if self.record is not None else "UNKNOWN"

    @property
    def name(self) -> str:
        """tinygrad's name in lower case without the encoding's suffix: v_add_f32."""
        if self.record is None:
            return "unknown"
        return str(self.record.op.name).lower().removesuffix("_e32").removesuffix("_e64")


def decode(code: bytes, pc: int = 0) -> Iterator[Instruction]:
    """All instructions of a run of code that starts at ``pc``. Bits that no table knows become unknown dwords."""
    at = 0
    while at < len(code):
        record, size, text = _decode_one(code[at : at + _LONGEST])
        yield Instruction(pc + at, size, record, text)
        at += size


@lru_cache(maxsize=65536)
def _decode_one(chunk: bytes) -> tuple[Any, int, str]:
    try:
        record = decode_inst(chunk, "cdna")
        return record, record.size(), _text(record)
    except (ValueError, AssertionError, KeyError, RuntimeError):
        return None, 4, f".long 0x{int.from_bytes(chunk[:4], 'little'):08x}"


_UNSAID = frozenset(("op", "encoding", "seg", "literal", "soffset_en", "imm"))  # told by the name or another operand
_NO_ADDRESS = 0x7F  # saddr of GLOBAL and SCRATCH


def _text(record: Any) -> str:
    """Like the assembler's: the operands that the opcode has, then what differs from its default as name:value."""
    operands: list[str] = []
    modifiers: list[str] = []
    for name, field in type(record)._fields:
        value = getattr(record, name)
        if name in _UNSAID or (name == "soffset" and not getattr(record, "soffset_en", True)):
            continue
        if name in record.operands:
            operands.append(_operand(record, name, value))
        elif name == "vsrc0":  # of SDWA and DPP forms, which have a marker in src0's place
            operands = [repr(value) if one in ("SDWA", "DPP") else one for one in operands]
        elif isinstance(value, int) and value != (field.default or 0):
            modifiers.append(f"{name}:{int(value)}")
    literal = getattr(record, "literal", None)
    if literal is not None and hex(literal) not in operands:
        operands.append(hex(literal))
    return " ".join((record.op.name.lower(), ", ".join(operands), *modifiers)).strip()


def _operand(record: Any, name: str, value: Any) -> str:
    if name == "saddr" and value.offset == _NO_ADDRESS:
        return "off"
    if name == "simm16" and record.op.name == "S_WAITCNT":  # vmcnt [15:14],[3:0], lgkmcnt [11:8]
        counts = int(value)
        return f"vmcnt({counts & 15 | counts >> 14 << 4}) lgkmcnt({counts >> 8 & 15})"
    text = repr(value)
    return hex(record.literal) if text == "LIT" else text
