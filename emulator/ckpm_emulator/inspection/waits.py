"""Registers used before the load into them is certain to have returned: s_waitcnt is missing or waits for too little.

A compiler waits for its own loads. This check finds loads by inline assembly. The compiler takes their registers for
written at once: it may read, move or spill them too early, or give them to other values, which the load overwrites.

The check is static and follows both ways of every branch, unless exec is known to be 0. For each loaded register it
keeps the smallest number, over all paths, of operations of the same counter that were started after the load.
``s_waitcnt vmcnt(N)`` leaves at most N operations in flight. Vector memory returns in order, so that a load with N or
more after it is back. The same holds for LDS with lgkmcnt. Scalar loads and FLAT ones return in any order and need 0,
FLAT ones of both counters (CDNA3 ISA, section 10.2.2). Loads into LDS are not followed; lds_waits.py checks writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ckpm_emulator.lowering.decode import Instruction
from ckpm_emulator.lowering.flow import successors, target
from ckpm_emulator.lowering.registers import VECTOR, Accesses, accesses, name_of

Point = TypeVar("Point")
Entry = TypeVar("Entry")
Value = TypeVar("Value")

_VECTOR_FORMATS = ("MUBUF", "MTBUF", "FLAT", "GLOBAL", "SCRATCH")
_WAITS = {"vm": "vmcnt", "flat vm": "vmcnt", "lds": "lgkmcnt", "flat lds": "lgkmcnt", "scalar": "lgkmcnt"}
_IN_ORDER = ("vm", "lds")  # the others' operations return in any order, and only a wait for 0 covers them
# What a load of the first counter writes to a register comes before what a later load of the other one writes there:
# memory's part of a FLAT load, too (LLVM, SIInsertWaitcnts.cpp).
_ORDERED = {("vm", "vm"), ("lds", "lds"), ("flat vm", "vm")}
CAPACITY = 63  # operations that vmcnt can count; the hardware waits before it counts further

# (counter, register) -> operations of that counter since the load, and which instruction it is
Pending = dict[tuple[str, int], tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Hazard:
    """``text`` at ``pc`` uses a register before ``load`` at ``load_pc`` has brought it.

    ``register`` is numbered as in registers.py; ``counter`` as by counters_of; ``use`` is read or overwritten.
    """

    pc: int
    text: str
    register: int
    counter: str
    use: str
    load_pc: int
    load: str

    def __str__(self) -> str:
        name = name_of(self.register)
        return (
            f"pc 0x{self.pc:x}: {self.text}: {name} is {self.use}, and may not be loaded yet: "
            f"no s_waitcnt {_WAITS[self.counter]} that waits for {self.load} at pc 0x{self.load_pc:x}"
        )


def hazards(instructions: Sequence[Instruction]) -> list[Hazard]:
    """Every use, as source or as destination, of a register whose load may still be under way, in the code's order."""
    if not instructions:
        return []
    different = {instruction.encoding: instruction for instruction in instructions}
    by_encoding = {
        encoding: (accesses(instruction), counters_of(instruction)) for encoding, instruction in different.items()
    }
    touched, counters = zip(*(by_encoding[instruction.encoding] for instruction in instructions), strict=True)
    following = successors(instructions)
    setting_exec = _setting_exec(instructions, touched)

    def after(point: _Point, state: Pending) -> Pending:
        return _step(point.at, instructions[point.at], counters[point.at], touched[point.at].writes, state)

    def ways(point: _Point) -> Iterator[_Point]:
        return _next(instructions[point.at], point, following[point.at], sets_exec=point.at in setting_exec)

    before = before_each(_Point(0, False), after, ways, lambda load: load[0])
    hazards_at = {}
    for point, pending in before.items():
        late = _late(instructions[point.at], point, counters[point.at], touched[point.at], pending)
        if late:
            (counter, register), use = late
            instruction, load = instructions[point.at], instructions[pending[counter, register][1]]
            hazards_at[point.at] = Hazard(instruction.pc, instruction.text, register, counter, use, load.pc, load.text)
    return [hazards_at[at] for at in sorted(hazards_at)]


def _late(
    instruction: Instruction, point: _Point, counters: tuple[str, ...], touched: Accesses, pending: Pending
) -> tuple[tuple[str, int], str] | None:
    """The first register that is used although its load may be under way, with the load's counter, and how."""
    idle = point.idle and not instruction.name.startswith(_WHATEVER_EXEC)
    used = touched.reads | touched.writes
    for entry in sorted(entry for entry in pending if entry[1] in used):
        counter, register = entry
        if idle and register >= VECTOR:
            continue
        if register in touched.reads:
            return entry, "read"
        if register in touched.writes and not any((counter, later) in _ORDERED for later in counters):
            return entry, "overwritten"
    return None


@dataclass(frozen=True, slots=True)
class _Point:
    """An instruction. ``idle`` is True if exec is known to be 0 there: then no lane uses a vector register."""

    at: int
    idle: bool


