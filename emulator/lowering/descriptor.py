"""What a kernel's code uses and its descriptor doesn't grant, and tuples of registers where none may begin.

Granted (LLVM, "User Guide for AMDGPU Backend", compute_pgm_rsrc1 and compute_pgm_rsrc3): vector and accumulation
registers together in eights, the accumulation registers from ACCUM_OFFSET on; scalar registers in sixteens. From gfx90a
on a tuple of vector registers begins at an even one (same guide, "VGPR alignment"); a pair of scalar registers begins
at an even one, a longer tuple at a multiple of four. All code that the kernel can reach is looked at, run or not.
The count of user SGPRs has room for all that the descriptor enables, and scratch is enabled where it is used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from emulator.image import KernelInfo
from emulator.lowering.decode import Encoding, Instruction
from emulator.lowering.flow import successors
from emulator.lowering.registers import ACCUMULATION, VECTOR, Operand, name_of, operands

_SCALARS = 102  # behind them vcc and others, which every wave has
_CALLS = ("s_swappc_b64", "s_setpc_b64", "s_call_b64")  # where they lead to is not followed


@dataclass(frozen=True, slots=True)
class Granted:
    """How many registers of each kind a wave of the kernel has."""

    scalars: int
    vectors: int
    accumulations: int

    @classmethod
    def of(cls, rsrc1: int, rsrc3: int) -> Granted:
        """By the descriptor's words."""
        total, before = 8 * ((rsrc1 & 0x3F) + 1), 4 * ((rsrc3 & 0x3F) + 1)
        return cls(16 * ((rsrc1 >> 6 & 0xF) // 2 + 1), min(total, before, 256), max(0, min(total - before, 256)))


@dataclass(frozen=True, slots=True)
class Refusal:
    """The first instruction, by index, that the kernel can't run, and why."""

    at: int
    reason: str


def refusal(
    kernel: KernelInfo, instructions: Sequence[Instruction], spans: Mapping[str, tuple[int, int]]
) -> Refusal | None:
    """Why a kernel can't be launched; None if it can. ``spans`` has the instructions of each function by its name."""
    granted = Granted.of(kernel.rsrc1, kernel.rsrc3)
    if reason := _too_few_users(kernel):
        return Refusal(spans[kernel.function.name][0], reason)
    judged: dict[Encoding, str] = {}
    for at in _reachable(kernel.function.name, instructions, spans):
        encoding = instructions[at].encoding
        if encoding not in judged:
            judged[encoding] = _judged(instructions[at], granted) or _without_scratch(instructions[at], kernel)
        if judged[encoding]:
            return Refusal(at, judged[encoding])
    return None


def _reachable(name: str, instructions: Sequence[Instruction], spans: Mapping[str, tuple[int, int]]) -> list[int]:
    """Ascending: what branches lead to from the kernel's entry, and where it calls, all functions that are no entry."""
    first, last = spans[name]
    following = successors(instructions[first:last])
    seen, queue, calls = {0}, [0], False
    while queue:
        at = queue.pop()
        calls = calls or instructions[first + at].name in _CALLS
        new = set(following[at]) - seen
        seen |= new
        queue += new
    places = [first + at for at in sorted(seen)]
    if calls:
        places += [at for start, end in sorted(set(spans.values()) - {(first, last)}) for at in range(start, end)]
    return places


# Scalars that a bit of kernel_code_properties asks for, from the lowest bit on (compute_pgm_rsrc2, USER_SGPR_COUNT).
_USERS = (4, 2, 2, 2, 2, 2, 1)


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


def _judged(instruction: Instruction, granted: Granted) -> str:
    for operand in operands(instruction):
        reason = _beyond(operand, granted) or _misplaced(operand)
        if reason:
            return f"{instruction.text}: {reason}"
    return ""


def _beyond(operand: Operand, granted: Granted) -> str:
    last = operand.first + operand.words - 1
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


def _misplaced(operand: Operand) -> str:
    if operand.words == 1:
        return ""
    step = 4 if operand.first < VECTOR and operand.words > 2 else 2
    if operand.first % step == 0:
        return ""
    return f"a tuple of {operand.words} registers can't begin at {name_of(operand.first)}, but at a multiple of {step}"
