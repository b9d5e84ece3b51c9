"""Defects that can be planted in a kernel's machine code.

A change replaces one instruction by another one of the same size. Changes that cannot have an
effect are never made: in unreachable code, or of the order of equal operands. A wait that the next instruction repeats
stays, too, and so do wait states between two v_writelane to constant lanes of a register.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ckpm_emulator.lowering.decode import Instruction, decode
from ckpm_emulator.lowering.flow import reachable, successors
from ckpm_emulator.lowering.lower import lower_one
from ckpm_emulator.lowering.registers import VECTOR

_NO_WAIT = {"vmcnt": 63, "lgkmcnt": 15}
_S_NOP = 0xBF800000
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
    """Instruction ``at`` of a kernel, before and after."""

    kind: str
    at: int
    before: Instruction
    after: Instruction

    def __str__(self) -> str:
        return f"{self.before.pc:#x}  {self.before.text}  ->  {self.after.text}"


def candidates(instructions: Sequence[Instruction]) -> Iterator[tuple[str, int, int]]:
    """Kind, index and new bits of all defects, in the order of the code. :func:`make_change` checks the bits."""
    following = successors(instructions)
    inside = reachable(0, following) if instructions else set()
    targets = _targets(following)
    for at, instruction in enumerate(instructions):
        if at in inside and instruction.record is not None:
            spare = _is_repeated_wait(instructions, at) or (at not in targets and _is_between_lanes(instructions, at))
            for kind, make in _KINDS.items():
                if not spare or kind not in ("wait", "nop"):
                    yield from ((kind, at, raw) for raw in make(instruction))
            if (unbounded := _unlimited_buffer(instructions, at)) is not None:
                yield "bounds", at, unbounded


def make_change(kind: str, at: int, before: Instruction, raw: int) -> Change | None:
    """Decode the new bits; None unless they are another instruction of that size which the emulator implements."""
    decoded = list(decode(raw.to_bytes(before.size, "little"), before.pc))
    if len(decoded) != 1 or decoded[0].record is None or decoded[0].text == before.text or lower_one(decoded[0])[1]:
        return None
    return Change(kind=kind, at=at, before=before, after=decoded[0])


def _field(instruction: Instruction, name: str) -> tuple[int, int] | None:
    """Lowest bit and mask of a field of the encoding."""
    for own, field in type(instruction.record)._fields:
        if own == name:
            return field.lo, (1 << (field.hi - field.lo + 1)) - 1
    return None


def _get(instruction: Instruction, name: str) -> int | None:
    field = _field(instruction, name)
    return None if field is None else instruction.encoding.raw >> field[0] & field[1]


def sources(instruction: Instruction) -> tuple[int, ...]:
    """The 9-bit encodings of the operands that a scalar or vector operation reads, in order."""
    names = ("ssrc0", "ssrc1") if instruction.format.startswith("SOP") else ("src0", "src1", "src2")
    read = [
        value
        for name in names
        if name in instruction.record.operands and (value := _get(instruction, name)) is not None
    ]
    second = _get(instruction, "vsrc1") if "vsrc1" in instruction.record.operands else None
    return (*read, *([] if second is None else [second + VECTOR]))


def _set(instruction: Instruction, **values: int) -> int:
    raw = instruction.encoding.raw
    for name, value in values.items():
        field = _field(instruction, name)
        assert field is not None
        raw = raw & ~(field[1] << field[0]) | (value & field[1]) << field[0]
    return raw


def _waits(instruction: Instruction) -> Iterator[int]:
    """Set one counter so high that nothing is waited for, and keep the other."""
    if instruction.name == "s_waitcnt":
        counts = int(instruction.record.simm16)
        vector, local, _ = _counts(instruction)
        if vector < _NO_WAIT["vmcnt"]:
            yield _set(instruction, simm16=counts | 0xC00F)
        if local < _NO_WAIT["lgkmcnt"]:
            yield _set(instruction, simm16=counts | 0x0F00)


def _counts(instruction: Instruction) -> tuple[int, int, int]:
    """The counters of an s_waitcnt: vmcnt, lgkmcnt, expcnt."""
    counts = int(instruction.record.simm16)
    return counts & 15 | counts >> 14 << 4, counts >> 8 & 15, counts >> 4 & 7


def _targets(following: Sequence[tuple[int, ...]]) -> set[int]:
    """The instructions that are reached from another one than the one before them."""
    return {to for at, some in enumerate(following) for to in some if to != at + 1}


def _is_repeated_wait(instructions: Sequence[Instruction], at: int) -> bool:
    """True for an s_waitcnt before another one that waits for at least as much."""
    pair = instructions[at : at + 2]
    if [instruction.name for instruction in pair] != ["s_waitcnt"] * 2:
        return False
    first, then = (_counts(instruction) for instruction in pair)
    return all(late <= early for early, late in zip(first, then, strict=True))


def _is_between_lanes(instructions: Sequence[Instruction], at: int) -> bool:
    """True for an s_nop between two v_writelane to constant lanes of a register, as a pair of scalars is spilled.

    The second one may read a scalar that a vector instruction wrote two wait states before: the first one and the state
    that is left. The first one has waited for EXEC and for the vector register. LLVM adds states because it counts the
    first one as a write of the pair.
    """
    if at == 0 or at + 1 >= len(instructions) or instructions[at].name != "s_nop":
        return False
    around = (instructions[at - 1], instructions[at + 1])
    lanes = all(
        instruction.name == "v_writelane_b32" and 128 <= (_get(instruction, "src1") or 0) < 192
        for instruction in around
    )
    return lanes and len({_get(instruction, "vdst") for instruction in around}) == 1


def _barriers(instruction: Instruction) -> Iterator[int]:
    if instruction.name == "s_barrier":
        yield _S_NOP


def _nops(instruction: Instruction) -> Iterator[int]:
    """Replace several wait states by one. A single state cannot be removed without moving the code."""
    if instruction.name == "s_nop" and int(instruction.record.simm16):
        yield _S_NOP


def _swap_opcode(kind: str) -> Callable[[Instruction], Iterator[int]]:
    """Return a function that makes another opcode with the same operands."""

    def make(instruction: Instruction) -> Iterator[int]:
        operation: Any = instruction.record.op
        if (kind == "compare") != ("_CMP" in operation.name):
            return
        for pair in _SWAPS[kind]:
            for old, new in (pair, pair[::-1]):
                other = type(operation).__members__.get(operation.name.replace(old, new, 1))
                if old in operation.name and other is not None and not _has_equal_operands(instruction, old):
                    yield _set(instruction, op=other.value)

    return make


def _has_equal_operands(instruction: Instruction, old: str) -> bool:
    """True for min, max, and, or of a number with itself: exchanging these has no effect.

    Operands are compared as text: a modifier makes them differ, also where it is the same for both.
    """
    idempotent = old.startswith(("V_MAX_", "V_MIN_", "S_MAX_", "S_MIN_", "_AND_B", "_OR_B"))
    first, second = instruction.text.split(", ")[-2:]
    return idempotent and first == second


def _offsets(instruction: Instruction) -> Iterator[int]:
    """Move the address by 16 bytes, in LDS and for scalar loads by 8, as an index that is off by one does."""
    step = {"MUBUF": 16, "GLOBAL": 16, "FLAT": 16, "SMEM": 8}.get(instruction.format)
    if step is not None:
        yield _set(instruction, offset=(_get(instruction, "offset") or 0) ^ step)
    elif instruction.format == "DS":
        for name in ("offset0", *(("offset1",) if "2" in instruction.name.split("_")[1] else ())):
            yield _set(instruction, **{name: (_get(instruction, name) or 0) ^ 8})


def _constants(instruction: Instruction) -> Iterator[int]:
    """Flip a bit of a literal (of a float: sign, exponent, first digits); add one to an inline integer."""
    if (literal := _get(instruction, "literal")) is not None:
        bits = (20, 23, 24, 31) if "_f32" in instruction.name else (0, 1, 4, 7, 16)
        for bit in bits:
            if bit < _literal_bits(instruction):
                yield _set(instruction, literal=literal ^ 1 << bit)
    for name in ("ssrc0", "ssrc1", "src0", "src1", "src2"):
        if (value := _get(instruction, name)) in _CONSTANTS and not instruction.name.startswith(
            ("v_readlane", "v_writelane")
        ):
            assert value is not None
            yield _set(instruction, **{name: value + 1})


def _literal_bits(instruction: Instruction) -> int:
    """Number of literal bits that are used. Of s_setreg it is the field's size, in simm16 from bit 11 on, less 1."""
    return (int(instruction.record.simm16) >> 11) + 1 if instruction.name == "s_setreg_imm32_b32" else 32


