"""The report's tables of cases: by axis value, one by one, and their faults."""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import repeat
from operator import attrgetter
from typing import Any

from ckpm.base.results import CaseFault, CaseResult
from ckpm.matrix.dialects import DEFAULT_FAMILY
from ckpm.matrix.problems.case import BATCH_CHECKS
from ckpm.reports.page.inputs import LibraryResults, Tested
from ckpm.reports.page.report_table import STATUSES, Cell, ReportTable, columns, severity
from ckpm.reports.problems import known_problems

_AXES = (
    "dtype", "mode", "hdim_q", "page_size", "kv_layout", "kv_table", "storage", "page_order", "table_end", "placement",
    "mask", "bias", "logits_soft_cap", "lse", "p_drop", "qscale", "tile_rows",
)  # fmt: skip
_AXIS_VALUES = attrgetter(*_AXES)
_NOT_IN_TEXT = "the text is left out to keep this report small; read it in "
TEXT_BUDGET = 1_500_000  # characters of case texts in one report, and as many of faults


def axes(cases: Iterable[Tested]) -> ReportTable:
    counts: Counter[tuple[str, str, object, str]] = Counter()
    for tested in cases:
        if problem := known_problems().get(tested.case.name):
            counts.update(zip(repeat(tested.suite), _AXES, _AXIS_VALUES(problem), repeat(tested.case.status)))
    by_value: defaultdict[tuple[str, str, str], Counter[str]] = defaultdict(Counter)
    for (suite, axis, value, status), count in counts.items():
        by_value[suite, axis, _axis_value(axis, value)][status] += count
    statuses = list(reversed(STATUSES))
    rows: list[list[Cell]] = []
    for (suite, axis, text), by_status in by_value.items():
        worst = next(status for status in STATUSES if by_status[status])
        rows.append(
            [
                f"{STATUSES[worst]} {worst}", suite, axis, text, by_status.total(),
                *(by_status[status] for status in statuses),
            ]
        )  # fmt: skip
    rows.sort(key=lambda row: severity(str(row[0])))
    return ReportTable(
        id="axes",
        short="Axes",
        title="Correctness by suite and axis",
        columns=columns(
            worst="status", suite="choice", axis="choice", value="text",
            **dict.fromkeys(("cases", *statuses), "number"),
        ),
        rows=rows,
        note="Each case counts once in every axis. Skipped: the library has no kernel for the problem.",
    )  # fmt: skip


def _axis_value(axis: str, value: object) -> str:
    if axis == "tile_rows" and not value:
        return "any"
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def cases(cases: Sequence[Tested]) -> ReportTable:
    rows: list[list[Cell]] = []
    for tested in cases:
        case, used = tested.case, tested.case.tolerance_used
        rows.append(
            [
                f"{STATUSES[case.status]} {case.status}", case.name, case.message or _entry(case),
                None if used is None else float(f"{used:.3g}"), round(case.seconds, 3), tested.suite,
                tested.library.label, case.kernel,
            ]
        )  # fmt: skip
    return ReportTable(
        id="cases",
        short="Cases",
        title="Cases",
        columns=columns(
            status="status", case="name", message_or_ledger_entry="prose", of_tolerance="number", seconds="number",
            suite="choice", library="choice", kernel="kernel",
        ),
        rows=rows,
        details=_texts(cases),
        note="Of tolerance: the largest error over what is allowed there. Seconds: of the case on this machine.",
    )  # fmt: skip


def _texts(cases: Sequence[Tested]) -> dict[int, list[str]]:
    """The lines of the cases' texts, in their order, until the budget is spent. Faults have a table of their own.

    Passed cases without a remark have none, because their row is complete. A text beyond the budget is replaced by the
    name of its file.
    """
    left = TEXT_BUDGET
    by_case: dict[int, list[str]] = {}
    seen: set[str] = set()
    for at, tested in enumerate(cases):
        if tested.case.status in ("passed", "skipped"):
            continue
        lines = tested.case.remarks()
        # lines that other cases have, too, are stored once
        cost = sum(len(line) for line in lines if line not in seen) + 8 * len(lines)
        if cost > left:
            lines = [_NOT_IN_TEXT + str(tested.library.results_file(tested.suite))]
        else:
            left -= cost
            seen.update(lines)
        by_case[at] = lines
    return by_case


