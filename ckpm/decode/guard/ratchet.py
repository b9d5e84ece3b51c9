"""Accepted figures and the changes since: worse, better, moved, new and gone all have to be accepted.

Each table has one JSON file, with a line for each candidate in the order of identities. So one candidate whose
figures change is one changed line.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ckpm.base.errors import RecordError
from ckpm.base.files import write_atomically
from ckpm.base.records import Source
from ckpm.base.tablefile import Text
from ckpm.decode.guard.candidates import Candidate, JudgedCandidate
from ckpm.decode.guard.figures import DIRECTIONS, Figures

_FORMAT = 1
_REMEDY = "Restore it from git, or accept anew: --accept REASON"


@dataclass(frozen=True, slots=True, kw_only=True)
class _RatchetRow(Candidate):
    """A candidate of a file with its figures, None if it doesn't compile."""

    kernel: Text
    figures: Figures | None

    def candidate(self) -> Candidate:
        return Candidate(**{field.name: getattr(self, field.name) for field in dataclasses.fields(Candidate)})


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedKernel:
    """``compiler`` and ``reason`` of the last acceptance; a candidate without figures doesn't compile."""

    compiler: str
    reason: str
    entries: Mapping[str, tuple[Candidate, Figures | None]]

    def write(self, file: Path) -> None:
        """Replace ``file``."""
        lines = ",\n".join(
            f"  {json.dumps({**candidate.members(), 'figures': figures.numbers() if figures else None})}"
            for _, (candidate, figures) in sorted(self.entries.items())
        )
        head = json.dumps({"format": _FORMAT, "compiler": self.compiler, "reason": self.reason}, indent=1)
        write_atomically(file, f'{head[:-2]},\n "candidates": [\n{lines}\n ]\n}}\n'.encode())

    @classmethod
    def read(cls, file: Path) -> AcceptedKernel:
        """Read a file of accepted figures."""
        root = Source(file, "accepted figures", _REMEDY, RecordError).read()
        if (version := root.get("format").whole()) != _FORMAT:
            raise root.fail(f"its format is {version}, and {_FORMAT} is known")
        rows = [row.record(_RatchetRow) for row in root.get("candidates").items()]
        return cls(
            compiler=root.get("compiler").text(),
            reason=root.get("reason").text(),
            entries={row.identity: (row.candidate(), row.figures) for row in rows},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RatchetChange:
    """``kind``: new, gone, worse, better or moved, which is neither; ``what`` has the figures before and after."""

    kind: str
    candidate: Candidate
    what: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.candidate.description}" + (f": {self.what}" if self.what else "")


def changes(accepted: AcceptedKernel, judged: Sequence[JudgedCandidate], guarded: Sequence[str]) -> list[RatchetChange]:
    """Changes, candidate by candidate. Accepted figures of other kernels than ``guarded`` are left alone."""
    now = {result.candidate.identity: result for result in judged}
    differences: list[RatchetChange] = []
    for identity, result in now.items():
        if identity not in accepted.entries:
            differences.append(RatchetChange(kind="new", candidate=result.candidate, what=_describe(result.figures)))
        else:
            differences += _compare(result.candidate, accepted.entries[identity][1], result.figures)
    differences += [
        RatchetChange(kind="gone", candidate=candidate, what=_describe(figures))
        for identity, (candidate, figures) in accepted.entries.items()
        if identity not in now and candidate.kernel in guarded
    ]
    return differences


def merge(
    accepted: AcceptedKernel | None, judged: Sequence[JudgedCandidate], guarded: Sequence[str], **head: str
) -> AcceptedKernel:
    """Accept these figures; entries of other kernels stay."""
    kept = {
        identity: entry
        for identity, entry in (accepted.entries if accepted else {}).items()
        if entry[0].kernel not in guarded
    }
    return AcceptedKernel(
        **head, entries={**kept, **{result.candidate.identity: (result.candidate, result.figures) for result in judged}}
    )


def _compare(candidate: Candidate, before: Figures | None, after: Figures | None) -> list[RatchetChange]:
    if before is None or after is None:
        if before is after:
            return []
        kind = "better" if before is None else "worse"
        return [RatchetChange(kind=kind, candidate=candidate, what=f"{_describe(before)}, now {_describe(after)}")]
    differences = []
    for name, old in before.numbers().items():
        if (new := after.numbers()[name]) != old:
            sign = DIRECTIONS[name] * (new - old)
            kind = "better" if sign > 0 else "worse" if sign < 0 else "moved"
            differences.append(RatchetChange(kind=kind, candidate=candidate, what=f"{name} {old}, now {new}"))
    return differences


def _describe(figures: Figures | None) -> str:
    if figures is None:
        return "doesn't compile"
    return " ".join(f"{name}={value}" for name, value in figures.numbers().items())