def _operands(instruction: Instruction) -> Iterator[int]:
    """Read the vector register next to a source."""
    if (
        not instruction.format.startswith("VOP")
        or instruction.format == "VOP3P_MFMA"
        or "SDWA" in instruction.format
        or "DPP" in instruction.format
    ):
        return
    step = 2 if instruction.format == "VOP3P" or "64" in instruction.name else 1  # tuples begin at even ones
    for name in _SOURCES:
        value = _get(instruction, name)
        if value is not None and name in instruction.record.operands and (name == "vsrc1" or value >= VECTOR):
            yield _set(instruction, **{name: value ^ step})


def _matrices(instruction: Instruction) -> Iterator[int]:
    """Exchange A and B; read A from the next registers."""
    if instruction.format == "VOP3P_MFMA":
        first, second = _get(instruction, "src0"), _get(instruction, "src1")
        assert first is not None
        assert second is not None
        if first != second:
            yield _set(instruction, src0=second, src1=first)
        yield _set(instruction, src0=first ^ 2)


def _selects(instruction: Instruction) -> Iterator[int]:
    """Exchange the value if true and the value if false."""
    if instruction.name != "v_cndmask_b32":
        return
    first = _get(instruction, "src0")
    assert first is not None
    if instruction.format == "VOP3":
        second = _get(instruction, "src1")
        assert second is not None
        if first != second:
            yield _set(instruction, src0=second, src1=first)
    elif instruction.format == "VOP2" and first >= VECTOR:
        second = _get(instruction, "vsrc1")
        assert second is not None
        if first != second + VECTOR:
            yield _set(instruction, src0=second + VECTOR, vsrc1=first - VECTOR)