def batch_invariance(libraries: Iterable[LibraryResults], cases: Iterable[Tested]) -> ReportTable:
    """The kernels of batch prefill, with the cases that compared their bits in other batches."""
    compared: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for tested in cases:
        problem = known_problems().get(tested.case.name)
        if {*BATCH_CHECKS} <= {*tested.case.same_batches} or (
            tested.case.status != "passed" and problem and {*BATCH_CHECKS} & {*problem.checks}
        ):
            compared[tested.library.label, tested.case.kernel][tested.case.status] += 1
    rows: list[list[Cell]] = []
    for library in libraries:
        for name in (kernel for kernel in library.manifest.kernels if kernel.startswith(f"fmha_{DEFAULT_FAMILY}_")):
            counts = compared[library.label, name]
            worst = next((status for status in STATUSES if counts[status]), "skipped")
            rows.append([f"{STATUSES[worst]} {worst}", name, library.label, counts.total()])
    rows.sort(key=lambda row: severity(str(row[0])))
    return ReportTable(
        id="batch-invariance",
        short="Batches",
        title="Batch invariance of kernels",
        columns=columns(status="status", kernel="kernel", library="choice", cases="number"),
        rows=rows,
        note="Passed: in each case every sequence had the same bits in its batch, alone, in reverse order and among "
        "others, on the device of the suite's results. Skipped: no case compared the kernel, and nothing is claimed.",
    )


def faults(cases: Iterable[Tested]) -> ReportTable:
    rows: list[list[Cell]] = []
    details: dict[int, list[str]] = {}
    left = TEXT_BUDGET
    for tested in cases:
        case, fault = tested.case, tested.case.fault
        if fault is None:
            continue
        lines = [line for name, value in dataclasses.asdict(fault).items() for line in _field(name, value)]
        cost = sum(map(len, lines))
        left -= cost
        details[len(rows)] = lines if left > 0 else [_NOT_IN_TEXT + str(tested.library.results_file(tested.suite))]
        rows.append(
            [
                f"{STATUSES[case.status]} {case.status}", case.name, _where(fault), fault.instruction,
                "" if fault.pc is None else f"{fault.pc:#x}", _entry(case), fault.kind, tested.library.label,
                case.kernel,
            ]
        )  # fmt: skip
    return ReportTable(
        id="faults",
        short="Faults",
        title="Faults",
        columns=columns(
            status="status", case="name", what_happened="prose", instruction="name", pc="word", ledger_entry="choice",
            kind="choice", library="choice", kernel="kernel",
        ),
        rows=rows,
        details=details,
        note="A launch that a fault ended: the instruction at fault, the lane, the address and the nearest allocation.",
    )  # fmt: skip


def _entry(case: CaseResult) -> str:
    return case.ledger.name if case.ledger else ""


def _where(fault: CaseFault) -> str:
    """The fault's first line and the nearest allocation, without the other columns' parts."""
    lines = [line.strip() for line in fault.message.splitlines()]
    return "; ".join(line for line in lines if line and not line.startswith(("kernel ", "pc ")))


def _field(name: str, value: Any) -> list[str]:
    if name in ("address", "pc", "base"):
        return [] if value is None else [f"{name}: {value:#x}"]
    if isinstance(value, dict):
        return [f"{name} {line}" for inner, member in value.items() for line in _field(inner, member)]
    if name in ("message", "instruction") or value in ("", None, ()):  # the row has them
        return []
    return [f"{name}: {value}"]
