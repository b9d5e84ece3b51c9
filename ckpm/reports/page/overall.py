"""The verdict over all inputs, and the checks that lead to it, each in a line."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ckpm.base.errors import CheckFailedError
from ckpm.base.results import KNOWN_DEFECT, SOME_CASES, UNSUPPORTED, CaseResult
from ckpm.matrix.sessions import FAMILY_SUITE, sessions
from ckpm.reports.page.inputs import LibraryResults, ReportInputs, Uncounted, gates_of, parity_command
from ckpm.reports.page.report_table import STATUSES
from ckpm.reports.verdicts import BASELINES, DOUBTFUL, PASSING

# the worst first; 'not run' counts only if nothing at all passed, but every check that was not run is named
VERDICTS = ("failed", "inconclusive", "passed", "not run")
SYMBOLS = {"failed": "✗", "inconclusive": "?", "passed": "✓", "not run": "○"}
_ON = {"emulator": " on the emulator", "hip": " on a GPU"}
_OF_A_GATE = {**dict.fromkeys(PASSING, "passed"), **dict.fromkeys(DOUBTFUL, "inconclusive")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    name: str
    verdict: str  # one of VERDICTS
    text: str
    section: str  # of the HTML report with the details


@dataclass(frozen=True, slots=True, kw_only=True)
class Overall:
    verdict: str  # one of VERDICTS
    checks: tuple[Check, ...]

    @property
    def headline(self) -> str:
        """The verdict in a line, with the checks that were not run."""
        bad = [check.name for check in self.checks if check.verdict == self.verdict]
        missing = [check.name for check in self.checks if check.verdict == "not run"]
        which = f": {', '.join(bad)}" if self.verdict in ("failed", "inconclusive") else ""
        also = f"; not run: {', '.join(missing)}" if missing else ""
        return f"{self.verdict}{which}{also}"


def overall(inputs: ReportInputs) -> Overall:
    """Failed if any check failed, else inconclusive if any is, else passed if any passed."""
    checks = tuple(
        [_of_uncounted(uncounted) for uncounted in inputs.uncounted]
        + [check for library in inputs.libraries for check in _of_library(library, inputs)]
        + [*_of_parity(inputs), *_of_gates(inputs), *_of_benchmarks(inputs), _of_ledger(inputs)]
    )
    # a ledger without expired entries tests nothing
    verdicts = {check.verdict for check in checks if check.name != "ledger" or check.verdict == "failed"}
    worst_first = sorted(checks, key=lambda check: VERDICTS.index(check.verdict))
    return Overall(verdict=min(verdicts, key=VERDICTS.index), checks=tuple(worst_first))


def demand_pass(verdict: Overall, pages: Sequence[Path] = ()) -> None:
    """Raise CheckFailedError unless the verdict is passed. The message ends with the written pages."""
    if verdict.verdict != "passed":
        lines = [f"  {c.verdict}: {c.name}: {c.text}" for c in verdict.checks if c.verdict != "passed"]
        lines += [f"report: {page}" for page in pages]
        raise CheckFailedError("\n".join([f"the verdict is '{verdict.verdict}'", *lines]), kind="not-passed")


def count_status(inputs: ReportInputs, library: LibraryResults, suite: str) -> Counter[str]:
    """A suite's cases by status (ckpm.reports.page.report_table.STATUSES)."""
    return Counter(tested.case.status for tested in inputs.cases if tested.library is library and tested.suite == suite)


def _of_uncounted(uncounted: Uncounted) -> Check:
    return Check(name=str(uncounted.file), verdict="failed", text=f"not counted: {uncounted.reason}", section="cases")


def _of_library(library: LibraryResults, inputs: ReportInputs) -> list[Check]:
    """A check for each suite with results, and those that were not run: other cases of the suite, other suites."""
    checks = []
    for suite, results in library.suites.items():
        name = f"{suite} of {library.label}{_ON.get(results.facts.get('device', ''), '')}"
        check = _of_counts(name, count_status(inputs, library, suite), results.failing, "cases")
        if why := results.facts.get(UNSUPPORTED):
            check = dataclasses.replace(check, text=f"{check.text}; skipped: {why}")
        if cases := results.facts.get(SOME_CASES):
            checks.append(_not_run(f"other cases of {name}", f"only cases {cases} were run"))
        checks.append(check)
    missing = [suite for suite in _suites_of(library) if library.results_file(suite) not in inputs.uncounted_files]
    if missing := [suite for suite in missing if suite not in library.suites]:
        which = ", ".join(missing) if library.suites else "suites"
        command = f"ckpm test --suite {missing[0]} {library.options(library.manifest.archs[0])}"
        checks.append(_not_run(f"{which} of {library.label}", f"no results: {command}"))
    return checks


