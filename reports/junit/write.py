"""Gates as results with their JUnit file, and a table of results for the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from ckpm.base.display import one_line
from ckpm.base.junit import write_beside
from ckpm.base.results import Case, Results
from ckpm.reports.verdicts import FAMILY, Gate, Row, worst


def gate_results(gate: Gate) -> Results:
    """A case for each kernel or problem of each gate: failed, or undecided (error), by its worst figure.

    Kernels and problems have the same names in every library. The suite names the library, so that the gates of two
    archs can be joined.
    """
    by_subject: dict[tuple[str, str], list[Row]] = {}
    for row in gate.rows:
        by_subject.setdefault((row.gate, row.subject), []).append(row)
    cases = [_gate_case(kind, subject, rows) for (kind, subject), rows in by_subject.items()]
    arch, upstream, family = (gate.provenance.get(fact, "") for fact in ("arch", "upstream", FAMILY))
    return Results(tuple(replace(case, arch=arch, upstream=upstream, family=family) for case in cases))


def _gate_case(kind: str, subject: str, rows: Sequence[Row]) -> Case:
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


def write_gate(gate: Gate, output: Path) -> None:
    """Write the result as JSON, and as JUnit beside it. Raises InconclusiveError, DiskFullError, OutputError."""
    gate.write(output)
    write_beside(gate_results(gate), output)


def summary(results: Results) -> str:
    """A table of suites and outcomes, and below it every case that is not in order."""
    suites = list(dict.fromkeys(case.group for case in results.cases))
    rows = [("suite", "cases", *results.counts(), "seconds")]
    for suite in suites:
        mine = Results(tuple(case for case in results.cases if case.group == suite))
        seconds = sum(case.seconds for case in mine.cases)
        rows.append((one_line(suite), str(len(mine.cases)), *map(str, mine.counts().values()), f"{seconds:.1f}"))
    lines = _columns(rows)
    lines += [one_line(f"{case.outcome}: {case.name}: {case.message}") for case in results.failing]
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
