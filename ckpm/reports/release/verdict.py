"""The verdict over the stages' outputs: refused, or passed with a number of waived defects."""

from __future__ import annotations

import dataclasses
import datetime
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from ckpm.base import tablefile
from ckpm.base.errors import CheckFailedError, RecordError, did_you_mean
from ckpm.base.records import as_text
from ckpm.base.results import FOREIGN_LIBRARY, KNOWN_DEFECT, LIBRARY_SHA256, Results
from ckpm.kernels.library.manifest import Manifest
from ckpm.matrix.defects import defects
from ckpm.matrix.problems.ledger import Ledger
from ckpm.reports.release.record import Facts, StageRecord
from ckpm.reports.release.stages import PROJECT, StageStep
from ckpm.reports.verdicts import Gate, demand

Locate = Callable[[StageStep, str], Path]  # path of a step's output, by its role


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """Defects and cases of all outputs.

    ``defects``: name -> number of cases, or kernels left out. ``cases``: step -> number of cases of each status.
    """

    defects: Mapping[str, int]
    cases: Mapping[str, Mapping[str, int]]


def known_defects(ledger: Ledger) -> set[str]:
    """Every name that a waiver can have."""
    return {entry.name for entry in ledger.entries} | {defect.name for defect in defects()}


def examine(steps: Sequence[StageStep], records: Mapping[str, StageRecord], locate: Locate) -> Findings:
    """Read the outputs of every stage, and check that each passed on the release's own library."""
    counts: Counter[str] = Counter()
    cases: dict[str, Mapping[str, int]] = {}
    for step in steps:
        for role in step.outputs:
            file = locate(step, role)
            match role:
                case "manifest":
                    manifest = Manifest.read(file)
                    _demand_own_library(step, manifest, records)
                    counts.update({name: len(left["kernels"]) for name, left in manifest.left_out.items()})
                case "results":
                    results = Results.read(file)
                    _demand_passed(file, results, _library_of(step, steps, records))
                    used = [case.ledger.name for case in results.cases if case.status == KNOWN_DEFECT and case.ledger]
                    counts.update(used)
                    cases[step.name] = dict(sorted(Counter(case.status for case in results.cases).items()))
                case "gate":
                    gate = Gate.read(file)
                    demand(gate, file)
                    cases[step.name] = dict(sorted(Counter(row.verdict for row in gate.rows).items()))
    return Findings(defects=dict(sorted(counts.items())), cases=cases)


def _demand_own_library(step: StageStep, manifest: Manifest, records: Mapping[str, StageRecord]) -> None:
    digest = records[step.name].outputs.get(step.outputs.get("library", ""), "")
    if digest != manifest.library_sha256:
        raise RecordError(
            f"{step.name}: the library has sha256 {digest}, its manifest lists another. {manifest.remedy}", kind="stage"
        )


def _library_of(step: StageStep, steps: Sequence[StageStep], records: Mapping[str, StageRecord]) -> str:
    """The sha256 of the library that a step ran on; '' for a stage without library."""
    if step.arch == PROJECT:
        return ""
    libraries = {other.outputs["library"] for other in steps if other.arch == step.arch and "library" in other.outputs}
    return next((digest for file, digest in records[step.name].inputs.items() if file in libraries), "")


