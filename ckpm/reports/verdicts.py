"""The result of a gate: a row for each compared figure, a verdict over all rows, and the figures' provenance.

The static, the emulated and the GPU gate all return a :class:`Gate`. It is stored as JSON and shown by the report.
:func:`demand` turns it into an exit code.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from ckpm.base.display import join_lines, one_line
from ckpm.base.errors import CheckFailedError, GateError, InconclusiveError
from ckpm.base.outputs import write_output
from ckpm.base.records import Source, as_text

GATES = STATIC, EMULATED, SUITES, GPU = ("static", "emulated", "suites", "gpu")
# the worst first; a gate's verdict is the worst of its rows
VERDICTS = (
    "regressed", "not comparable", "missing", "inconclusive", "host-bound", "improved", "hardware shift", "unchanged",
)  # fmt: skip
PASSING = ("improved", "hardware shift", "unchanged")
DOUBTFUL = ("inconclusive", "host-bound")  # figures that decide nothing
WARM, COLD = "time", "time, cold cache"  # metrics of the GPU gate: a launch with a warm and with a cold cache
CANDIDATE = "candidate"  # a fact of a gate: the path of the judged library, from the gate's file if it is relative
BASELINES = "baselines"  # a fact of a gate: the folder of its baselines, if it is not this project's
FAMILY = "library"  # a fact of libraries of other families than batch prefill
V3_AGAINST_V2 = "V3 against V2"  # a fact of a gate whose candidate is its baseline's library with V3 turned on
_SHOWN = 10  # rows that an error message names; the rest is in the file
_REMEDY = "Run the gate again: ckpm gate --help."


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictRow:
    """One figure of one kernel or problem. ``threshold`` is the allowed change, as text."""

    gate: Annotated[str, Meta(pattern=f"^({'|'.join(GATES)})$")]
    subject: str  # a kernel's name or a problem's
    metric: str
    unit: str = ""
    baseline: float | None = None
    candidate: float | None = None
    threshold: str = ""
    verdict: Annotated[str, Meta(pattern=f"^({'|'.join(VERDICTS)})$")]
    note: str = ""

    def __str__(self) -> str:
        note = f"; {self.note}" if self.note else ""
        return join_lines(f"{self.verdict}: {self.change}: {self.subject}{note}")

    @property
    def change(self) -> str:
        """The metric with both figures and what is allowed, without the subject, whose name may be long."""
        if self.baseline is self.candidate is None:
            return self.metric
        figures = f"{_format(self.baseline)} -> {_format(self.candidate)} {self.unit}".rstrip()
        allowed = f" (allowed: {self.threshold})" if self.threshold else ""
        return f"{self.metric}: {figures}{allowed}"

    @property
    def share(self) -> float:
        """The change as a share of the baseline, infinite from or to nothing."""
        if not self.baseline or self.candidate is None:
            return math.inf
        return abs(self.candidate - self.baseline) / abs(self.baseline)


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """Microseconds of each round for one problem (or for one problem with a cold cache); equally many of each arm.

    ``queued`` is True if a time is the mean of launches that were queued one after the other.
    """

    subject: str
    baseline: tuple[float, ...]
    candidate: tuple[float, ...]
    again: tuple[float, ...]
    metric: str = WARM
    queued: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """A gate's rows in the order of the comparison. ``verdict`` is never ``missing``, but ``not comparable``.

    ``samples`` are of rows with times.
    """

    verdict: str
    provenance: Mapping[str, str]  # arch, toolchain, upstream, identities and device
    rows: tuple[VerdictRow, ...]
    samples: tuple[Samples, ...] = ()

    @classmethod
    def of(cls, rows: Iterable[VerdictRow], provenance: Mapping[str, str], samples: Iterable[Samples] = ()) -> Gate:
        """Make a gate of rows, of which there must be at least one."""
        listed = tuple(rows)
        if not listed:
            raise GateError("the gate compared nothing: no figure in the baseline, none in the candidate.")
        verdict = worst(row.verdict for row in listed)
        return cls(verdict=verdict, provenance=dict(provenance), rows=listed, samples=tuple(samples))

    @property
    def failing(self) -> tuple[VerdictRow, ...]:
        """The rows that keep the gate from passing, the worst first."""
        bad = [row for row in self.rows if row.verdict not in PASSING]
        return tuple(sorted(bad, key=lambda row: (VERDICTS.index(row.verdict), -row.share)))

    def summary(self) -> str:
        """The verdict, and the number of rows of each verdict."""
        counts = Counter(row.verdict for row in self.rows)
        return f"{self.verdict}: {', '.join(f'{counts[word]} {word}' for word in VERDICTS if counts[word])}"

    def write(self, file: Path) -> None:
        """Replace ``file`` in one step."""
        try:
            data = as_text(dataclasses.asdict(self))
        except ValueError as error:
            raise GateError(f"{file}: not written: a figure is NaN or infinite ({error}).") from error
        write_output(file, data)

    @classmethod
    def read(cls, file: Path) -> Gate:
        """Read a gate that :meth:`write` stored, and check that its verdict follows from its rows."""
        document = Source(location=file, what="a gate's result", remedy=_REMEDY, error=InconclusiveError).read()
        gate: Gate = document.record(cls)
        if not gate.rows:
            raise document.get("rows").fail("expected a list of at least one")
        if gate.verdict != (implied := worst(row.verdict for row in gate.rows)):
            raise document.get("verdict").fail(f"is {gate.verdict!r}, but its rows say {implied!r}")
        return gate


def worst(verdicts: Iterable[str]) -> str:
    """The worst verdict: the first of VERDICTS that occurs. A missing figure counts as not comparable."""
    verdict = min(verdicts, key=VERDICTS.index)
    return "not comparable" if verdict == "missing" else verdict


def demand(gate: Gate, file: Path | None = None) -> None:
    """Raise CheckFailedError if the gate regressed, InconclusiveError if it does not pass for another reason."""
    if gate.verdict in PASSING:
        return
    bad, lines = gate.failing, list[str]()
    for subject in dict.fromkeys(row.subject for row in bad[:_SHOWN]):
        rows = [row for row in bad[:_SHOWN] if row.subject == subject]
        lines += [f"  {row.verdict}: {one_line(row.change)}" for row in rows]
        notes = dict.fromkeys(row.note for row in rows if row.note)
        lines.append(f"    {join_lines('; '.join((subject, *notes)))}")
    if len(bad) > _SHOWN:
        lines.append(f"  and {len(bad) - _SHOWN} more")
    lines += [f"All of them are in {file}."] if file else []
    message = "\n".join((f"{gate.verdict}: {len(bad)} of {len(gate.rows)} figures", *lines))
    kind = CheckFailedError if gate.verdict == "regressed" else InconclusiveError
    raise kind(message, kind=gate.verdict.replace(" ", "-"))


def _format(value: float | None) -> str:
    return "none" if value is None else f"{value:.6g}" if value % 1 else str(int(value))
