"""Which defects can be planted in a kernel's machine code: for each instruction the changes that a mistake could make.

A change is one instruction with other bits, of the same size and still an instruction. Left out is what can't change
anything by its own bits: code that nothing reaches, equal operands in another order, the smaller in place of the larger
of a number and itself. What the code around it makes equal is for equivalents.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from emulator.lowering.decode import Instruction, decode
from emulator.lowering.flow import successors
from emulator.lowering.lower import lower_one

_NO_WAIT = {"vmcnt": 63, "lgkmcnt": 15}
_S_NOP = 0xBF800000
_FIRST_VECTOR = 256
_CONSTANTS = range(129, 192)  # inline 1 to 63: one more is inline as well
_SWAPS = {
    "compare": (("_LT_", "_LE_"), ("_GT_", "_GE_"), ("_EQ_", "_LG_"), ("_EQ_", "_NE_")),
    "opcode": (
        *(("V_MAX_", "V_MIN_"), ("V_MAX3_", "V_MIN3_"), ("V_ADD_", "V_SUB_"), ("V_EXP_", "V_LOG_")),
        *(("V_PK_MUL_", "V_PK_ADD_"), ("V_MUL_F32", "V_ADD_F32"), ("LSHLREV", "LSHRREV"), ("_AND_B", "_OR_B")),
        *(("S_ADD_I", "S_SUB_I"), ("S_ADD_U", "S_SUB_U"), ("S_MIN_", "S_MAX_"), ("V_ADD_LSHL_", "V_LSHL_ADD_")),
    ),
}
_SOURCES = ("src0", "src1", "src2", "vsrc1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Instruction ``at`` of a kernel's, with other bits."""

    kind: str
    at: int
    before: Instruction
    after: Instruction

    def __str__(self) -> str:
        return f"{self.before.pc:#x}  {self.before.text}  ->  {self.after.text}"


def changes(instructions: Sequence[Instruction]) -> Iterator[tuple[str, int, int]]:
    """(kind, index, changed bits) of all that may be planted, in the code's order. :func:`changed` judges the bits."""
    reached = _reached(instructions)
    for at, instruction in enumerate(instructions):
        if at in reached and instruction.record is not None:
            yield from ((kind, at, raw) for kind, raw in _of(instructions, at))


def changed(kind: str, at: int, before: Instruction, raw: int) -> Change | None:
    """A change by its bits; None if they are no other instruction of that size, or one that the emulator lacks."""
    made = list(decode(raw.to_bytes(before.size, "little"), before.pc))
    if len(made) != 1 or made[0].record is None or made[0].text == before.text or lower_one(made[0])[1]:
        return None
    return Change(kind=kind, at=at, before=before, after=made[0])


def _reached(instructions: Sequence[Instruction]) -> set[int]:
    following, left, reached = successors(instructions), [0], {0}
    while left:
        new = set(following[left.pop()]) - reached
        reached |= new
        left += new
    return reached


def _of(instructions: Sequence[Instruction], at: int) -> Iterator[tuple[str, int]]:
    """(kind, changed bits) of one instruction."""
    one = instructions[at]
    for kind, make in _KINDS.items():
        for raw in make(one):
            yield kind, raw
    if (unbounded := _unbounded(instructions, at)) is not None:
        yield "bounds", unbounded


def _field(one: Instruction, name: str) -> tuple[int, int] | None:
    """(lowest bit, mask) of a field of the encoding."""
    for own, field in type(one.record)._fields:
        if own == name:
            return field.lo, (1 << (field.hi - field.lo + 1)) - 1
    return None


def _get(one: Instruction, name: str) -> int | None:
    place = _field(one, name)
    return None if place is None else one.encoding.raw >> place[0] & place[1]


def _set(one: Instruction, **values: int) -> int:
    raw = one.encoding.raw
    for name, value in values.items():
        place = _field(one, name)
        assert place is not None
        raw = raw & ~(place[1] << place[0]) | (value & place[1]) << place[0]
    return raw


def _waits(one: Instruction) -> Iterator[int]:
    """A count that nothing is waited for; the other stays."""
    if one.name == "s_waitcnt":
        counts = int(one.record.simm16)
        vector, local = counts & 15 | counts >> 14 << 4, counts >> 8 & 15
        if vector < _NO_WAIT["vmcnt"]:
            yield _set(one, simm16=counts | 0xC00F)
        if local < _NO_WAIT["lgkmcnt"]:
            yield _set(one, simm16=counts | 0x0F00)


def _barriers(one: Instruction) -> Iterator[int]:
    if one.name == "s_barrier":
        yield _S_NOP


def _nops(one: Instruction) -> Iterator[int]:
    """One state in place of several; one alone can't be taken away without moving the code."""
    if one.name == "s_nop" and int(one.record.simm16):
        yield _S_NOP


def _renamed(kind: str) -> Callable[[Instruction], Iterator[int]]:
    """Another opcode with the same operands."""

    def make(one: Instruction) -> Iterator[int]:
        operation: Any = one.record.op
        if (kind == "compare") != ("_CMP" in operation.name):
            return
        for pair in _SWAPS[kind]:
            for old, new in (pair, pair[::-1]):
                other = type(operation).__members__.get(operation.name.replace(old, new, 1))
                if old in operation.name and other is not None and not _same_either_way(one, old):
                    yield _set(one, op=other.value)

    return make