def _not_run(name: str, text: str, section: str = "cases") -> Check:
    return Check(name=name, verdict="not run", text=text, section=section)


def _suites_of(library: LibraryResults) -> tuple[str, ...]:
    """The suites that can be run on a library: those with tables on batch prefill's, on other families' their own."""
    if library.family:
        return (FAMILY_SUITE,)
    emulated = {*library.manifest.archs} & {*sessions().emulated}
    return tuple(name for name in sessions().table_suites if emulated or not sessions().suites[name].device)


def _of_counts(name: str, counts: Mapping[str, int], failing: Sequence[CaseResult], section: str) -> Check:
    """The check of a suite's counts. A suite of skipped cases counts as not run."""
    by_status = {status: counts.get(status, 0) for status in reversed(STATUSES)}
    bad, ran = by_status["failed"] + by_status["error"], by_status["passed"] + by_status[KNOWN_DEFECT]
    bad_first = sorted(by_status.items(), key=lambda item: item[0] not in ("failed", "error"))
    text = ", ".join(f"{count} {status}" for status, count in bad_first if count)
    text += f"; the first: {': '.join(filter(None, (failing[0].name, failing[0].message)))}" if failing else ""
    return Check(
        name=name,
        verdict="failed" if bad else "passed" if ran else "not run",
        text=text or "the file holds no case",
        section=section,
    )


def _of_parity(inputs: ReportInputs) -> list[Check]:
    """The check of parity, unless its file doesn't count."""
    file = inputs.folder / "parity.json"
    if inputs.parity:
        return [_of_counts("parity", inputs.parity.counts(), inputs.parity.failing, "parity")]
    if file in inputs.uncounted_files:
        return []
    return [_not_run("parity", f"no {file.name}: {parity_command(file)}", "parity")]


def _of_gates(inputs: ReportInputs) -> list[Check]:
    """A check for each gate, and one for each library that no gate judged."""
    checks = []
    for file, gate in inputs.gates.items():
        own = gate.provenance.get(BASELINES)
        text = gate.summary() + (f", against the baselines of {own}" if own else "")
        checks.append(
            Check(
                name=f"gate {file.relative_to(inputs.folder).with_suffix('')}",
                verdict=_OF_A_GATE.get(gate.verdict, "failed"),
                text=text + (f"; the first: {gate.failing[0]}" if gate.failing else ""),
                section="figures",
            )
        )
    for library in inputs.libraries:
        for arch in library.manifest.archs:
            file = library.manifest_file.with_name("gate.json")
            if not gates_of(inputs, library, arch) and file not in inputs.uncounted_files:
                text = f"no {file.name}: ckpm gate {library.options(arch)}"
                checks.append(_not_run(f"gate of {library.manifest_file.parent.name} on {arch}", text, "figures"))
    return checks


def _of_benchmarks(inputs: ReportInputs) -> list[Check]:
    """A check for each benchmark. It passes if numbers agree with the reference; times alone don't pass."""
    checks = []
    for file, benchmark in inputs.benchmarks.items():
        compared = [row for row in benchmark.rows if row.get("agrees") is not None]
        failing, known_defects = benchmark.failing, sum(bool(row.get("known_defect")) for row in compared)
        agree = sum(row["agrees"] is True for row in compared)
        text = f"{agree} of {benchmark.cases} cases agree with the reference, {known_defects} known defects"
        checks.append(
            Check(
                name=f"benchmark {file.stem}",
                verdict="failed" if failing else "passed" if agree else "not run",
                text=text + (f"; the first: {failing[0]}" if failing else ""),
                section="benchmarks",
            )
        )
    return checks


def _of_ledger(inputs: ReportInputs) -> Check:
    expired = [entry.name for entry in inputs.ledger.entries if entry.expires < inputs.today]
    if expired:
        return Check(name="ledger", verdict="failed", text=f"expired: {', '.join(expired)}", section="ledger")
    text = f"{len(inputs.ledger.entries)} entries, none expired"
    if inputs.ledger.entries:
        text += f"; the next expires on {min(entry.expires for entry in inputs.ledger.entries)}"
    return Check(name="ledger", verdict="passed", text=text, section="ledger")