def _lanes(instruction: Instruction) -> Iterator[int]:
    """Use the next lane of a spilled scalar or of a shuffle."""
    if instruction.name in ("v_readlane_b32", "v_writelane_b32"):
        lane = _get(instruction, "src1")
        if lane is not None and 128 <= lane < 192:
            yield _set(instruction, src1=128 + ((lane - 128) ^ 1))
    elif instruction.name in ("ds_bpermute_b32", "ds_swizzle_b32"):
        yield _set(instruction, offset0=(_get(instruction, "offset0") or 0) ^ 4)
    elif (control := _get(instruction, "dpp")) is not None:
        yield _set(instruction, dpp=control ^ 1)


_KINDS: dict[str, Callable[[Instruction], Iterator[int]]] = {
    "wait": _waits,
    "barrier": _barriers,
    "nop": _nops,
    "compare": _swap_opcode("compare"),
    "opcode": _swap_opcode("opcode"),
    "offset": _offsets,
    "constant": _constants,
    "operand": _operands,
    "matrix": _matrices,
    "select": _selects,
    "lane": _lanes,
}
KINDS = (*_KINDS, "bounds")


def _unlimited_buffer(instructions: Sequence[Instruction], at: int) -> int | None:
    """Set a buffer's num_records to its maximum, if a buffer access uses it."""
    instruction = instructions[at]
    target = _get(instruction, "sdst")
    if (
        instruction.size != 4
        or instruction.format not in ("SOP1", "SOP2")
        or target is None
        or "64" in instruction.name
    ):
        return None
    for later in instructions[at + 1 : at + 200]:
        if later.format == "MUBUF" and 4 * (_get(later, "srsrc") or 0) + 2 == target:
            move = next(each for each in instructions if each.name == "s_mov_b32" and each.size == 4)
            return _set(move, sdst=target, ssrc0=193)  # -1
        if _get(later, "sdst") == target and later.format.startswith("SOP"):
            return None
    return None