def _same_either_way(one: Instruction, old: str) -> bool:
    """The larger and the smaller of a number and itself are one, and so are its bitwise and and or."""
    idempotent = old.startswith(("V_MAX_", "V_MIN_", "S_MAX_", "S_MIN_", "_AND_B", "_OR_B"))
    first, second = _get(one, "src0"), _get(one, "src1")
    if second is None and (second := _get(one, "vsrc1")) is not None:
        second += _FIRST_VECTOR
    if first is None:
        first, second = _get(one, "ssrc0"), _get(one, "ssrc1")
    return idempotent and first == second


def _offsets(one: Instruction) -> Iterator[int]:
    """An element of 16 bytes further or back, as an index that is off by one makes it."""
    step = {"MUBUF": 16, "GLOBAL": 16, "FLAT": 16, "SMEM": 8}.get(one.format)
    if step is not None:
        yield _set(one, offset=(_get(one, "offset") or 0) ^ step)
    elif one.format == "DS":
        for name in ("offset0", *(("offset1",) if "2" in one.name.split("_")[1] else ())):
            yield _set(one, **{name: (_get(one, name) or 0) ^ 8})


def _constants(one: Instruction) -> Iterator[int]:
    """A literal's bit, of a float its sign, exponent or first digits; an inline integer that is one more."""
    if (literal := _get(one, "literal")) is not None:
        bits = (20, 23, 24, 31) if "_f32" in one.name else (0, 1, 4, 7, 16)
        for bit in bits:
            if bit < _literal_bits(one):
                yield _set(one, literal=literal ^ 1 << bit)
    for name in ("ssrc0", "ssrc1", "src0", "src1", "src2"):
        if (value := _get(one, name)) in _CONSTANTS and not one.name.startswith(("v_readlane", "v_writelane")):
            assert value is not None
            yield _set(one, **{name: value + 1})


def _literal_bits(one: Instruction) -> int:
    """How many bits of the literal count: s_setreg takes those of a field (simm16: its size less 1 from bit 11 on)."""
    return (int(one.record.simm16) >> 11) + 1 if one.name == "s_setreg_imm32_b32" else 32


def _operands(one: Instruction) -> Iterator[int]:
    """The vector register next to a source's, or to the result's."""
    if not one.format.startswith("VOP") or one.format == "VOP3P_MFMA" or "SDWA" in one.format or "DPP" in one.format:
        return
    step = 2 if one.format == "VOP3P" or "64" in one.name else 1  # tuples begin at even ones
    for name in _SOURCES:
        value = _get(one, name)
        if value is not None and name in one.record.operands and (name == "vsrc1" or value >= _FIRST_VECTOR):
            yield _set(one, **{name: value ^ step})


def _matrices(one: Instruction) -> Iterator[int]:
    """A and B exchanged, and an A from the next registers."""
    if one.format == "VOP3P_MFMA":
        first, second = _get(one, "src0"), _get(one, "src1")
        assert first is not None
        assert second is not None
        if first != second:
            yield _set(one, src0=second, src1=first)
        yield _set(one, src0=first ^ 2)


def _selects(one: Instruction) -> Iterator[int]:
    """The value if true and the one if false exchanged."""
    if one.name != "v_cndmask_b32":
        return
    first = _get(one, "src0")
    assert first is not None
    if one.format == "VOP3":
        second = _get(one, "src1")
        assert second is not None
        if first != second:
            yield _set(one, src0=second, src1=first)
    elif one.format == "VOP2" and first >= _FIRST_VECTOR:
        second = _get(one, "vsrc1")
        assert second is not None
        if first != second + _FIRST_VECTOR:
            yield _set(one, src0=second + _FIRST_VECTOR, vsrc1=first - _FIRST_VECTOR)


def _lanes(one: Instruction) -> Iterator[int]:
    """Another lane of a spilled scalar; a shuffle's neighbour."""
    if one.name in ("v_readlane_b32", "v_writelane_b32"):
        lane = _get(one, "src1")
        if lane is not None and 128 <= lane < 192:
            yield _set(one, src1=128 + ((lane - 128) ^ 1))
    elif one.name in ("ds_bpermute_b32", "ds_swizzle_b32"):
        yield _set(one, offset0=(_get(one, "offset0") or 0) ^ 4)
    elif (control := _get(one, "dpp")) is not None:
        yield _set(one, dpp=control ^ 1)


_KINDS: dict[str, Callable[[Instruction], Iterator[int]]] = {
    "wait": _waits,
    "barrier": _barriers,
    "nop": _nops,
    "compare": _renamed("compare"),
    "opcode": _renamed("opcode"),
    "offset": _offsets,
    "constant": _constants,
    "operand": _operands,
    "matrix": _matrices,
    "select": _selects,
    "lane": _lanes,
}
KINDS = (*_KINDS, "bounds")


def _unbounded(instructions: Sequence[Instruction], at: int) -> int | None:
    """A buffer's num_records as large as can be, in place of what is put there, if a buffer access comes to use it."""
    one = instructions[at]
    target = _get(one, "sdst")
    if one.size != 4 or one.format not in ("SOP1", "SOP2") or target is None or "64" in one.name:
        return None
    for later in instructions[at + 1 : at + 200]:
        if later.format == "MUBUF" and 4 * (_get(later, "srsrc") or 0) + 2 == target:
            move = next(each for each in instructions if each.name == "s_mov_b32" and each.size == 4)
            return _set(move, sdst=target, ssrc0=193)  # -1
        if _get(later, "sdst") == target and later.format.startswith("SOP"):
            return None
    return None
