"""Buffer instructions that convert formats: reference and cases, by tables of their own.

Formats by the numbers in LLVM's SIDefines.h (namespace MTBUFFormat); conversions as graphics APIs define UNORM, SNORM,
SCALED, integer and float formats (Khronos Data Format Specification, "Quantization schemes"). A packed format's name
lists its components from the highest bit down; x is the lowest.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
from tinygrad.renderer.amd.dsl import OPERANDS, src
from tinygrad.runtime.autogen.amd.cdna import ins

from oracle import memory_cases
from oracle.cases import Case, exec_mask, fresh_state, generator, vector
from oracle.encoding import encoding
from oracle.operands import EXEC, State

DATA = {
    1: "8", 2: "16", 3: "8_8", 4: "32", 5: "16_16", 6: "10_11_11", 7: "11_11_10", 8: "10_10_10_2", 9: "2_10_10_10",
    10: "8_8_8_8", 11: "32_32", 12: "16_16_16_16", 13: "32_32_32", 14: "32_32_32_32",
}  # fmt: skip
NUMBERS = {0: "unorm", 1: "snorm", 2: "uscaled", 3: "sscaled", 4: "uint", 5: "sint", 7: "float"}
STRIDE = 64  # of a lane's element


def widths(data: int) -> list[int]:
    """Bits of the components, x first."""
    return [int(word) for word in reversed(DATA[data].split("_"))]


def possible(data: int, number: int) -> bool:
    """True if the pair is a format."""
    kind, bits = NUMBERS[number], widths(data)
    if kind == "float":
        return all(width in (16, 32) for width in bits) or DATA[data] in ("10_11_11", "11_11_10")
    return kind in ("uint", "sint") or 32 not in bits


def f32(value: float | Fraction) -> int:
    """The bits of a number, rounded to f32."""
    return int(np.float32(float(value)).view(np.uint32))


def component(bits: int, width: int, kind: str) -> int:
    """A component as a register of 32 bits holds it."""
    signed = bits - (1 << width) if bits >> (width - 1) else bits
    if kind == "float":
        if width == 32:
            return bits
        half = bits if width == 16 else bits << (15 - width)  # five bits of exponent, no sign
        return int(np.uint16(half).view(np.float16).astype(np.float32).view(np.uint32))
    return {
        "unorm": lambda: f32(Fraction(bits, (1 << width) - 1)),
        "snorm": lambda: f32(max(Fraction(-1), Fraction(signed, (1 << (width - 1)) - 1))),
        "uscaled": lambda: f32(bits),
        "sscaled": lambda: f32(signed),
        "uint": lambda: bits,
        "sint": lambda: signed & 0xFFFFFFFF,
    }[kind]()


def stored_value(bits: int, width: int, kind: str) -> int:
    """A register's value as a component; integers fit it."""
    if kind in ("uint", "sint"):
        return bits & ((1 << width) - 1)
    value = struct.unpack("<f", struct.pack("<I", bits))[0]
    if kind == "float":
        if width == 32:
            return bits
        with np.errstate(over="ignore"):
            return int(np.float32(value).astype(np.float16).view(np.uint16))
    signed = kind == "snorm"
    if math.isnan(value):
        return 0
    bounded = max(-1.0 if signed else 0.0, min(1.0, value))
    scale = (1 << (width - signed)) - 1
    return round(Fraction(bounded) * scale) & ((1 << width) - 1)


def _format(inst: Any, state: State) -> tuple[int, str, list[int]]:
    """Data format, number format, and for each result which component it is (4 x, 5 y, 6 z, 7 w; 0 zero, 1 one)."""
    if encoding(inst) == "MTBUF":
        return inst.dfmt, NUMBERS[inst.nfmt], [4, 5, 6, 7]
    word = int(state.scalar[((inst.raw >> 48) & 0x1F) * 4 + 3])
    return word >> 15 & 15, NUMBERS[word >> 12 & 7], [word >> 3 * n & 7 for n in range(4)]


def execute(inst: Any, state: State) -> None:
    """Apply one buffer_*_format_* or tbuffer_* instruction."""
    name = inst.op.name
    data, kind, select = _format(inst, state)
    bits = widths(data)
    size, count = sum(bits) // 8, len(name.split("_")[-1])
    half, high = "_D16" in name, "_HI_" in name
    resource, ((base, memory),) = ((inst.raw >> 48) & 0x1F) * 4, state.memory.items()
    row = inst.vdata.offset - 256 + (256 if inst.acc else 0)
    start = (int(state.scalar[resource]) | int(state.scalar[resource + 1]) << 32) - base
    for lane in range(64):
        if not state.exec >> lane & 1:
            continue
        at = int(state.vector[inst.vaddr.offset - 256, lane]) + inst.offset
        inside = at + size <= int(state.scalar[resource + 2])
        at += start
        if "STORE" in name:
            if inside:
                _store(state, memory, at, row, lane, bits, kind, half, high)
            continue
        whole = int.from_bytes(memory[at : at + size], "little") if inside else 0
        unit = 1 if kind in ("uint", "sint") else f32(1.0)
        values, low = [0, 0, 0, unit], 0
        for n, width in enumerate(bits):
            values[n], low = component(whole >> low & ((1 << width) - 1), width, kind), low + width
        results = [values[one_of - 4] if one_of >= 4 else (0, unit)[one_of] for one_of in select] if inside else [0] * 4
        for n in range(count):
            _put(state, row, lane, n, results[n], kind, half, high)


