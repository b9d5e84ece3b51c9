"""Registers that a kernel's code uses without its descriptor granting them, and misaligned tuples of registers.

Granted (LLVM, "User Guide for AMDGPU Backend", compute_pgm_rsrc1 and compute_pgm_rsrc3): vector and accumulation
registers together in eights, the accumulation registers from ACCUM_OFFSET on; scalar registers in sixteens. Code
without accumulation registers has all of them as vector registers: AITER's forward kernels, which run on boards, use
v160 to v255 with an ACCUM_OFFSET of 160. From gfx90a
on a tuple of vector registers begins at an even number (same guide, "VGPR alignment"). A pair of scalar registers
begins at an even number, a longer tuple at a multiple of four. All code that the kernel can reach is checked, run or
not. The count of user SGPRs has room for all that the descriptor enables, and scratch is enabled where it is used.

The descriptor enters the kernel at the start of its function. Its sizes are those of the metadata, from which runtimes
take them. It grants at least the registers that the metadata count. LLVM grants more to have fewer waves at a time.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ckpm_emulator.image import KernelInfo
from ckpm_emulator.lowering.decode import Encoding, Instruction
from ckpm_emulator.lowering.flow import reachable, successors
from ckpm_emulator.lowering.registers import ACCUMULATION, VECTOR, Operand, name_of, operands

_SCALARS = 102  # after them vcc and others, which every wave has
_LANES, _WAVES_OF_32 = 64, 1 << 10  # kernel_code_properties: ENABLE_WAVEFRONT_SIZE32
_CALLS = ("s_swappc_b64", "s_setpc_b64")  # the second one also for a call at a function's end
_DISTANCE = ("s_add_u32", "s_addc_u32")


def _vectors(rsrc1: int) -> int:
    """Vector and accumulation registers together."""
    return 8 * ((rsrc1 & 0x3F) + 1)


@dataclass(frozen=True, slots=True)
class Granted:
    """The number of registers of each kind that a wave of the kernel has."""

    scalars: int
    vectors: int
    accumulations: int

    @classmethod
    def of(cls, rsrc1: int, rsrc3: int, *, accumulates: bool = True) -> Granted:
        """Read the numbers from the descriptor. ``accumulates``: the code uses accumulation registers."""
        total = _vectors(rsrc1)
        before = 4 * ((rsrc3 & 0x3F) + 1) if accumulates else total
        return cls(16 * ((rsrc1 >> 6 & 0xF) // 2 + 1), min(total, before, 256), max(0, min(total - before, 256)))


@dataclass(frozen=True, slots=True)
class Refusal:
    """The first instruction, by index, that the kernel can't run, and why."""

    at: int
    reason: str


def refusal(
    kernel: KernelInfo, instructions: Sequence[Instruction], spans: Mapping[str, tuple[int, int]]
) -> Refusal | None:
    """The reason why a kernel can't be launched; None if it can. ``spans`` are functions' instructions by name."""
    start = spans[kernel.function.name][0]
    if reason := _other_entry(kernel) or _too_few_users(kernel):
        return Refusal(start, reason)
    reached = _reachable(kernel.function.name, instructions, spans)
    different = {instructions[at].encoding: instructions[at] for at in reached}.values()
    granted = Granted.of(kernel.rsrc1, kernel.rsrc3, accumulates=any(map(accumulates, different)))
    judged: dict[Encoding, str] = {}
    for at in reached:
        encoding = instructions[at].encoding
        if encoding not in judged:
            judged[encoding] = _refuse(instructions[at], granted) or _without_scratch(instructions[at], kernel)
        if judged[encoding]:
            return Refusal(at, judged[encoding])
    reason = _other_than_metadata(kernel)
    return Refusal(start, reason) if reason else None


def _reachable(name: str, instructions: Sequence[Instruction], spans: Mapping[str, tuple[int, int]]) -> list[int]:
    """The reachable instructions, ascending: by branches from the kernel's entry, and by addresses that code takes.

    A call that the compiler makes takes an address by s_getpc_b64 and a distance. A call by an address in memory is not
    followed, nor an address that is taken by code without a call.
    """
    functions = sorted(set(spans.values()))
    reached: set[int] = set()
    queue = [spans[name][0]]
    while queue:
        entry = queue.pop()
        if entry in reached:
            continue
        first, last = functions[bisect_right(functions, (entry, len(instructions))) - 1]
        new = {first + at for at in reachable(entry - first, successors(instructions[first:last]))} - reached
        reached |= new
        if not any(instructions[at].name in _CALLS for at in new):
            continue
        taken = (_taken(instructions, at) for at in new if instructions[at].name == "s_getpc_b64")
        queue += [target for target in taken if target is not None]
    return sorted(reached)


def _taken(instructions: Sequence[Instruction], at: int) -> int | None:
    """The instruction whose address an s_getpc_b64 and its successors make; None without an instruction there."""
    pc = _taken_pc(instructions, at)
    target = None if pc is None else bisect_left(instructions, pc, key=lambda instruction: instruction.pc)
    return target if target is not None and target < len(instructions) and instructions[target].pc == pc else None


