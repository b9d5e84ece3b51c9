"""The schedule in the machine code of a V3 kernel: loops over tiles, phases, operations in flight.

A loop over tiles holds a barrier for each tile of a pass. An iteration is a way around the loop. The shortest way
leaves out what is done if a score has run ahead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ckpm_emulator import code_object, image
from ckpm_emulator.inspection.waits import counters_of, waited_for
from ckpm_emulator.lowering.decode import Instruction, decode
from ckpm_emulator.lowering.flow import successors

Way = tuple[int, ...]  # indices of instructions, in the order in which they run


@dataclass(frozen=True, slots=True)
class Loop:
    """``body`` holds the indices of its instructions, ``ways`` each way around from the first instruction."""

    body: frozenset[int]
    ways: tuple[Way, ...]


class KernelCode:
    """The instructions of one kernel, and the successors of each."""

    def __init__(self, instructions: Sequence[Instruction]) -> None:
        self.instructions = tuple(instructions)
        self.following = successors(self.instructions)

    def tile_loops(self) -> list[Loop]:
        """The loops with matrix instructions, in the order of the code."""
        ends: dict[int, list[int]] = {}
        for at, following in enumerate(self.following):
            for successor in following:
                if successor <= at:
                    ends.setdefault(successor, []).append(at)
        loops = [self._loop(head, backward) for head, backward in sorted(ends.items())]
        return [loop for loop in loops if any(is_mfma(self.instructions[at]) for at in loop.body)]

    def _loop(self, head: int, ends: Sequence[int]) -> Loop:
        """The ways around from the head. None if a jump only goes back in the code."""
        before: dict[int, list[int]] = {}
        for at, following in enumerate(self.following):
            for successor in following:
                before.setdefault(successor, []).append(at)
        inside, open_ = {head}, list(ends)  # instructions that reach an end without passing the head
        while open_:
            at = open_.pop()
            if at not in inside:
                inside.add(at)
                open_ += before.get(at, [])
        ways = tuple(self._ways(head, inside))
        return Loop(frozenset(at for way in ways for at in way), ways)

    def _ways(self, head: int, inside: set[int]) -> Iterator[Way]:
        open_: list[Way] = [(head,)]
        while open_:
            way = open_.pop()
            for successor in self.following[way[-1]]:
                if successor == head:
                    yield way
                elif successor in inside:
                    open_.append((*way, successor))

    def phases(self, way: Way) -> list[Way]:
        """The instructions between two barriers on a way around, for each barrier."""
        barriers = [position for position, at in enumerate(way) if self.instructions[at].name == "s_barrier"]
        turned = way[barriers[0] + 1 :] + way[: barriers[0] + 1] if barriers else way
        phases: list[Way] = []
        start = 0
        for position, at in enumerate(turned):
            if self.instructions[at].name == "s_barrier":
                phases.append(turned[start:position])
                start = position + 1
        return phases

    def counts(self, way: Way) -> Counter[str]:
        """The count of instructions by name, without the suffix of the encoding."""
        return Counter(plain(self.instructions[at]) for at in way)

    def in_flight(self) -> dict[int, set[Way]]:
        """The operations of vector memory that may be in flight before each instruction, oldest first."""
        before: dict[int, set[Way]] = {0: {()}}
        open_: list[tuple[int, Way]] = [(0, ())]
        while open_:
            at, queue = open_.pop()
            instruction = self.instructions[at]
            if instruction.name == "s_waitcnt":
                most = waited_for(instruction)[0]
                queue = queue[len(queue) - min(most, len(queue)) :]
            elif "vm" in counters_of(instruction):
                queue = (*queue, at)
            for successor in self.following[at]:
                if queue not in before.setdefault(successor, set()):
                    before[successor].add(queue)
                    open_.append((successor, queue))
        return before


def read(library: Path, symbols: Sequence[str], arch: str) -> dict[str, KernelCode]:
    """The code of some of a library's kernels, by symbol."""
    codes: dict[str, KernelCode] = {}
    for target, elf in code_object.code_objects(library):
        code = image.read(elf)
        for kernel in code.kernels if target.partition(":")[0] == arch else ():
            if kernel.name in symbols:
                start = kernel.function.address - code.text_address
                codes[kernel.name] = KernelCode(list(decode(code.text[start : start + kernel.function.size], start)))
    return codes


def plain(instruction: Instruction) -> str:
    return instruction.name.removesuffix("_e32").removesuffix("_e64")


def is_mfma(instruction: Instruction) -> bool:
    return instruction.name.startswith("v_mfma")


def is_branch(instruction: Instruction) -> bool:
    return instruction.name.startswith(("s_branch", "s_cbranch"))


def is_dword_load(instruction: Instruction) -> bool:
    """True for the load of a page id or a block scale."""
    return instruction.name == "global_load_dword"


def is_load_to_lds(instruction: Instruction) -> bool:
    wide = instruction.name.startswith("buffer_load") and bool(instruction.record.lds)
    return wide or instruction.name.startswith("global_load_lds")
