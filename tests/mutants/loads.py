"""Which loads into LDS may be under way where LDS is read or waves meet: what registers wait for, the lints know."""

from __future__ import annotations

from collections.abc import Sequence

from emulator.inspection.dataflow import before_each
from emulator.inspection.waits import CAPACITY, counters_of, waited_for
from emulator.lowering.decode import Instruction
from emulator.lowering.flow import successors
from tests.mutants.values import CALLS


def unfinished_at_uses(code: Sequence[Instruction]) -> set[tuple[int, int]]:
    """(where LDS is used or a barrier is passed, load into LDS): pcs of pairs in which the load may be under way.

    A load is under way until an ``s_waitcnt vmcnt(N)`` behind it has fewer than N operations of vector memory between.
    """
    following = successors(code)

    def after(at: int, state: dict[int, int]) -> dict[int, int]:
        one = code[at]
        if one.name == "s_waitcnt":
            most, _ = waited_for(one)
            return {load: since for load, since in state.items() if since < most}
        if "vm" not in counters_of(one):
            return state
        counted = {load: since + 1 for load, since in state.items() if since < CAPACITY}
        return {**counted, at: 0} if is_to_lds(one) else counted

    before = before_each(0, after, lambda at: following[at], lambda since: since)
    return {(code[at].pc, code[load].pc) for at, state in before.items() if _uses_lds(code[at]) for load in state}


def is_to_lds(one: Instruction) -> bool:
    """Whether it loads from memory into LDS."""
    if one.format == "MUBUF":
        return bool(one.record.lds)
    return one.format in ("GLOBAL", "SCRATCH") and "_lds_" in one.name


def _uses_lds(one: Instruction) -> bool:
    return one.name == "s_barrier" or one.format in ("DS", "FLAT") or one.name in CALLS
