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
        return record, record.size(), repr(record)
    except (ValueError, AssertionError, KeyError, RuntimeError):
        return None, 4, f".long 0x{int.from_bytes(chunk[:4], 'little'):08x}"