def taken_pcs(instructions: Sequence[Instruction]) -> list[int]:
    """All addresses that the code of a function makes with s_getpc_b64 and its successors."""
    taken = (
        _taken_pc(instructions, at) for at, instruction in enumerate(instructions) if instruction.name == "s_getpc_b64"
    )
    return [pc for pc in taken if pc is not None]


def _taken_pc(instructions: Sequence[Instruction], at: int) -> int | None:
    literals = [
        _literal(instruction, name) for instruction, name in zip(instructions[at + 1 : at + 3], _DISTANCE, strict=False)
    ]
    low, high = literals if len(literals) == 2 else (None, None)
    if low is None or high is None:
        return None
    here = instructions[at]
    return (here.pc + here.size + low + (high << 32)) % (1 << 64)


def _literal(instruction: Instruction, name: str) -> int | None:
    """The constant that an instruction of this name adds; None for other instructions and operands."""
    if instruction.name != name:
        return None
    literal = getattr(instruction.record, "literal", None)
    if literal is None:
        inline = instruction.record.ssrc1.offset - 128  # 128 to 192: 0 to 64; after them -1 to -16
        return inline if 0 <= inline <= 64 else 64 - inline & 0xFFFFFFFF if inline <= 80 else None
    return int(literal)


# Scalars that a bit of kernel_code_properties asks for, from the lowest bit on (compute_pgm_rsrc2, USER_SGPR_COUNT).
_USERS = (4, 2, 2, 2, 2, 2, 1)


def _other_entry(kernel: KernelInfo) -> str:
    away = kernel.entry_address - kernel.function.address
    return f"the kernel's descriptor enters it {away} bytes from its start" if away else ""


def _other_than_metadata(kernel: KernelInfo) -> str:
    """The first of the metadata's numbers that the descriptor contradicts; '' if there is none."""
    stated = kernel.stated
    lds = stated.get(".group_segment_fixed_size", kernel.lds_bytes)
    kernarg = stated.get(".kernarg_segment_size", kernel.descriptor_kernarg_bytes)
    vectors, scalars = _vectors(kernel.rsrc1), Granted.of(kernel.rsrc1, kernel.rsrc3).scalars
    if lds != kernel.lds_bytes:
        return f"the metadata have {lds} bytes of LDS, the kernel's descriptor {kernel.lds_bytes}"
    if kernel.descriptor_kernarg_bytes not in (0, kernarg):
        return f"the metadata have {kernarg} bytes of arguments, the descriptor {kernel.descriptor_kernarg_bytes}"
    if (end := max((offset + size for offset, size in kernel.arguments), default=0)) > kernel.kernarg_bytes:
        return f"the arguments take {end} bytes, of which the kernel's segment has {kernel.kernarg_bytes}"
    if stated.get(".vgpr_count", 0) > vectors:
        return f"the metadata count {stated['.vgpr_count']} vector registers, the kernel's descriptor grants {vectors}"
    if stated.get(".sgpr_count", 0) > scalars:
        return f"the metadata count {stated['.sgpr_count']} scalar registers, the kernel's descriptor grants {scalars}"
    if stated.get(".wavefront_size", _LANES) != _LANES or kernel.properties & _WAVES_OF_32:
        lanes = 32 if kernel.properties & _WAVES_OF_32 else stated[".wavefront_size"]
        return f"waves of {lanes} lanes, where gfx9 has {_LANES}"
    return ""


def _too_few_users(kernel: KernelInfo) -> str:
    count = kernel.rsrc2 >> 1 & 0x1F
    needed = sum(scalars for bit, scalars in enumerate(_USERS) if kernel.properties >> bit & 1) + (
        kernel.preload & 0x7F
    )
    return f"{count} user SGPRs, where the descriptor enables {needed}" if count < needed else ""


def _without_scratch(instruction: Instruction, kernel: KernelInfo) -> str:
    if instruction.format != "SCRATCH" or kernel.rsrc2 & 1:
        return ""
    return f"{instruction.text}: the kernel's descriptor enables no scratch"


def accumulates(instruction: Instruction) -> bool:
    """True for an instruction that names an accumulation register."""
    return any(operand.first >= ACCUMULATION for operand in operands(instruction))


def _refuse(instruction: Instruction, granted: Granted) -> str:
    for operand in operands(instruction):
        reason = _beyond(operand, granted) or _misalignment(operand)
        if reason:
            return f"{instruction.text}: {reason}"
    return ""


def _beyond(operand: Operand, granted: Granted) -> str:
    last = operand.first + operand.count - 1
    if last >= ACCUMULATION:
        base, count, kind = ACCUMULATION, granted.accumulations, "accumulation registers"
    elif last >= VECTOR:
        base, count, kind = VECTOR, granted.vectors, "vector registers"
    else:
        base, count, kind = 0, granted.scalars, "scalar registers"
        last = last if last < _SCALARS else 0
    if last - base < count:
        return ""
    return f"{name_of(last)} is beyond the {count} {kind} of the kernel's descriptor"


def _misalignment(operand: Operand) -> str:
    if operand.count == 1:
        return ""
    step = 4 if operand.first < VECTOR and operand.count > 2 else 2
    if operand.first % step == 0:
        return ""
    return f"a tuple of {operand.count} registers can't begin at {name_of(operand.first)}, but at a multiple of {step}"
