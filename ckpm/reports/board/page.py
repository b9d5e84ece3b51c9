"""The page of a first run on a GPU, from the files of its parcel."""

from __future__ import annotations

import dataclasses
import fnmatch
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ckpm.base.display import markdown as shown
from ckpm.base.errors import RecordError
from ckpm.base.records import Source, as_text
from ckpm.base.results import CaseResult, Results
from ckpm.reports.board.published import BoardTimes, beside_model
from ckpm.reports.board.table import Claim, read_claims
from ckpm.reports.release.run import OVERDUE
from ckpm.reports.verdicts import Gate
from ckpm.timing.score import OWN, Score

RUN, PAGE = "run.json", "first-gpu-run.md"
_ENDINGS = {0: "passed", 1: "something is missing", 7: "the GPU failed", 8: "a check failed", 9: "inconclusive"}
_ENDINGS |= {10: "could not write", OVERDUE: "ended at its time limit"}
_SHOWN = 40  # rows of a list
_NEITHER = "not run"


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardStep:
    """A step and its end. ``code`` is None if it did not finish. ``files`` are its outputs in the parcel, by role."""

    name: str
    question: str
    command: str
    code: int | None = None
    files: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def ending(self) -> str:
        return _NEITHER if self.code is None else _ENDINGS.get(self.code, f"exit code {self.code}")


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardRun:
    """A run. ``stand_in`` is True if a folder stood for the GPU (CKPM_SYSTEM): no result is of hardware then.

    ``beside`` are the emulator's results of cases that failed, by the case's name.
    """

    arch: str
    host: str
    date: str
    commit: str
    tier: str
    stand_in: bool
    steps: tuple[BoardStep, ...]
    beside: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def as_text(self) -> str:
        """The content of run.json."""
        return as_text(dataclasses.asdict(self)).decode()

    @classmethod
    def read(cls, folder: Path) -> BoardRun:
        """Read the run of a parcel's folder, whose files must be there."""
        source = Source(location=folder / RUN, what="a run", remedy="Take the file again.", error=RecordError)
        document = source.read()
        run: BoardRun = document.record(cls)
        for name in (*(file for step in run.steps for file in step.files.values()), *run.beside.values()):
            if not (folder / name).resolve().is_relative_to(folder.resolve()) or not (folder / name).is_file():
                raise document.fail(f"there is no file {name!r}")
        return run


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardFindings:
    """A run with the records of its files, by step."""

    run: BoardRun
    context: Mapping[str, str]
    suites: Mapping[str, Results]
    gates: Mapping[str, Gate]
    beside: Mapping[str, CaseResult]
    times: BoardTimes | None = None
    score: Score | None = None


def read_findings(folder: Path) -> BoardFindings:
    """Read all records of a parcel's folder."""
    run = BoardRun.read(folder)
    by_role: dict[str, dict[str, Path]] = {"results": {}, "gate": {}, "report": {}}
    for step in run.steps:
        for role, name in step.files.items():
            by_role.setdefault(role, {})[step.name] = folder / name
    reports = by_role["report"]
    context: Mapping[str, str] = {}
    if board := reports.get("board"):
        context = Source(location=board, what="a board", remedy="Take it again.", error=RecordError).read().texts()
    return BoardFindings(
        run=run,
        context=context,
        suites={name: Results.read(file) for name, file in by_role["results"].items()},
        gates={name: Gate.read(file) for name, file in by_role["gate"].items()},
        beside={name: Results.read(folder / file).cases[0] for name, file in run.beside.items()},
        times=BoardTimes.read(reports["published"]) if "published" in reports else None,
        score=Score.read(reports["model"]) if "model" in reports else None,
    )


def page(findings: BoardFindings) -> str:
    """The page, the claims first."""
    run = findings.run
    lines = [f"# First run on {run.arch}", ""]
    if run.stand_in:
        lines += ["**A stand-in took the place of the GPU. Nothing below was measured on hardware.**", ""]
    lines += [f"Board {run.host}, {run.date}, commit {shown(run.commit)}, tier {run.tier}.", ""]
    sections = (
        ("What only hardware decides", ("claim", "answer"), _answers(findings)),
        ("Steps", ("step", "question", "end"), ((s.name, s.question, s.ending) for s in run.steps)),
        ("Board", ("fact", "value"), findings.context.items()),
        ("Cases", ("step", "cases"), ((name, _counts(results)) for name, results in findings.suites.items())),
        ("Wrong, and faults", ("case", "on the GPU", "on the emulator"), _wrong(findings)),
        ("Times", ("step", "problem", "metric and change", "verdict"), _times(findings)),
        ("Published problems", ("kernel", "problem", "us", "TFLOP/s", "modelled", "clock"), _published(findings)),
        ("Error of the timing model (WMAPE)", ("kernel", "rows", "error"), _errors(findings)),
    )
    for title, columns, rows in sections:
        listed = list(rows)
        if listed:
            lines += [f"## {title}", "", f"| {' | '.join(columns)} |", f"|{' --- |' * len(columns)}"]
            lines += [f"| {' | '.join(shown(cell) or ' ' for cell in row)} |" for row in listed[:_SHOWN]]
            lines += [f"\nand {len(listed) - _SHOWN} more", ""] if len(listed) > _SHOWN else [""]
    return "\n".join(lines)


