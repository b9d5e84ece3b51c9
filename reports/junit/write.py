"""JUnit XML from results: one test suite for each suite of cases, the difference in the failure's text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from junit_xml import TestCase, TestSuite, to_xml_report_string

from kernels.base.files import write_atomically, writing
from kernels.base.results import Case, Results
from matrix.base.errors import UsageError
from reports.verdicts import Gate, Row, worst

_JUNIT = ".xml"


def junit_text(results: Results) -> str:
    """The XML document. A passed case carries what was compared as its system-out."""
    by_suite: dict[str, list[TestCase]] = {}
    for case in results.cases:
        by_suite.setdefault(case.group, []).append(_test_case(case))
    text: str = to_xml_report_string([TestSuite(name, cases) for name, cases in by_suite.items()])
    return text


def gate_results(gate: Gate) -> Results:
    """A case for each kernel or problem of each gate: failed, or not decided (error), by its worst figure."""
    by_subject: dict[tuple[str, str], list[Row]] = {}
    for row in gate.rows:
        by_subject.setdefault((row.gate, row.subject), []).append(row)
    return Results(tuple(_judged(kind, subject, rows) for (kind, subject), rows in by_subject.items()))


def _judged(kind: str, subject: str, rows: Sequence[Row]) -> Case:
    bad = [str(row) for row in rows if row.verdict not in ("unchanged", "improved")]
    verdict = worst(row.verdict for row in rows)
    outcome = "passed" if not bad else "error" if verdict == "inconclusive" else "failed"
    return Case(
        suite=f"{kind}-gate",
        classname=kind,
        name=subject,
        outcome=outcome,
        message=f"{verdict}: {len(bad)} of {len(rows)} figures" if bad else "",
        text="\n".join(bad) or f"{len(rows)} figures, {verdict}",
    )


def clear_gate(output: Path) -> None:
    """A gate that can't run must not leave an older one's verdict.

    Raises:
        UsageError: ``output`` is where the JUnit file goes.
    """
    if output.suffix == _JUNIT:
        raise UsageError(f"--output {output}: the result is JSON; its JUnit goes beside it, as {output.name}.")
    for older in (output, output.with_suffix(_JUNIT)):
        with writing(older):
            older.unlink(missing_ok=True)


def write_gate(gate: Gate, output: Path) -> None:
    """The result as JSON, and as JUnit beside it. Raises GateError, DiskFullError, OutputError."""
    gate.write(output)
    write_junit(gate_results(gate), output.with_suffix(_JUNIT))


def write_junit(results: Results, file: Path) -> None:
    """Replace ``file`` in one step. Raises DiskFullError, OutputError."""
    write_atomically(file, junit_text(results).encode())


def _test_case(case: Case) -> TestCase:
    passed = case.outcome == "passed"
    written = TestCase(
        case.name, classname=case.classname, elapsed_sec=case.seconds, stdout=case.full_text() if passed else None
    )
    match case.outcome:
        case "failed":
            written.add_failure_info(message=case.message, output=case.full_text())
        case "error":
            written.add_error_info(message=case.message, output=case.full_text())
        case "skipped":
            written.add_skipped_info(message=case.message, output=case.full_text())
    return written


def summary(results: Results) -> str:
    """A table of suites and outcomes, and below it every case that is not in order."""
    suites = list(dict.fromkeys(case.group for case in results.cases))
    rows = [("suite", "cases", *results.counts(), "seconds")]
    for suite in suites:
        mine = Results(tuple(case for case in results.cases if case.group == suite))
        seconds = sum(case.seconds for case in mine.cases)
        rows.append((suite, str(len(mine.cases)), *map(str, mine.counts().values()), f"{seconds:.1f}"))
    lines = _columns(rows)
    lines += [f"{case.outcome}: {case.name}: {case.message}" for case in results.failing]
    return "\n".join(lines)


def _columns(rows: Iterable[tuple[str, ...]]) -> list[str]:
    table = list(rows)
    widths = [max(len(row[at]) for row in table) for at in range(len(table[0]))]
    return [
        "  ".join(
            [row[0].ljust(widths[0]), *(word.rjust(width) for word, width in zip(row[1:], widths[1:], strict=True))]
        )
        for row in table
    ]
