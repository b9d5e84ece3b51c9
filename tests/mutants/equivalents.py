"""Rules by which a planted change changes nothing that a kernel does: each follows from the machine code around it.

A rule looks at the built code alone, and never at what a suite saw. They take for granted that a workgroup is a row of
whole waves (values.py), that waves pass each other nothing through global memory (barriers.py), and that the table of
wait states is complete (emulator/inspection/hazard_rules.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property

import numpy as np

from emulator.inspection.hazards import missing_states
from emulator.inspection.lds_waits import unfinished_writes
from emulator.inspection.waits import hazards
from emulator.lowering.decode import Instruction
from emulator.lowering.flow import successors, target
from emulator.lowering.registers import VECTOR, accesses
from tests.mutants import barriers, multiples
from tests.mutants.arguments import Arguments
from tests.mutants.bits import ALL, UNKNOWN, Bits, bits_xor, never_equal
from tests.mutants.loads import unfinished_at_uses
from tests.mutants.planting import Change
from tests.mutants.values import CALLS, EXEC, State, Values, field, lane_of, sources

_ONLY_SCALARS = ("v_readlane", "v_readfirstlane", "s_mov_b", "s_cselect", "s_load")  # that set no scc
_SCALARS = 102  # behind them vcc, m0 and exec, which are also read without being named
_ELSEWHERE = ("s_branch", "s_cbranch", "v_cmpx", *CALLS)
_EXEC = frozenset((EXEC, EXEC + 1))
_NEAR = 60  # instructions
_ONE = 129  # the inline constant 1
_SCC_OF_RESULT = ("s_and_b32", "s_or_b32", "s_xor_b32", "s_lshl_b32", "s_lshr_b32", "s_ashr_i32", "s_bfe_u32")
_ADDS = ("v_add_u32", "v_sub_u32")


class Equivalents:
    """Of one kernel's code. ``waves``: of a workgroup; ``ids``: the scalars that hold its number at the start."""

    def __init__(
        self,
        instructions: Sequence[Instruction],
        waves: int,
        arch: str,
        ids: Sequence[int] = (),
        arguments: Arguments = Arguments(),  # noqa: B008 - frozen
    ) -> None:
        self.code, self._waves, self._arch, self._ids = instructions, waves, arch, ids
        self._arguments = arguments
        self._rules: dict[str, Callable[[Change], bool]] = {
            "a flag counts from 1": self._is_flag,
            "a register and its copy": self._are_copies,
            "a scalar that nothing reads": self._is_unread_scalar,
            "a spilled scalar that nothing reads": self._is_unread_lane,
            "the same value": self._is_same_value,
            "a bit below those of a multiple": self._is_below_a_multiple,
            "a quotient that is one too small at most": self._is_correction,
            "no rule asks for the wait states": self._needs_no_states,
            "what it waits for is there, or waited for before its use": self._is_spare_wait,
            "no two waves share LDS here": self._is_spare_barrier,
        }

    @cached_property
    def values(self) -> Values:
        return Values(self.code, self._waves, self._arch, self._ids, self._arguments)

    @cached_property
    def following(self) -> list[tuple[int, ...]]:
        return successors(self.code)

    @cached_property
    def _built_states(self) -> set[str]:
        return {str(one) for one in missing_states(self.code, self._arch)}

    def rule(self, change: Change) -> str:
        """The rule that says that the kernel does the same; '' if none does."""
        return next((name for name, holds in self._rules.items() if holds(change)), "")

    def _is_flag(self, change: Change) -> bool:
        """A number in place of 1 whose readers all do the same for 1 and more: they let such lanes go on."""
        if change.kind != "constant" or change.before.name != "v_cndmask_b32":
            return False
        flag = accesses(change.before).writes
        codes = {*sources(change.before)[:2], *sources(change.after)[:2]}
        readers = list(self._readers(change.at, flag))
        if not readers or not codes <= {128, *range(_ONE, _ONE + 64)} or 128 not in codes:
            return False
        return all(
            self.code[at].name == "v_cmpx_le_u32" and sources(self.code[at])[0] == _ONE for at in readers
        ) and bool(flag)

    def _are_copies(self, change: Change) -> bool:
        """Whether a select's two values are one: a move before it made one of the other, for the same lanes, and
        nothing came between that sets one of them or can be jumped to.
        """
        if change.kind != "select":
            return False
        values = {code for code in sources(change.before)[:2] if code >= VECTOR}
        entered = {target(one) for one in self.code}
        for index in range(change.at - 1, max(-1, change.at - _NEAR), -1):
            one, touched = self.code[index], accesses(self.code[index])
            sets_exec = bool(touched.writes & _EXEC) or "saveexec" in one.name
            if self.code[index + 1].pc in entered or one.name.startswith(_ELSEWHERE) or sets_exec:
                return False
            if one.name in ("v_mov_b32", "v_mov_b64") and touched.writes & values:
                pairs = zip(sorted(touched.writes), sorted(touched.reads), strict=False)
                return any({new, old} == values for new, old in pairs)
            if touched.writes & values:
                return False
        return False

    def _is_unread_scalar(self, change: Change) -> bool:
        """Whether the change shows in scalar registers alone, which every way overwrites before anything reads them."""
        if not change.before.name.startswith(_ONLY_SCALARS):
            return False
        written = accesses(change.before).writes | accesses(change.after).writes
        return bool(written) and max(written) < _SCALARS and not any(self._readers(change.at, written))

    def _readers(self, after: int, registers: frozenset[int]) -> Iterator[int]:
        """What reads one of the registers on some way from an instruction on, before it is written again."""
        seen = set[tuple[int, frozenset[int]]]()
        ways = [(at, registers) for at in self.following[after]]
        while ways:
            at, left = ways.pop()
            touched = accesses(self.code[at])
            if touched.reads & left or self.code[at].name in CALLS:
                yield at
            if left & touched.writes:
                left -= self._replaced(at, touched.writes)
            if left and (at, left) not in seen:
                seen.add((at, left))
                ways += [(next_one, left) for next_one in self.following[at]]

    def _replaced(self, at: int, written: frozenset[int]) -> frozenset[int]:
        """Those of which nothing is left: a vector register keeps the lanes that EXEC has not."""
        return written if self.values.writes_all_lanes(at) else frozenset(one for one in written if one < VECTOR)

    def _is_below_a_multiple(self, change: Change) -> bool:
        written = accesses(change.before).writes
        if change.kind != "constant" or len(written) != 1:
            return False
        return multiples.unseen(self.code, self.values, change, self._readers(change.at, written))

    def _is_unread_lane(self, change: Change) -> bool:
        """A scalar is kept in a wrong lane, which nothing reads; the right one isn't read either, or has it already."""
        if change.before.name != "v_writelane_b32":
            return False
        register, right, wrong = change.before.record.vdst.offset, lane_of(change.before), lane_of(change.after)
        if right is None or wrong is None or self._lane_is_read(change.at, register, wrong):
            return False
        return self._has_it(change.at, register, right) or not self._lane_is_read(change.at, register, right)

    def _lane_is_read(self, after: int, register: int, lane: int) -> bool:
        seen, ways = set[int](), list(self.following[after])
        while ways:
            at = ways.pop()
            if at in seen:
                continue
            seen.add(at)
            one = self.code[at]
            if one.name == "v_writelane_b32" and one.record.vdst.offset == register:
                ways += self.following[at] if lane_of(one) != lane else ()
                continue
            if one.name in CALLS or (register in accesses(one).reads and not self._reads_in_vain(at, lane)):
                return True
            ways += self.following[at]
        return False

    def _reads_in_vain(self, at: int, lane: int) -> bool:
        """Whether it reads another lane, or one into a scalar that nothing reads."""
        if self.code[at].name != "v_readlane_b32" or lane_of(self.code[at]) is None:
            return False
        scalar = accesses(self.code[at]).writes
        return lane_of(self.code[at]) != lane or (max(scalar) < _SCALARS and not any(self._readers(at, scalar)))

    def _has_it(self, at: int, register: int, lane: int) -> bool:
        """Whether the scalar was read from that lane just before, and neither has changed."""
        scalar, entered = accesses(self.code[at]).reads - {register}, {target(one) for one in self.code}
        for index in range(at - 1, max(-1, at - _NEAR), -1):
            one, writes = self.code[index], accesses(self.code[index]).writes
            if self.code[index + 1].pc in entered or one.name.startswith(_ELSEWHERE):
                return False
            if writes == scalar:
                return one.name == "v_readlane_b32" and lane_of(one) == lane and register in accesses(one).reads
            if writes & scalar or (register in writes and (one.name != "v_writelane_b32" or lane_of(one) == lane)):
                return False
        return False

    def _is_same_value(self, change: Change) -> bool:
        """Whether the operands' known bits leave no difference."""
        if change.kind not in ("constant", "opcode", "compare", "select", "operand"):
            return False
        state = self.values.before(change.at)
        if "_cmp" in change.before.name:
            return self._same_truth(state, change)
        before, after = change.before, change.after
        if before.name == after.name and before.name.endswith(("and_b32", "or_b32")):
            return self._same_mask(state, change)
        if {before.name, after.name} == set(_ADDS):
            return self._adds_half_of_all(state, before)
        if before.name.startswith("s_") and not {before.name, after.name} <= {*_SCC_OF_RESULT}:
            return False
        return self._same_constants(change)

    def _same_truth(self, state: State, change: Change) -> bool:
        """The same in every lane, or two comparisons that differ at equality alone, of what is never equal."""
        before, after = (self.values.condition(state, one) for one in (change.before, change.after))
        if before is None or after is None:
            return False
        if bool(((before.true & after.true) | (before.false & after.false)).all()):
            return True
        operands = [self.values.read(state, code, change.before) for code in sources(change.before)]
        relations = {name.split("_")[2] for name in (change.before.name, change.after.name)}
        return relations in ({"lt", "le"}, {"gt", "ge"}) and bool(never_equal(*operands).all())

    def _same_mask(self, state: State, change: Change) -> bool:
        """A bit more or less in a mask, where the other operand has a bit that decides."""
        pair = (change.before, change.after)
        old, new = ([self.values.read(state, code, one) for code in sources(one)] for one in pair)
        different = [at for at in range(len(old)) if not _same_source(change, at)]
        if len(different) != 1 or len(old) != 2:
            return False
        (at,) = different
        if not (old[at].is_constant() and new[at].is_constant()):
            return False
        flipped, other = bits_xor(old[at], new[at]).ones, old[1 - at]
        decided = other.zeros if change.before.name.endswith("and_b32") else other.ones
        return not bool((flipped & ~decided).any())

    def _adds_half_of_all(self, state: State, one: Instruction) -> bool:
        """0 and 2^31 give the same, added or taken away."""
        second = self.values.read(state, sources(one)[1], one)
        return bool((second.zeros & ~np.uint32(1 << 31) == ALL & ~np.uint32(1 << 31)).all())

    def _same_constants(self, change: Change) -> bool:
        """Both write the same registers, and the same known numbers."""
        registers = accesses(change.before).writes
        if not registers or registers != accesses(change.after).writes:
            return False
        states = [self.values.after(change.at, one) for one in (change.before, change.after)]

        def same(register: int) -> bool:
            one, other = (state.get(register, UNKNOWN) for state in states)
            return one.is_constant() and _equal(one, other)

        return all(same(register) for register in registers)

    def _is_correction(self, change: Change) -> bool:
        """Unsigned division by a reciprocal, as LLVM expands it for AMDGPU: an estimate of the quotient, and twice a
        correction if remainder >= divisor, one of which differs at equality here.

        The estimate is x times z / 2^32, where 2^32 / d - z is below 2^16: v_rcp_iflag_f32 is good to an ulp, and a
        Newton step follows. For x below 2^16 it is one too small at most, so that the second remainder is less than d,
        unless the first left an equal one to it.
        """
        at, one = change.at, change.before
        if change.kind != "compare" or one.name != "s_cmp_ge_u32":
            return False
        remainder, divisor = sources(one)
        other = next((way for way in self._around(at, 8) if self._is_like(way, one)), None)
        if other is None:
            return False
        first, second = sorted((at, other))
        if self._writers(first, second, divisor) or self._writers(first, second, remainder) != ["s_cselect_b32"]:
            return False
        near = range(first - 1, max(-1, first - _NEAR), -1)
        made = next((back for back in near if remainder in accesses(self.code[back]).writes), None)
        if made is None or self.code[made].name != "s_sub_i32":
            return False
        names = {self.code[back].name for back in near}
        dividend = self.values.before(made).get(sources(self.code[made])[0], UNKNOWN)
        small = bool((dividend.zeros >> np.uint32(16) == np.uint32(0xFFFF)).all())
        return small and {"v_rcp_iflag_f32", "s_mul_hi_u32"} <= names

    def _around(self, at: int, count: int) -> Iterator[int]:
        """Places before one, and then behind it, the near ones first."""
        yield from range(at - 1, max(-1, at - count), -1)
        yield from range(at + 1, min(len(self.code), at + count))

    def _is_like(self, at: int, one: Instruction) -> bool:
        return self.code[at].name == one.name and sources(self.code[at]) == sources(one)

    def _writers(self, first: int, last: int, register: int) -> list[str]:
        return [one.name for one in self.code[first:last] if register in accesses(one).writes]

    def _needs_no_states(self, change: Change) -> bool:
        if change.kind != "nop":
            return False
        return {str(one) for one in missing_states(self._changed(change), self._arch)} <= self._built_states

    def _is_spare_wait(self, change: Change) -> bool:
        """Whether no register and no byte of LDS is used with anything more under way than in the built code."""
        return change.kind == "wait" and self._late(self._changed(change)) <= self._built_late

    @cached_property
    def _built_late(self) -> set[tuple[int, ...]]:
        return self._late(self.code)

    def _late(self, code: Sequence[Instruction]) -> set[tuple[int, ...]]:
        registers = {(one.pc, one.register, one.load_pc) for one in hazards(code)}
        return (
            registers | unfinished_at_uses(code) | {(one.pc, one.written_at, 0, 0) for one in unfinished_writes(code)}
        )

    def _changed(self, change: Change) -> tuple[Instruction, ...]:
        return (*self.code[: change.at], change.after, *self.code[change.at + 1 :])

    def _is_spare_barrier(self, change: Change) -> bool:
        return change.kind == "barrier" and not barriers.needed(self.code, self.values, change.at)


def _equal(one: Bits, other: Bits) -> bool:
    return other.is_constant() and bool((one.ones == other.ones).all())


def _same_source(change: Change, at: int) -> bool:
    """Whether an operand is the same register in both, or the same constant."""
    old, new = sources(change.before)[at], sources(change.after)[at]
    return old == new and (old != 255 or field(change.before, "literal") == field(change.after, "literal"))