def _put(state: State, row: int, lane: int, n: int, value: int, kind: str, half: bool, high: bool) -> None:
    if not half:
        state.vector[row + n, lane] = value
        return
    if kind not in ("uint", "sint"):
        with np.errstate(over="ignore", invalid="ignore"):
            value = int(np.uint32(value).view(np.float32).astype(np.float16).view(np.uint16))
    shift = 16 if high or n % 2 else 0
    old = int(state.vector[row + n // 2, lane]) & ~(0xFFFF << shift)
    state.vector[row + n // 2, lane] = old | (value & 0xFFFF) << shift


def _store(
    state: State, memory: bytearray, at: int, row: int, lane: int, bits: list[int], kind: str, half: bool, high: bool
) -> None:
    whole, low = 0, 0
    for n, width in enumerate(bits):
        if half:
            value = int(state.vector[row + n // 2, lane]) >> (16 if high or n % 2 else 0) & 0xFFFF
            if kind not in ("uint", "sint"):
                value = int(np.uint16(value).view(np.float16).astype(np.float32).view(np.uint32))
        else:
            value = int(state.vector[row + n, lane])
        whole |= stored_value(value, width, kind) << low
        low += width
    memory[at : at + low // 8] = whole.to_bytes(low // 8, "little")


def cases(cls: str, op: Any, arch: str, base: int) -> Iterator[Case]:
    """Every format that the instruction can move, in range and out of range, with EXEC full and partial."""
    rng = generator(f"{cls} {op.name}")
    n = 0
    count, store = len(op.name.split("_")[-1]), "STORE" in op.name
    for data in DATA:
        for number, kind in NUMBERS.items():
            if not possible(data, number) or (store and not _storable(data, kind, count, "_D16" in op.name)):
                continue
            state = fresh_state(rng, arch)
            state.set_pair(EXEC, exec_mask(rng, n))
            state.memory = {base: bytearray(_bytes(data, kind, rng))}
            state.vector[20] = rng.permutation(64) * STRIDE
            state.vector[20, ::7] += 1 << 20  # out of range
            _operands(state, kind, widths(data), "_D16" in op.name, rng)
            fields = _fields(cls, op, state, data, number, n, base)
            yield Case(f"{DATA[data]} {kind}", [getattr(ins, cls)(op, **fields)], state)
            n += 1


def _fields(cls: str, op: Any, state: State, data: int, number: int, n: int, base: int) -> dict[str, Any]:
    identity = 4 | 5 << 3 | 6 << 6 | 7 << 9
    select = identity if n % 2 or "STORE" in op.name else 6 | 0 << 3 | 4 << 6 | 1 << 9
    word = select | number << 12 | data << 15 if cls == "MUBUF" else 0
    state.scalar[40:44] = [base & 0xFFFFFFFF, base >> 32, memory_cases.MEMORY_BYTES, word]
    fields: dict[str, Any] = {"srsrc": src[40:43], "soffset": src[128], "offset": 16 * (n % 3), "offen": 1}
    fields |= {"vaddr": vector(20, 32), "vdata": vector(30, OPERANDS[op]["vdata"][1])}
    return fields | ({"dfmt": data, "nfmt": number} if cls == "MTBUF" else {})


def _storable(data: int, kind: str, count: int, half: bool) -> bool:
    """Formats that a store is defined for: registers hold all components as floats or integers."""
    if half and kind in ("uint", "sint") and 32 in widths(data):
        return False
    small = kind == "float" and DATA[data] in ("10_11_11", "11_11_10")
    return len(widths(data)) <= count and kind in ("unorm", "snorm", "uint", "sint", "float") and not small


def _bytes(data: int, kind: str, rng: np.random.Generator) -> bytes:
    """Memory; floats of 16 and 32 bits are numbers, since what becomes of a NaN's bits is not documented."""
    width = widths(data)[0]
    if kind == "float" and width in (16, 32):
        numbers = rng.uniform(-300, 300, memory_cases.MEMORY_BYTES * 8 // width)
        return bytes(numbers.astype(np.float16 if width == 16 else np.float32).tobytes())
    if kind == "float":  # no exponent of all ones
        dwords = rng.integers(0, 1 << 32, memory_cases.MEMORY_BYTES // 4, dtype=np.uint32)
        tops = (1 << 10 | 1 << 21 | 1 << 31) if DATA[data] == "10_11_11" else (1 << 9 | 1 << 20 | 1 << 31)
        return bytes((dwords & np.uint32(~tops & 0xFFFFFFFF)).tobytes())
    return rng.bytes(memory_cases.MEMORY_BYTES)


def _operands(state: State, kind: str, bits: list[int], half: bool, rng: np.random.Generator) -> None:
    """Values for a store: numbers around [-1, 1], or integers that the components hold."""
    for n in range(4):
        if kind in ("uint", "sint"):
            width = min(bits[n] if n < len(bits) else 8, 16 if half else 32)
            low, high = (-(1 << (width - 1)), 1 << (width - 1)) if kind == "sint" else (0, 1 << width)
            values = rng.integers(low, high, 64)
            if half:
                shift = 16 * (n % 2)
                kept = state.vector[30 + n // 2] & np.uint32(~(0xFFFF << shift) & 0xFFFFFFFF)
                state.vector[30 + n // 2] = kept | ((values & 0xFFFF) << shift).astype(np.uint32)
            else:
                state.vector[30 + n] = (values & 0xFFFFFFFF).astype(np.uint32)
        elif not half:
            state.vector[30 + n] = rng.uniform(-1.5, 1.5, 64).astype(np.float32).view(np.uint32)
        else:
            state.vector[30 + n] = rng.uniform(-1.5, 1.5, 128).astype(np.float16).view(np.uint32)
