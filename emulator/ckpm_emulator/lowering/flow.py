"""Branches and loops of one function's machine code, and the hot loop's instructions by class."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ckpm_emulator.lowering.decode import Instruction

# By name or format; the first that fits. What fits none is scalar arithmetic.
CLASSES = ("mfma", "lane_moves", "valu", "scratch", "vmem", "lds", "smem", "waits", "barriers", "branches", "salu")
_ENDS = ("s_branch", "s_endpgm", "s_setpc_b64", "s_trap")


@dataclass(frozen=True, slots=True)
class Loop:
    """A range of instructions, by index: from the target of a backward branch to the branch, both included."""

    first: int
    last: int


def target(instruction: Instruction) -> int | None:
    """The pc that a direct branch jumps to."""
    if instruction.name != "s_branch" and not instruction.name.startswith("s_cbranch"):
        return None
    dwords = instruction.record.simm16
    return int(instruction.pc + 4 + 4 * (dwords - 0x10000 if dwords >= 0x8000 else dwords))


def _ends(instruction: Instruction) -> bool:
    """True if the next instruction is not reached from here. Trap 3 is for debuggers, and does nothing without them."""
    return instruction.name in _ENDS and not (instruction.name == "s_trap" and instruction.record.simm16 == 3)


def successors(instructions: Sequence[Instruction]) -> list[tuple[int, ...]]:
    """The indices of the next instructions, for each instruction; none for a branch out of the function."""
    index = {instruction.pc: at for at, instruction in enumerate(instructions)}
    followers = []
    for at, instruction in enumerate(instructions):
        following = [] if _ends(instruction) or at + 1 == len(instructions) else [at + 1]
        jump = target(instruction)
        if jump in index:
            following.append(index[jump])
        followers.append(tuple(following))
    return followers


def reachable(entry: int, following: Sequence[tuple[int, ...]]) -> set[int]:
    """An instruction of a function and all that may come after it, by index."""
    seen, queue = {entry}, [entry]
    while queue:
        new = set(following[queue.pop()]) - seen
        seen |= new
        queue += new
    return seen


def basic_blocks(instructions: Sequence[Instruction]) -> list[range]:
    """The reachable basic blocks of a function, by index: code that is entered at its first instruction and left after
    its last.
    """
    following = successors(instructions)
    inside = reachable(0, following) if instructions else set()
    leaders = {0, *(to for at in inside if target(instructions[at]) is not None for to in following[at])}
    blocks = []
    for first in sorted(leaders & inside):
        end = first + 1
        while end in inside and end not in leaders and end in following[end - 1]:
            end += 1
        blocks.append(range(first, end))
    return blocks


def hot_loop(instructions: Sequence[Instruction]) -> Loop | None:
    """The loop with the most matrix instructions, the shortest of several; None if no loop has any."""
    index = {instruction.pc: at for at, instruction in enumerate(instructions)}
    best, most = None, (0, 0)
    matrix = [0]
    for instruction in instructions:
        matrix.append(matrix[-1] + instruction.name.startswith(("v_mfma", "v_smfmac")))
    for last, instruction in enumerate(instructions):
        first = index.get(target(instruction) or -1)
        if first is None or first > last:
            continue
        weight = (matrix[last + 1] - matrix[first], first - last)
        if weight[0] and weight > most:
            best, most = Loop(first, last), weight
    return best


def loop_mix(instructions: Sequence[Instruction]) -> dict[str, int]:
    """The instructions of the hot loop by CLASSES; all 0 without a loop with MFMA."""
    loop = hot_loop(instructions)
    inside = instructions[loop.first : loop.last + 1] if loop else ()
    counts = Counter(_class(instruction) for instruction in inside)
    return {name: counts[name] for name in CLASSES}


def _class(instruction: Instruction) -> str:
    name, encoding = instruction.name, instruction.format
    if name.startswith(("v_mfma", "v_smfmac")):
        return "mfma"
    if name.startswith(("v_readlane", "v_writelane")):
        return "lane_moves"
    if name == "s_waitcnt":
        return "waits"
    if name == "s_barrier":
        return "barriers"
    if name.startswith(("s_cbranch", "s_branch")):
        return "branches"
    if encoding.startswith("V"):
        return "valu"
    if encoding in ("MUBUF", "MTBUF", "GLOBAL", "FLAT"):
        return "vmem"
    return {"SCRATCH": "scratch", "DS": "lds", "SMEM": "smem"}.get(encoding, "salu")
