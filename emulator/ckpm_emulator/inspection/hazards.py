"""Wait states that are missing between two instructions, on any path through a kernel's code.

The hardware of gfx9 doesn't look at some dependencies: the compiler has to put s_nop or other instructions in between.
Each instruction is one wait state, ``s_nop N`` is N + 1. From every instruction with a rule, all
paths of branches are followed for as many wait states as a rule can need. A scalar register that a scalar instruction
writes on the path counts no more: its readers don't read the value of the first instruction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ckpm_emulator.inspection.hazard_effects import VMEM, Effects, effects
from ckpm_emulator.inspection.hazard_rules import CLAUSE, Relation, Rule, rules
from ckpm_emulator.lowering.decode import Encoding, Instruction
from ckpm_emulator.lowering.flow import successors


@dataclass(frozen=True, slots=True)
class MissingStates:
    """``pc`` and ``text`` are of the later instruction, ``first_pc`` is of the instruction it is too near to."""

    pc: int
    text: str
    rule: Rule
    first_pc: int
    missing: int

    def __str__(self) -> str:
        return f"pc 0x{self.pc:x}: {self.text}: {self.reason()}"

    def reason(self, start: int = 0) -> str:
        """The rule, the missing states, and the pc of the first instruction if the code starts at ``start``."""
        states = f"{self.missing} wait state{'s' * (self.missing > 1)}"
        return f"{self.rule.name}: {states} missing after pc 0x{start + self.first_pc:x}"


def missing_states(instructions: Sequence[Instruction], arch: str, *, xnack: bool = True) -> list[MissingStates]:
    """The instructions that come too early, in the code's order, each with the rule that needs most.

    ``xnack`` is True if the code may run with repeated memory operations: the default of code that doesn't exclude it.
    """
    if not instructions:
        return []
    pairs = _Pairs(arch)
    following = successors(instructions)
    length = [wait_states(instruction) for instruction in instructions]
    scalars = [pairs.scalars(instruction) for instruction in instructions]
    worst = dict(_clauses(instructions, pairs)) if xnack else {}
    for start, first in enumerate(instructions):
        window = pairs.window(first)
        if not window:
            continue
        for (at, overwritten), between in _ahead(start, window, following, length, scalars):
            rule = pairs.worst(first, instructions[at], overwritten)
            missing = rule.states[arch] - between if rule else 0
            if rule and missing > (worst[at].missing if at in worst else 0):
                worst[at] = MissingStates(instructions[at].pc, instructions[at].text, rule, first.pc, missing)
    return [worst[at] for at in sorted(worst)]


def _clauses(instructions: Sequence[Instruction], pairs: _Pairs) -> Iterable[tuple[int, MissingStates]]:
    """Memory operations that may not follow the ones just before them; a store begins a row of its own."""
    kind, reads, writes = "", 0, 0  # of the row that ends here
    for at, instruction in enumerate(instructions):
        kinds = {"SMEM": "scalar", **dict.fromkeys(VMEM, "vector")}
        before, kind = kind, kinds.get(instruction.format, "")
        own_reads, own_writes = pairs.accesses(instruction)
        if not kind or kind != before:
            reads, writes = own_reads, own_writes
            continue
        stores = "store" in instruction.name or "atomic" in instruction.name
        reads, writes = reads | own_reads, writes | own_writes
        if (writes & ~own_writes and stores) or writes & reads:
            yield at, MissingStates(instruction.pc, instruction.text, CLAUSE, instructions[at - 1].pc, 1)
            reads, writes = own_reads, own_writes


def wait_states(instruction: Instruction) -> int:
    """Number of wait states an instruction provides."""
    return int(instruction.record.simm16 & 0xF) + 1 if instruction.name == "s_nop" else 1


def _ahead(
    start: int, window: int, following: Sequence[tuple[int, ...]], length: Sequence[int], scalars: Sequence[int]
) -> Iterable[tuple[tuple[int, int], int]]:
    """The instructions that may come within so many wait states, with the scalars written on the path; for each
    the fewest wait states in between.
    """
    nearest = dict.fromkeys(((at, 0) for at in following[start]), 0)
    queue = list(nearest)
    while queue:
        point = queue.pop()
        at, overwritten = point
        beyond = nearest[point] + length[at]
        if beyond >= window:
            continue
        for successor in following[at]:
            next_point = (successor, overwritten | scalars[at])
            if beyond < nearest.get(next_point, window):
                nearest[next_point] = beyond
                queue.append(next_point)
    return nearest.items()


class _Pairs:
    """Rules for pairs of encodings; equal ones occur often, and the answer depends on nothing else."""

    def __init__(self, arch: str) -> None:
        self._arch, self._rules = arch, rules(arch)
        self._effects: dict[Encoding, Effects] = {}
        self._windows: dict[Encoding, int] = {}
        self._worst: dict[tuple[Encoding, Encoding, int], Rule | None] = {}

    def window(self, first: Instruction) -> int:
        """The most wait states that any rule needs after the instruction."""
        encoding = first.encoding
        if encoding not in self._windows:
            effect_names = self._effects_of(first).first
            states = (rule.states[self._arch] for word in effect_names for rule in self._rules.get(word, ()))
            self._windows[encoding] = max(states, default=0)
        return self._windows[encoding]

    def accesses(self, instruction: Instruction) -> tuple[int, int]:
        """The registers that it reads and writes."""
        own = self._effects_of(instruction)
        return own.reads, own.writes

    def scalars(self, instruction: Instruction) -> int:
        """The scalar registers that it writes, if it is a scalar instruction."""
        return self._effects_of(instruction).scalars

    def worst(self, first: Instruction, then: Instruction, overwritten: int) -> Rule | None:
        """The rule that needs most between the two, without some registers."""
        key = (first.encoding, then.encoding, overwritten)
        if key not in self._worst:
            masks, later = self._effects_of(first).first, self._effects_of(then).then
            same = first.name == then.name
            fitting = [
                rule
                for word, mask in masks.items()
                for rule in self._rules.get(word, ())
                if _applies(rule.relation, mask & ~overwritten, later.get(rule.then, 0), same_opcode=same)
            ]
            self._worst[key] = max(fitting, key=lambda rule: rule.states[self._arch], default=None)
        return self._worst[key]

    def _effects_of(self, instruction: Instruction) -> Effects:
        if instruction.encoding not in self._effects:
            self._effects[instruction.encoding] = effects(instruction, self._arch)
        return self._effects[instruction.encoding]


def _applies(relation: Relation, first: int, then: int, *, same_opcode: bool) -> bool:
    if not first & then:
        return False
    holds: Mapping[Relation, bool] = {
        Relation.OVERLAP: True,
        Relation.PARTIAL: first != then or not same_opcode,
        Relation.SAME: first == then and same_opcode,
        Relation.OTHER_OPCODE: not same_opcode,
        Relation.SAME_OPCODE: same_opcode,
    }
    return holds[relation]