def _answers(findings: BoardFindings) -> Iterator[tuple[str, str]]:
    for claim in read_claims().values():
        yield claim.claim, answer(claim, findings)


def answer(claim: Claim, findings: BoardFindings) -> str:
    """``as expected``, ``otherwise`` or ``open``, with the figures."""
    step = next((step for step in findings.run.steps if step.name == claim.step), None)
    if step is None or step.code not in (0, 8, 9):
        return f"open: {claim.step}: {step.ending if step else _NEITHER}"
    if claim.largest_error:
        groups = beside_model(findings.times, findings.score)[1] if findings.times and findings.score else {}
        if OWN not in groups:
            return "open: no time beside the model"
        text = f"WMAPE {groups[OWN].error:.1%} of {groups[OWN].rows} rows"
        return f"as expected: {text}" if groups[OWN].error <= claim.largest_error else f"otherwise: {text}"
    if claim.verdict:
        gate = findings.gates.get(claim.step)
        if gate is None or gate.verdict in ("inconclusive", "not comparable"):
            return f"open: {gate.summary() if gate else step.ending}"
        return f"{'as expected' if gate.verdict == claim.verdict else 'otherwise'}: {gate.summary()}"
    results = findings.suites.get(claim.step)
    chosen = [case for case in results.cases if fnmatch.fnmatchcase(case.name, claim.cases)] if results else []
    ran = [case for case in chosen if case.outcome != "skipped"]
    if not ran:
        return "open: no case ran"
    bad = sum(case.outcome in claim.against for case in ran)
    return f"otherwise: {bad} of {len(ran)} cases" if bad else f"as expected: {len(ran)} cases"


def _counts(results: Results) -> str:
    counts = Counter(case.status for case in results.cases)
    return ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))


def failing_cases(findings: BoardFindings) -> Iterator[tuple[str, CaseResult]]:
    """Each failing case, with its step."""
    for step, results in findings.suites.items():
        for case in results.failing:
            yield step, case


def _wrong(findings: BoardFindings) -> Iterator[tuple[str, str, str]]:
    for step, case in failing_cases(findings):
        other = findings.beside.get(case.name)
        yield f"{step}: {case.name}", case.message, f"{other.status}: {other.message}" if other else _NEITHER


def _times(findings: BoardFindings) -> Iterator[tuple[str, str, str, str]]:
    for step, gate in findings.gates.items():
        for row in gate.rows:
            yield step, row.subject, row.change, f"{row.verdict}; {row.note}" if row.note else row.verdict


def _published(findings: BoardFindings) -> Iterator[tuple[str, ...]]:
    if findings.times is None:
        return
    rows = beside_model(findings.times, findings.score)[0] if findings.score else ()
    modelled = {(row.kernel, row.label): f"{row.modelled:.1f}" for row in rows}
    for time in findings.times.rows:
        figures = (f"{time.microseconds:.1f}", f"{time.tflops:.1f}", modelled.get((time.kernel, time.label), ""))
        yield time.kernel, time.label, *figures, time.clock


def _errors(findings: BoardFindings) -> Iterator[tuple[str, str, str]]:
    if findings.times and findings.score:
        for name, group in beside_model(findings.times, findings.score)[1].items():
            yield "all" if name == OWN else name, str(group.rows), f"{group.error:.1%}"


def compare_boards(first: BoardFindings, second: BoardFindings) -> str:
    """The differences of two runs: outcomes of cases, and times of the same problems."""
    lines = [f"# {first.run.arch} {first.run.host} against {second.run.arch} {second.run.host}", ""]
    others = {case.name: case.status for results in second.suites.values() for case in results.cases}
    for results in first.suites.values():
        for case in results.cases:
            if others.get(case.name, case.status) != case.status:
                lines.append(f"- {shown(case.name)}: {case.status} / {others[case.name]}")
    times = {(step, row.subject, row.metric): row.candidate for step, gate in second.gates.items() for row in gate.rows}
    times |= (
        {("published", row.kernel, row.label): row.microseconds for row in second.times.rows} if second.times else {}
    )
    rows = [(step, row.subject, row.metric, row.candidate) for step, gate in first.gates.items() for row in gate.rows]
    rows += [
        ("published", row.kernel, row.label, row.microseconds) for row in (first.times.rows if first.times else ())
    ]
    for step, subject, metric, time in rows:
        other = times.get((step, subject, metric))
        if time and other:
            lines.append(
                f"- {step}: {shown(subject)}, {shown(metric)}: {time:.1f} / {other:.1f}, ratio {time / other:.3f}"
            )
    return "\n".join(lines if len(lines) > 2 else [*lines, "No difference, and no time that both have."])
