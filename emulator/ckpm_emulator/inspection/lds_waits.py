"""Writes to LDS that other waves may read before they are there: no s_waitcnt lgkmcnt between them and a barrier.

A barrier doesn't wait for LDS. A write is followed on every path, to a wait that covers it or to a barrier. LDS serves
a wave in order, so that lgkmcnt(N) covers a write with N LDS operations after it. A read of LDS after the barrier is
reported, unless a wait and a further barrier lie in between: another wave may read. The check does not compare
addresses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from ckpm_emulator.inspection.waits import before_each, waited_for
from ckpm_emulator.lowering.decode import Instruction
from ckpm_emulator.lowering.flow import successors

_CAPACITY = 15  # operations that lgkmcnt can count
_CROSSBAR = ("ds_bpermute", "ds_permute", "ds_swizzle", "ds_nop")  # no LDS memory


class _Stage(Enum):
    WRITTEN = 0
    BEHIND_BARRIER = 1  # not waited for before it
    WAITED_TOO_LATE = 2  # the next barrier makes it right


_Writes = dict[tuple[int, _Stage], int]  # (instruction, how far) -> LDS operations since, at least


@dataclass(frozen=True, slots=True)
class UnfinishedWrite:
    """``pc`` and ``text`` are of the read, ``written_at`` of the write."""

    pc: int
    text: str
    written_at: int

    def __str__(self) -> str:
        return (
            f"pc 0x{self.pc:x}: {self.text}: what pc 0x{self.written_at:x} wrote to LDS may not be there yet: "
            "no s_waitcnt lgkmcnt before the barrier"
        )


def unfinished_writes(instructions: Sequence[Instruction]) -> list[UnfinishedWrite]:
    """Every read of LDS that may come before a write is finished, in the code's order, with the first such write."""
    if not instructions:
        return []
    following = successors(instructions)

    def after(at: int, state: _Writes) -> _Writes:
        return _step(at, instructions[at], state)

    before = before_each(0, after, following.__getitem__, lambda since: since)
    unfinished = []
    for at in sorted(before):
        instruction = instructions[at]
        early = [write for write, stage in before[at] if stage is not _Stage.WRITTEN]
        if early and _uses_memory(instruction) and not instruction.name.startswith("ds_write"):
            unfinished.append(UnfinishedWrite(instruction.pc, instruction.text, instructions[min(early)].pc))
    return unfinished


def _step(at: int, instruction: Instruction, state: _Writes) -> _Writes:
    if instruction.name == "s_waitcnt":
        return _after_wait(state, waited_for(instruction)[1])
    if instruction.name == "s_barrier":
        crossed = {_Stage.WRITTEN: _Stage.BEHIND_BARRIER, _Stage.BEHIND_BARRIER: _Stage.BEHIND_BARRIER}
        return {(write, crossed[stage]): since for (write, stage), since in state.items() if stage in crossed}
    if instruction.format != "DS":
        return state
    after = {key: since + 1 for key, since in state.items()}
    if any(since > _CAPACITY for since in after.values()):
        after = _after_wait(after, _CAPACITY + 1)
    if _uses_memory(instruction) and "_read" not in instruction.name:
        after[at, _Stage.WRITTEN] = 0
    return after


def _after_wait(state: _Writes, most: int) -> _Writes:
    """The writes in flight after a wait for all but so many operations."""
    after: _Writes = {}
    for (write, stage), since in state.items():
        if since < most:
            after[write, stage] = since
        elif stage is not _Stage.WRITTEN:
            after[write, _Stage.WAITED_TOO_LATE] = 0
    return after


def _uses_memory(instruction: Instruction) -> bool:
    return instruction.format == "DS" and not instruction.name.startswith(_CROSSBAR)
