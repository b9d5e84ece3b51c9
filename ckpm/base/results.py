"""Results of checks as plain data, written by a run and turned into tables by reports/.

It is outside of reports/ because kernels/ writes it, and kernels/ may not import reports/.
"""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import RecordError
from .outputs import write_output
from .records import Source, Value, as_text

OUTCOMES = ("passed", "failed", "error", "skipped")
KNOWN_DEFECT = "known defect"  # the status of a case that passes because of an entry of the ledger
LIBRARY_SHA256 = "library sha256"  # a fact of results: the sha256 of the library's bytes
SOME_CASES = "cases"  # a fact of results: the glob, if not every case of the tier was run
UNSUPPORTED = "unsupported"  # a fact of results: what the kernels lack for unsupported cases
FOREIGN_LIBRARY = "not the manifest's library"  # a fact of results: the sha256 in the manifest
_FORMAT = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class NearestAllocation:
    """The allocation nearest to a fault's address; ``distance`` is 0 inside, ``overrun`` are bytes after its end."""

    id: int
    base: int
    bytes: int
    kind: str
    label: str
    freed: bool
    distance: int
    overrun: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseFault:
    """The cause of a fault. A GPU reports little more than ``kind`` and ``message``; unknown values are None or ''."""

    kind: str  # memory, srd_range, race, unknown, ..; hip for an error of the runtime
    message: str
    access: str = ""  # load, store, atomic
    instruction: str = ""  # as disassemblers write it
    pc: int | None = None  # virtual address in the code object
    address: int | None = None
    bytes: int | None = None
    workgroup: tuple[int, ...] = ()
    wave: int | None = None
    lane: int | None = None  # None also if the whole wave faulted
    detail: str = ""
    error: int | None = None  # of HIP
    nearest: NearestAllocation | None = None

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> CaseFault:
        """Convert a fault (ckpm.attention.launch.device.Fault.fields), in which ``text`` is the instruction."""
        near = fields.get("nearest")
        same = ("kind", "message", "access", "pc", "address", "bytes", "wave", "lane", "detail", "error")
        return cls(
            **{name: fields[name] for name in same if name in fields},
            instruction=fields.get("text", ""),
            workgroup=tuple(fields.get("workgroup", ())),
            nearest=NearestAllocation(**near) if near else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerUse:
    """The entry of matrix/ledger.yaml for a case. ``place`` is its file:line."""

    name: str
    location: str
    reason: str
    link: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    """The result of one check.

    ``message`` is one line: the failure, or the reason of a skip; '' if it passed. ``text`` contains further details:
    comparisons, differences, a worker's last output. ``tolerance_used`` is the largest ratio of an error to its
    tolerance, None if nothing was compared or the ratio is infinite. ``instructions``: wave-instructions of the last
    launch of a case that passed, 0 if the device counts none. ``same_batches``: the checks in which the kernel gave a
    sequence the same bits in other batches. ``reproduce`` is the command that runs the case again.
    """

    suite: str
    classname: str
    name: str
    outcome: str  # one of OUTCOMES
    arch: str = ""
    upstream: str = ""
    family: str = ""  # the library's family, '' for batch prefill
    message: str = ""
    text: str = ""
    kernel: str = ""
    ledger: LedgerUse | None = None
    fault: CaseFault | None = None
    tolerance_used: float | None = None
    instructions: int = 0
    same_batches: tuple[str, ...] = ()
    reproduce: str = ""
    seconds: float = 0.0

    @property
    def status(self) -> str:
        """The outcome, or KNOWN_DEFECT."""
        return KNOWN_DEFECT if self.outcome == "passed" and self.ledger else self.outcome

    @property
    def group(self) -> str:
        """The suite with the known ones of arch, upstream and family: a test suite of JUnit."""
        return "-".join(filter(None, (self.suite, self.arch, self.upstream, self.family)))

    def remarks(self) -> list[str]:
        """Lines on the ledger's entry, the kernel, the text, and the command to run the case; without the fault."""
        entry = self.ledger
        lines = [f"ledger: {entry.name} ({entry.location}): {entry.reason} {entry.link}".rstrip()] if entry else []
        lines += [f"kernel: {self.kernel}"] if self.kernel else []
        lines += self.text.splitlines()
        return lines + ([f"reproduce: {self.reproduce}"] if self.reproduce else [])

    def full_text(self) -> str:
        """All details as text."""
        if not (self.ledger or self.kernel or self.reproduce or self.fault):
            return self.text
        lines = self.remarks()
        if self.fault:
            at = len(lines) - bool(self.reproduce)
            lines.insert(at, "fault: " + json.dumps(_without_defaults(self.fault)))
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Results:
    """The results of a run. ``facts`` are common to all cases: the device, the library, the day.

    ``unexecuted``: kernel -> its basic blocks that no case executed and that have no reason; empty if not observed.
    """

    cases: tuple[CaseResult, ...]
    facts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    unexecuted: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)

    @property
    def failing(self) -> tuple[CaseResult, ...]:
        """The cases that failed or could not be checked."""
        return tuple(case for case in self.cases if case.outcome in ("failed", "error"))

    def counts(self) -> Mapping[str, int]:
        """The number of cases with each outcome; every outcome is listed."""
        counted = Counter(case.outcome for case in self.cases)
        return {outcome: counted[outcome] for outcome in OUTCOMES}

    def write(self, file: Path) -> None:
        """Replace ``file`` in one step, without fields that have their default."""
        facts = {"facts": dict(self.facts)} if self.facts else {}
        blocks = {"unexecuted": {name: list(some) for name, some in self.unexecuted.items()}} if self.unexecuted else {}
        document = {"format": _FORMAT, **facts, **blocks, "cases": [_without_defaults(case) for case in self.cases]}
        write_output(file, as_text(document))

    @classmethod
    def read(cls, file: Path) -> Results:
        """Read results. Raises RecordError, with the field, if the file can't be read as results."""
        remedy = "Run the check again with this version, with --output"
        document = Source(location=file, what="results", remedy=f"{remedy}.", error=RecordError).read()
        if not isinstance(document.value, dict) or document.value.get("format") != _FORMAT:
            raise document.source.fail(f"no results of format {_FORMAT}")
        facts = document.optional("facts", Value.texts, {})
        unexecuted = document.optional("unexecuted", lambda member: member.record(dict[str, list[str]]), {})
        return cls(tuple(map(_case, document.get("cases").items())), facts, unexecuted)


def _without_defaults(record: Any) -> dict[str, Any]:
    """Return a dataclass's fields that differ from their default, also in nested dataclasses."""
    fields = {}
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        if value != field.default:
            fields[field.name] = _without_defaults(value) if dataclasses.is_dataclass(value) else value
    return fields


def _case(row: Value) -> CaseResult:
    case = row.record(CaseResult)
    row.get("outcome").one_of(OUTCOMES)
    row.optional("instructions", Value.count, 0)
    return case
