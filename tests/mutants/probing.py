"""The effect of a planted instruction in the cases that did not detect it.

The device runs the planted instruction beside the built one (option ``probe``, emulator/core/checks/probe.h). It counts
the different results and follows each difference to its end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ckpm.suites.checks import Result
from ckpm_emulator.lowering.registers import VECTOR, name_of
from tests.mutants.planting import Change, sources

NOT_EXECUTED, SAME_EFFECT, EXECUTED = "not executed", "same effect", "executed"
_SHOWN = 3  # instructions of each kind, the most frequent first
_DECIDED = {
    "jump": "another branch is taken at",
    "store": "another value is stored at",
    "mode": "MODE gets another value at",
    "faulted": "only the planted instruction faults, at",
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
    """The end of a difference at one instruction, ``count`` times. ``fate`` is a word of probe.h."""

    pc: int
    text: str
    fate: str
    count: int

    def __str__(self) -> str:
        return f"{self.pc:#x} {self.text} ({self.count} times)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """The probe's counts. ``sources`` holds the range of each source that is a register, as signed dwords."""

    executions: int
    different: int
    sources: tuple[tuple[int, int] | None, ...] = ()
    fates: tuple[Fate, ...] = ()

    @classmethod
    def of(cls, reply: Mapping[str, Any]) -> Observed:
        return cls(
            executions=reply["executions"],
            different=reply["different"],
            sources=tuple(None if one is None else (one[0], one[1]) for one in reply["sources"]),
            fates=tuple(Fate(**one) for one in reply["fates"]),
        )

    def most(self, fates: Mapping[str, str]) -> list[tuple[str, Sequence[Fate]]]:
        """The most frequent instructions of some fates."""
        order = sorted(self.fates, key=lambda one: (-one.count, one.pc))
        chosen = [(words, [one for one in order if one.fate == fate][:_SHOWN]) for fate, words in fates.items()]
        return [(words, some) for words, some in chosen if some]


def options(change: Change) -> dict[str, Any]:
    """Options of the device. The effect of a missing wait shows only if loads are late."""
    return {"probe": True, **({"late_loads": True} if change.kind == "wait" else {})}


def explain(change: Change, observed: Observed, pairs: Sequence[tuple[Result, Result]]) -> tuple[str, str]:
    """Explain why no case detected a change: a column of the table, and the reason.

    ``pairs`` holds the results of the cases without and with the change.
    """
    runs = f"{observed.executions} executions of {len(pairs)} cases"
    if not observed.executions:
        return NOT_EXECUTED, "no case executes it"
    if not observed.different:
        return SAME_EFFECT, f"the same result in all {runs}{_operands(change, observed)}"
    part = f"another result in {observed.different} of {runs}: "
    if decided := observed.most(_DECIDED):
        effects = "; ".join(f"{words} {', '.join(map(str, some))}" for words, some in decided)
        return EXECUTED, f"{part}{effects}; {compare_results(pairs)}"
    ended = observed.most(_ENDED)
    return EXECUTED, part + "; ".join(f"{', '.join(map(str, some))} {words}" for words, some in ended)


def compare_results(pairs: Sequence[tuple[Result, Result]]) -> str:
    """Describe how the results of the cases differ without and with a change."""
    numbers = sum((built.lines, built.tolerance_used) != (other.lines, other.tolerance_used) for built, other in pairs)
    if numbers:
        return f"other numbers within the tolerance, in {numbers} cases"
    if counts := sum(built.counters != other.counters for built, other in pairs):
        return f"the same numbers, other counts of instructions or bytes in {counts} cases"
    return "the same numbers and counts"


def _operands(change: Change, observed: Observed) -> str:
    """The ranges of the registers that the instruction reads, if the probe lists them in the encoding's order."""
    if not change.before.format.startswith(("SOP", "VOP")) or "MFMA" in change.before.format:
        return ""
    codes = sources(change.before)
    seen = [
        f"{name_of(code)} from {held[0]} to {held[1]}"
        for code, held in zip(codes, observed.sources, strict=False)
        if held is not None and code not in _CONSTANTS
    ]
    return f", with {', '.join(seen)}" if seen else ""
