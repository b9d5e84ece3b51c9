"""JUnit XML of results: one test suite for each suite of cases, the difference in the failure's text.

It is outside of reports/ because suites and parity write JUnit with their results.
"""

from __future__ import annotations

from pathlib import Path

from junit_xml import TestCase, TestSuite, to_xml_report_string

from .errors import UsageError
from .files import is_special
from .outputs import demand_ours, demand_place, forget_output, refuse_inputs, write_output
from .results import CaseResult, Results

_JUNIT = ".xml"


def junit_text(results: Results) -> str:
    """Return the XML document. A passed case has its comparisons as system-out."""
    by_suite: dict[str, list[TestCase]] = {}
    for case in results.cases:
        by_suite.setdefault(case.group, []).append(_test_case(case))
    text: str = to_xml_report_string([TestSuite(name, cases) for name, cases in by_suite.items()])
    return text


def write_junit(results: Results, file: Path) -> None:
    """Replace ``file`` in one step."""
    write_output(file, junit_text(results).encode())


def beside(output: Path) -> Path | None:
    """Return the path of a result's JUnit file; None if the result is written to a device or pipe."""
    return None if is_special(output) else output.with_suffix(_JUNIT)


def write_beside(results: Results, output: Path) -> None:
    """Write the JUnit file of a JSON result."""
    if file := beside(output):
        write_junit(results, file)


def clear(output: Path, *inputs: Path) -> None:
    """Delete an older result, the JSON and its JUnit file, so that a check that can't run leaves none.

    Called before a check, because a wrong path must not show only when a check of hours ends. Refuses paths that can't
    be written, ``inputs``, and JUnit files that we did not write.
    """
    if output.suffix == _JUNIT:
        raise UsageError(f"--output {output}: the result is JSON; its JUnit goes beside it, as {output.name}.")
    refuse_inputs(output, inputs)
    demand_place(output)
    if junit := beside(output):
        demand_ours([junit])
        forget_output(junit)
    forget_output(output)


def _test_case(case: CaseResult) -> TestCase:
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
