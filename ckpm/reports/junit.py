"""JUnit: shards merged, gates as results with their JUnit file, and a table of results for the terminal.

Suites of the same name are joined, and each case counts once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from xml.parsers.expat import ExpatError

from junitparser import JUnitXml, TestSuite
from junitparser.junitparser import JUnitXmlError

from ckpm.base.bounded import BoundsError, check_xml, read_text
from ckpm.base.display import join_lines, one_line
from ckpm.base.errors import CheckFailedError, InputError
from ckpm.base.junit import write_beside
from ckpm.base.outputs import write_output
from ckpm.base.results import CaseResult, Results
from ckpm.base.rows import align
from ckpm.reports.verdicts import DOUBTFUL, FAMILY, PASSING, Gate, VerdictRow, worst

_LONGEST = 200  # characters of a name or a complaint
_REMEDY = "Run that shard again; without it the others are not a pass."


def read_shard(file: Path) -> JUnitXml:
    """Read a shard's JUnit.

    Raises:
        InputError: the file is missing, truncated, not JUnit, or has another number of cases than its header.
    """
    try:
        data = read_text(file).encode()
        check_xml(data)
        # a file of one suite is a testsuite without testsuites around it
        document = JUnitXml.fromstring(data)
        whole = JUnitXml()
        for suite in [document] if isinstance(document, TestSuite) else document:
            if suite.tests and suite.tests != len(list(suite)):
                raise InputError(
                    f"{file}: suite {one_line(str(suite.name), _LONGEST)}: its header counts {suite.tests} cases, "
                    f"the file has {len(list(suite))}. {_REMEDY}",
                    kind="shard",
                )
            whole.add_testsuite(suite)
    except OSError as error:
        raise InputError(f"{file}: can't be read: {error.strerror or error}. {_REMEDY}", kind="shard") from error
    except BoundsError as error:
        raise InputError(f"{file}: line {error.line}: no JUnit: {error}. {_REMEDY}", kind="shard") from error
    except (ExpatError, ValueError) as error:
        raise InputError(
            f"{file}: no whole XML, was it cut short? {one_line(str(error), _LONGEST)}. {_REMEDY}", kind="shard"
        ) from error
    except JUnitXmlError as error:
        raise InputError(f"{file}: no JUnit: {error}. {_REMEDY}", kind="shard") from error
    if not any(len(list(suite)) for suite in whole):
        raise InputError(f"{file}: no case in it. {_REMEDY}", kind="shard")
    return whole


def merge(shards: Sequence[Path], output: Path) -> JUnitXml:
    """Join shards and write them; the file is replaced in one step, and not at all if a shard is damaged."""
    suites: dict[str, TestSuite] = {}
    origin: dict[tuple[str, str, str], int] = {}
    for at, file in enumerate(shards):
        for suite in read_shard(file):
            joined = suites.setdefault(suite.name or "", TestSuite(suite.name))
            for case in suite:
                name = (suite.name or "", case.classname or "", case.name or "")
                if (first := origin.setdefault(name, at)) != at:
                    raise InputError(
                        f"{file}: {one_line(name[2], _LONGEST)} is in {shards[first]}, too. "
                        "Was a shard given twice, or are they of two runs?",
                        kind="shard",
                    )
                joined.add_testcase(case)
    whole = JUnitXml()
    for suite in suites.values():
        suite.update_statistics()
        whole.add_testsuite(suite)
    whole.update_statistics()
    write_output(output, whole.tostring())
    return whole


def demand_passed(whole: JUnitXml, output: Path) -> None:
    """Raise CheckFailedError if a case of a shard failed or could not be checked."""
    bad = [case for suite in whole for case in suite if case.is_failure or case.is_error]
    if bad:
        total = sum(len(list(suite)) for suite in whole)
        raise CheckFailedError(
            f"{len(bad)} of {total} cases failed, the first is {one_line(str(bad[0].name), _LONGEST)}; see {output}",
            kind="cases",
        )


def gate_results(gate: Gate) -> Results:
    """A case for each kernel or problem of each gate: failed, or undecided (error), by its worst figure.

    Kernels and problems have the same names in every library. The suite names the library, so that the gates of two
    archs can be joined.
    """
    by_subject: dict[tuple[str, str], list[VerdictRow]] = {}
    for row in gate.rows:
        by_subject.setdefault((row.gate, row.subject), []).append(row)
    cases = [_gate_case(kind, subject, rows) for (kind, subject), rows in by_subject.items()]
    arch, upstream, family = (gate.provenance.get(fact, "") for fact in ("arch", "upstream", FAMILY))
    return Results(tuple(replace(case, arch=arch, upstream=upstream, family=family) for case in cases))


def _gate_case(kind: str, subject: str, rows: Sequence[VerdictRow]) -> CaseResult:
    bad = [str(row) for row in rows if row.verdict not in PASSING]
    verdict = worst(row.verdict for row in rows)
    outcome = "passed" if not bad else "error" if verdict in DOUBTFUL else "failed"
    return CaseResult(
        suite=f"{kind}-gate",
        classname=kind,
        name=subject,
        outcome=outcome,
        message=f"{verdict}: {len(bad)} of {len(rows)} figures" if bad else "",
        text="\n".join(bad) or f"{len(rows)} figures, {verdict}",
    )


def write_gate(gate: Gate, output: Path) -> None:
    """Write the result as JSON, and as JUnit beside it."""
    gate.write(output)
    write_beside(gate_results(gate), output)


def summary(results: Results) -> str:
    """A table of suites and outcomes, and below it every case that is not in order."""
    suites = list(dict.fromkeys(case.group for case in results.cases))
    rows = [("suite", "cases", *results.counts(), "seconds")]
    for suite in suites:
        group = Results(tuple(case for case in results.cases if case.group == suite))
        seconds = sum(case.seconds for case in group.cases)
        rows.append((one_line(suite), str(len(group.cases)), *map(str, group.counts().values()), f"{seconds:.1f}"))
    lines = align(rows, left=1).splitlines()
    lines += [join_lines(f"{case.outcome}: {case.name}: {case.message}") for case in results.failing]
    return "\n".join(lines)
