"""The page of a first run on a GPU, from the files of its parcel."""

from __future__ import annotations

import dataclasses
import fnmatch
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ckpm.base.display import markdown as shown
from ckpm.base.errors import CheckFailedError, DeviceError, InconclusiveError, OutputError, RecordError
from ckpm.base.records import Source
from ckpm.base.results import CaseResult, Results
from ckpm.reports.board.published import beside_model
from ckpm.reports.board.table import Claim, read_claims
from ckpm.reports.release.run import OVERDUE
from ckpm.reports.verdicts import Gate
from ckpm.timing.score import OWN, Score

RUN, PAGE = "run.json", "first-gpu-run.md"
JUDGED = (0, CheckFailedError.exit_code, InconclusiveError.exit_code)  # exit codes of steps with results
_ENDINGS = {**dict(zip(JUDGED, ("passed", "a check failed", "inconclusive"), strict=True)), 1: "something is missing"}
_ENDINGS |= {DeviceError.exit_code: "the GPU failed", OutputError.exit_code: "could not write"}
_ENDINGS |= {OVERDUE: "ended at its time limit", 137: "killed, for memory or by somebody"}
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
    times: Score | None = None
    score: Score | None = None


def read_findings(folder: Path) -> BoardFindings:
    """Read all records of a parcel's folder."""
    run = BoardRun.read(folder)
    by_role: dict[str, dict[str, Path]] = {"results": {}, "gate": {}, "report": {}}
    for step in run.steps:
        for role, name in step.files.items():
            by_role.setdefault(role, {})[step.name] = folder / name
    reports = by_role["report"]
    return BoardFindings(
        run=run,
        context=read_board(reports["board"]) if "board" in reports else {},
        suites={name: Results.read(file) for name, file in by_role["results"].items()},
        gates={name: Gate.read(file) for name, file in by_role["gate"].items()},
        beside={name: Results.read(folder / file).cases[0] for name, file in run.beside.items()},
        times=Score.read(reports["published"]) if "published" in reports else None,
        score=Score.read(reports["model"]) if "model" in reports else None,
    )


def read_board(file: Path) -> Mapping[str, str]:
    """The facts of the GPU that the first step wrote."""
    return Source(location=file, what="a board", remedy="Take it again.", error=RecordError).read().texts()


def page(findings: BoardFindings) -> str:
    """The page, the claims first."""
    run = findings.run
    lines = [f"# First run on {shown(run.arch)}", ""]
    if run.stand_in:
        lines += ["**A stand-in took the place of the GPU. Nothing below was measured on hardware.**", ""]
    lines += [shown(f"Board {run.host}, {run.date}, commit {run.commit}, tier {run.tier}."), ""]
    sections = (
        ("What only hardware decides", ("claim", "answer"), _answers(findings)),
        ("Steps", ("step", "question", "end"), ((s.name, s.question, s.ending) for s in run.steps)),
        ("Board", ("fact", "value"), findings.context.items()),
        ("Cases", ("step", "cases"), ((name, _counts(results)) for name, results in findings.suites.items())),
        ("Wrong, and faults", ("case", "on the GPU", "on the emulator"), _wrong(findings)),
        ("Times", ("step", "problem", "metric and change", "verdict"), _times(findings)),
        ("Published problems", ("kernel", "problem", "TFLOP/s", "modelled", "GHz"), _published_rows(findings)),
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
    if step is None or step.code not in JUDGED:
        return f"open: {claim.step}: {step.ending if step else _NEITHER}"
    if claim.largest_error:
        groups = beside_model(findings.times, findings.score)[1] if findings.times and findings.score else {}
        if OWN not in groups:
            return "open: no time beside the model"
        text = f"WMAPE {groups[OWN].error:.1%} of {groups[OWN].rows} rows"
        return f"as expected: {text}" if groups[OWN].error <= claim.largest_error else f"otherwise: {text}"
    if claim.verdict:
        rows = findings.gates[claim.step].rows if claim.step in findings.gates else ()
        chosen_rows = [row for row in rows if fnmatch.fnmatchcase(row.subject, claim.cases)]
        if not chosen_rows:
            return f"open: {step.ending}"
        gate = Gate.of(chosen_rows, {})
        if gate.verdict not in ("regressed", "unchanged", "improved"):
            return f"open: {gate.summary()}"
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


def _wrong(findings: BoardFindings) -> Iterator[tuple[str, str, str]]:
    for step, results in findings.suites.items():
        for case in results.failing:
            other = findings.beside.get(case.name)
            yield f"{step}: {case.name}", case.message, f"{other.status}: {other.message}" if other else _NEITHER
    for row in findings.times.rows if findings.times else ():
        if row.reason:
            yield f"published: {row.kernel}, {row.label}", row.reason, _NEITHER


def _times(findings: BoardFindings) -> Iterator[tuple[str, str, str, str]]:
    for step, gate in findings.gates.items():
        for row in gate.rows:
            yield step, row.subject, row.change, f"{row.verdict}; {row.note}" if row.note else row.verdict


def _published_rows(findings: BoardFindings) -> Iterator[tuple[str, ...]]:
    if findings.times is not None:
        for row in beside_model(findings.times, findings.score or findings.times)[0]:
            figures = (row.published, row.modelled, row.ghz)
            yield row.kernel, row.label, *("" if figure is None else f"{figure:.4g}" for figure in figures)


def _errors(findings: BoardFindings) -> Iterator[tuple[str, str, str]]:
    if findings.times and findings.score:
        for name, group in beside_model(findings.times, findings.score)[1].items():
            yield "all" if name == OWN else name, str(group.rows), f"{group.error:.1%}"


def compare_boards(first: BoardFindings, second: BoardFindings) -> str:
    """The differences of two runs: outcomes of cases, and times or TFLOP/s of the same problems."""
    names = [f"{side.run.arch} {side.run.host}" for side in (first, second)]
    lines = [f"# {shown(' against '.join(names))}", ""]
    ends, other_ends = ({c.name: c.status for r in side.suites.values() for c in r.cases} for side in (first, second))
    lines += [
        f"- {shown(name)}: {end} / {other_ends.get(name)}" for name, end in ends.items() if other_ends.get(name) != end
    ]
    other_figures = dict(_list_figures(second))
    for name, figure in _list_figures(first):
        if figure and (other := other_figures.get(name)):
            lines.append(f"- {shown(name)}: {figure:.5g} / {other:.5g}, ratio {figure / other:.3f}")
    return "\n".join(lines)


def _list_figures(findings: BoardFindings) -> Iterator[tuple[str, float | None]]:
    for step, gate in findings.gates.items():
        for row in gate.rows:
            yield f"{step}: {row.subject}, {row.metric}, {row.unit}", row.candidate
    for time in findings.times.rows if findings.times else ():
        yield f"published: {time.kernel}, {time.label}, TFLOP/s", time.published
