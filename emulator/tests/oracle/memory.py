"""Address rules of the memory instructions, as the functions the listings call (CalcDsAddr and its kin).

The rules are from the CDNA3 ISA: 8 "Scalar memory", 9.1.5 "Buffer addressing", 10 "Flat memory" and 11 "Data share".
LDS out of range reads 0 and drops writes. For raw buffers the byte offset is compared with NUM_RECORDS without
wrapping.
"""

from __future__ import annotations

from collections.abc import Callable

from oracle.operands import State
from oracle.pcode import Cell, Remote

NOWHERE = 1 << 80  # an address out of a buffer's range: loads give 0, stores are dropped


def _region(state: State, address: int, size: int) -> tuple[bytearray, int]:
    for base, data in state.memory.items():
        if base <= address and address + size <= base + len(data):
            return data, address - base
    raise IndexError(f"the test reads outside its memory: {address:#x}")


def global_cell(state: State) -> Callable[[int], Cell]:
    """MEM[address] of flat, global, buffer and scalar memory."""

    def make(address: int) -> Cell:
        def load(low: int, width: int) -> int:
            if address >= NOWHERE:
                return 0
            data, at = _region(state, address + low // 8, width // 8)
            return int.from_bytes(data[at : at + width // 8], "little")

        def store(low: int, width: int, bits: int) -> None:
            if address < NOWHERE:
                data, at = _region(state, address + low // 8, width // 8)
                data[at : at + width // 8] = bits.to_bytes(width // 8, "little")

        return Remote(load, store, 32)

    return make


def own_cell(own: bytearray) -> Callable[[int], Cell]:
    """MEM[address] of DS instructions, and of scratch, of which every lane has its own bytes (10.3 "Scratch")."""

    def make(address: int) -> Cell:
        def load(low: int, width: int) -> int:
            at = address + low // 8
            if at + width // 8 > len(own):
                return 0
            return int.from_bytes(own[at : at + width // 8], "little")

        def store(low: int, width: int, bits: int) -> None:
            at = address + low // 8
            if at + width // 8 <= len(own):
                own[at : at + width // 8] = bits.to_bytes(width // 8, "little")

        return Remote(load, store, 32)

    return make


def buffer_address(state: State, resource: int, voffset: int, soffset: int, offset: int, size: int) -> int:
    """Raw buffer: base + soffset + voffset + offset, if their sum is within NUM_RECORDS (rocm-systems, 10928)."""
    base = (int(state.scalar[resource]) | int(state.scalar[resource + 1]) << 32) & (1 << 48) - 1
    stride = int(state.scalar[resource + 1]) >> 16 & 0x3FFF
    if stride:
        raise NotImplementedError("structured buffers")
    records = int(state.scalar[resource + 2])
    within = soffset + (voffset + offset) % 2**32
    return NOWHERE if within + size > records else base + within


def sign_extend(bits: int, width: int) -> int:
    return bits - (1 << width) if bits >> (width - 1) & 1 else bits