_WHATEVER_EXEC = ("v_readlane", "v_readfirstlane", "v_writelane", "v_mfma", "v_smfmac")
_EXEC = frozenset((126, 127))


def _next(instruction: Instruction, point: _Point, following: tuple[int, ...], *, sets_exec: bool) -> Iterator[_Point]:
    """The next instructions, without successors that a branch on exec excludes."""
    idle = point.idle and not sets_exec
    zero = {"s_cbranch_execz": 1, "s_cbranch_execnz": 0}.get(instruction.name)  # which successor is for exec == 0
    for way, at in enumerate(following):
        if zero is None or len(following) < 2:
            yield _Point(at, idle)
        elif way == zero:
            yield _Point(at, True)
        elif not idle:
            yield _Point(at, False)


def _setting_exec(instructions: Sequence[Instruction], touched: Sequence[Accesses]) -> frozenset[int]:
    """Indices of the instructions after which exec may be non-zero although it was 0 before.

    A comparison into exec and an AND with it keep 0, as does bringing back a copy that was made of it shortly before.
    """
    jumped_to = {target(instruction) for instruction in instructions}
    copies: set[frozenset[int]] = set()  # of exec, in the run of code without branches that ends here
    setting = set()
    for at, instruction in enumerate(instructions):
        reads, writes = touched[at].reads, touched[at].writes
        if instruction.pc in jumped_to or target(instruction) is not None:
            copies = set()
        if "saveexec" in instruction.name:
            keeps = instruction.name.startswith("s_and_")
        elif writes >= _EXEC:
            keeps = "cmpx" in instruction.name or (instruction.name == "s_and_b64" and reads >= _EXEC)
            keeps = keeps or (instruction.name == "s_mov_b64" and reads in copies)
        else:
            keeps = not writes & _EXEC
        if not keeps:
            setting.add(at)
            copies = set()
        copies = {copy for copy in copies if not copy & writes}
        if instruction.name == "s_mov_b64" and reads == _EXEC:
            copies.add(writes)
    return frozenset(setting)


def waited_for(wait: Instruction) -> tuple[int, int]:
    """The vmcnt and lgkmcnt of an s_waitcnt: the operations of each that may still be in flight after it."""
    counts = int(wait.record.simm16)
    return counts & 15 | counts >> 14 << 4, counts >> 8 & 15


def counters_of(instruction: Instruction) -> tuple[str, ...]:
    """The counters that an instruction is counted by until its result is there."""
    if instruction.format == "FLAT":  # an address in LDS is known only when it runs
        return ("flat vm", "flat lds")
    if instruction.format in _VECTOR_FORMATS:
        return ("vm",) if instruction.name not in ("buffer_inv", "buffer_wbl2") else ()
    if instruction.format == "DS":
        return ("lds",)
    return ("scalar",) if instruction.format == "SMEM" else ()


def _step(
    at: int, instruction: Instruction, counters: tuple[str, ...], writes: frozenset[int], state: Pending
) -> Pending:
    if instruction.name == "s_waitcnt":
        counts = dict(zip(("vmcnt", "lgkmcnt"), waited_for(instruction), strict=True))
        most = {
            counter: counts[wait] if counter in _IN_ORDER or counts[wait] == 0 else CAPACITY + 1
            for counter, wait in _WAITS.items()
        }
        return {entry: load for entry, load in state.items() if load[0] < most[entry[0]]}
    if not counters:
        return state
    after = {}
    for (counter, register), (since, load) in state.items():
        since += counter in counters and counter in _IN_ORDER
        if since <= CAPACITY:
            after[counter, register] = (since, load)
    for register in writes:
        for counter in counters:
            after[counter, register] = (0, at)
    return after


def before_each(
    entry: Point,
    after: Callable[[Point, dict[Entry, Value]], Mapping[Entry, Value]],
    following: Callable[[Point], Iterable[Point]],
    distance: Callable[[Value], int],
) -> dict[Point, dict[Entry, Value]]:
    """The operations in flight before each instruction that can be reached from ``entry``, where nothing is in flight.

    ``after`` computes the state after an instruction. Where paths meet, the entry with the smaller ``distance`` stays:
    the number of operations since. A result for the nearest holds for the others.
    """
    before: dict[Point, dict[Entry, Value]] = {entry: {}}
    queue = [entry]
    while queue:
        point = queue.pop()
        state = after(point, before[point])
        for successor in following(point):
            if successor not in before:
                before[successor] = dict(state)
            elif not _merge(before[successor], state, distance):
                continue
            queue.append(successor)
    return before


def _merge(nearest: dict[Entry, Value], other: Mapping[Entry, Value], distance: Callable[[Value], int]) -> bool:
    """Let ``nearest`` hold the nearest of both; return True if it changed."""
    changed = False
    for entry, value in other.items():
        if entry not in nearest or distance(value) < distance(nearest[entry]):
            nearest[entry] = value
            changed = True
    return changed
