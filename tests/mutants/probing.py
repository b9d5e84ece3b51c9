"""Why nothing sees a mutant: what the planted instruction would have changed wherever the cases run the built one.

The device runs it beside the built one (option ``probe``, emulator/core/checks/probe.h) and says how often its result
was another, and where each difference ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from emulator.lowering.registers import VECTOR, name_of
from tests.gpu.checks import Result
from tests.mutants.planting import Change
from tests.mutants.values import sources

_SHOWN = 3  # places of each kind, the most frequent first
_DECIDED = {
    "jump": "execution goes another way at",
    "store": "something else is stored at",
    "mode": "MODE becomes another at",
    "faulted": "what was built doesn't fault, and this does, at",
}
_ENDED = {
    "masked": "gives the same with it",
    "landed": "waits for it again",
    "overwritten": "overwrites it unread",
    "left": "is reached with it unread",
}
_CONSTANTS = range(128, VECTOR)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """What an instruction did with a difference, ``count`` times; ``fate`` is a word of probe.h."""

    pc: int
    text: str
    fate: str
    count: int

    def __str__(self) -> str:
        return f"{self.pc:#x} {self.text} ({self.count} times)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """``sources`` are the least and the greatest number in each source that is a register, as signed dwords."""

    executions: int
    different: int
    sources: tuple[tuple[int, int] | None, ...] = ()
    fates: tuple[Fate, ...] = ()

    @classmethod
    def of(cls, reply: Mapping[str, Any]) -> Observed:
        """From what the device answers."""
        return cls(
            executions=reply["executions"],
            different=reply["different"],
            sources=tuple(None if one is None else (one[0], one[1]) for one in reply["sources"]),
            fates=tuple(Fate(**one) for one in reply["fates"]),
        )

    def most(self, fates: Mapping[str, str]) -> list[tuple[str, Sequence[Fate]]]:
        """The most frequent places of some fates."""
        order = sorted(self.fates, key=lambda one: (-one.count, one.pc))
        chosen = [(words, [one for one in order if one.fate == fate][:_SHOWN]) for fate, words in fates.items()]
        return [(words, places) for words, places in chosen if places]


def options(change: Change) -> dict[str, Any]:
    """Of the device: what a wait leaves under way shows only where results come late."""
    return {"probe": True, **({"late_loads": True} if change.kind == "wait" else {})}


def cause(change: Change, observed: Observed, pairs: Sequence[tuple[Result, Result]]) -> str:
    """Why nothing saw a change. ``pairs`` are the results of its cases, as built and with it."""
    runs = f"{observed.executions} executions of {len(pairs)} cases"
    if not observed.executions:
        return "no case runs it"
    if not observed.different:
        return f"the same result in all {runs}{_operands(change, observed)}"
    part = f"another result in {observed.different} of {runs}: "
    if decided := observed.most(_DECIDED):
        places = "; ".join(f"{words} {', '.join(map(str, some))}" for words, some in decided)
        return f"{part}{places}; {results(pairs)}"
    ended = observed.most(_ENDED)
    return part + "; ".join(f"{', '.join(map(str, some))} {words}" for words, some in ended)


def results(pairs: Sequence[tuple[Result, Result]]) -> str:
    """How the cases' results differ, as built and with a change."""
    numbers = sum((built.lines, built.tolerance_used) != (other.lines, other.tolerance_used) for built, other in pairs)
    if numbers:
        return f"other numbers within the tolerance, in {numbers} cases"
    if counts := sum(built.counters != other.counters for built, other in pairs):
        return f"the same numbers by another way: {counts} cases count other instructions or bytes"
    return "the same numbers and counts"


def _operands(change: Change, observed: Observed) -> str:
    """What was in the registers that it reads, where their order is the encoding's."""
    if not change.before.format.startswith(("SOP", "VOP")) or "MFMA" in change.before.format:
        return ""
    codes = sources(change.before)
    seen = [
        f"{name_of(code)} from {held[0]} to {held[1]}"
        for code, held in zip(codes, observed.sources, strict=False)
        if held is not None and code not in _CONSTANTS
    ]
    return f", with {', '.join(seen)}" if seen else ""