def _demand_passed(file: Path, results: Results, library: str) -> None:
    if not results.cases:
        raise CheckFailedError(f"{file}: no case at all, which is not a pass. Run the stage again.", kind="cases")
    if results.failing:
        raise CheckFailedError(f"{file}: {len(results.failing)} of {len(results.cases)} cases failed.", kind="cases")
    if all(case.outcome == "skipped" for case in results.cases):
        raise CheckFailedError(
            f"{file}: every one of its {len(results.cases)} cases was skipped, which is not a pass.", kind="cases"
        )
    ran_on = results.facts.get(LIBRARY_SHA256, "")
    if FOREIGN_LIBRARY in results.facts or ran_on != library:
        raise RecordError(
            f"{file}: results of the library {ran_on or 'unknown'}, not of {library or 'none'}.", kind="stage"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Basis:
    """Facts of a release. ``toolchain`` is the commands' option; its identity is in ``facts``."""

    facts: Facts
    epoch: int
    archs: tuple[str, ...]
    toolchain: str
    images: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseVerdict(Basis):
    """The verdict over a release, which passed."""

    findings: Findings
    waived: tuple[Waiver, ...]
    unneeded: tuple[str, ...]

    @property
    def text(self) -> str:
        """``passed``, or ``passed with 3 waived defects``."""
        count = len(self.waived)
        return f"passed with {count} waived {'defect' if count == 1 else 'defects'}" if count else "passed"

    def as_bytes(self, *, signed: bool) -> bytes:
        """The content of verdict.json. ``signed`` records that there is a signature: none can be removed unnoticed."""
        document: dict[str, Any] = {
            "format": 1,
            "verdict": self.text,
            "signed": signed,
            "commit": self.facts.commit,
            "epoch": self.epoch,
            "tier": self.facts.tier,
            "archs": list(self.archs),
            "upstream": self.facts.upstream,
            "upstream_identity": self.facts.upstream_identity,
            "toolchain": self.toolchain,
            "toolchain_identity": self.facts.toolchain,
            "images": list(self.images),
            "waived": {
                waiver.name: {
                    **{name: str(getattr(waiver, name)) for name in ("accepted_by", "accepted_on", "until", "reason")},
                    "count": self.findings.defects[waiver.name],
                }
                for waiver in self.waived
            },
            "unneeded_waivers": list(self.unneeded),
            "cases": {name: dict(counts) for name, counts in self.findings.cases.items()},
        }
        return as_text(document)


def judge(
    basis: Basis, findings: Findings, waivers: Mapping[str, Waiver], *, today: datetime.date | None
) -> ReleaseVerdict:
    """Judge the findings. ``today`` None is for a bundle that was judged before: dates of waivers are not checked."""
    demand_accepted(findings.defects, waivers, today)
    return ReleaseVerdict(
        **{field.name: getattr(basis, field.name) for field in dataclasses.fields(Basis)},
        findings=findings,
        waived=tuple(waivers[name] for name in sorted(findings.defects)),
        unneeded=tuple(sorted(waivers.keys() - findings.defects.keys())),
    )


class Waiver(tablefile.Record, frozen=True):
    """An acceptance of the defect ``name``: person, day, last day and reason. ``location`` is its file:line."""

    accepted_by: tablefile.Text
    accepted_on: datetime.date
    until: datetime.date
    reason: tablefile.Text
    name: tablefile.Later = ""
    location: tablefile.Later = ""


class WaiverTable(tablefile.Record, frozen=True):
    """The record of a file of waivers."""

    waivers: dict[str, Waiver]


def read_waivers(file: Path, defect_names: Collection[str] | None = None) -> Mapping[str, Waiver]:
    """Read waivers by name of the defect. None takes any ``defect_names``, for bundles of older tables."""
    table = tablefile.read_table(file, WaiverTable)
    waivers = {}
    for name, row in tablefile.add_names(table.record.waivers).items():
        item = table.at("waivers", name)
        if defect_names is not None and name not in defect_names:
            hint = did_you_mean(name, list(defect_names))
            raise item.fail(f"no known defect has this name{hint} Waivers are for entries of the ledger; remove this")
        if row.until < row.accepted_on:
            raise item.get("until").fail(f"is before {row.accepted_on}, the day of the acceptance")
        waivers[name] = msgspec.structs.replace(row, location=f"{item.file.name}:{item.line}")
    return waivers


def demand_accepted(defects: Mapping[str, int], waivers: Mapping[str, Waiver], today: datetime.date | None) -> None:
    """Raise CheckFailedError for a defect without a waiver on that day. Values are numbers of cases or kernels.

    Without a day any waiver will do: a bundle was judged on its own day.
    """
    lines = []
    for name, count in sorted(defects.items()):
        waiver = waivers.get(name)
        if waiver is None:
            lines.append(f"{name} ({count}): not accepted")
        elif today and waiver.until < today:
            lines.append(f"{name} ({count}): {waiver.location}: the acceptance ended on {waiver.until}")
        elif today and waiver.accepted_on > today:
            lines.append(
                f"{name} ({count}): {waiver.location}: accepted only on {waiver.accepted_on}, which is to come"
            )
    if lines:
        raise CheckFailedError(
            "known defects without a waiver for this release:\n  "
            + "\n  ".join(lines)
            + "\nSolve them, or let somebody accept each in a file for --waivers:\n"
            "waivers:\n  NAME: {accepted_by: WHO, accepted_on: DATE, until: DATE, reason: WHY}",
            kind="waiver",
        )
