"""The report's sections, a table each: kernels, axes, cases, faults, figures, parity, ledger."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter

from ckpm.base.results import KNOWN_DEFECT
from ckpm.base.tablefile import word_list
from ckpm.kernels.code.code_object import KernelResources
from ckpm.matrix.dialects import compute_units
from ckpm.reports.page import case_tables, figure_tables, timing_tables
from ckpm.reports.page.inputs import LibraryResults, ReportInputs, Tested, gates_of
from ckpm.reports.page.report_table import GATE_SYMBOLS, STATUSES, Cell, Folded, ReportTable, columns, severity
from ckpm.reports.verdicts import VERDICTS, VerdictRow


def tables(inputs: ReportInputs) -> tuple[ReportTable, ...]:
    """All tables in the order of the report. Empty tables stay."""
    worst_first = list(STATUSES)
    cases = sorted(inputs.cases, key=lambda tested: worst_first.index(tested.case.status))
    return (
        _kernels(inputs),
        case_tables.axes(cases),
        case_tables.cases(cases),
        case_tables.faults(cases),
        case_tables.batch_invariance(inputs.libraries, cases),
        figure_tables.model(inputs),
        timing_tables.versions(timing_tables.rows_of_versions(inputs)),
        timing_tables.timing(inputs.timings()),
        timing_tables.phases(inputs.timings()),
        timing_tables.score(inputs),
        figure_tables.decode(inputs),
        figure_tables.gate_rows(inputs),
        figure_tables.references(inputs),
        figure_tables.best_kernels(inputs),
        _parity(inputs),
        _ledger(inputs, cases),
    )


def _kernels(inputs: ReportInputs) -> ReportTable:
    kernels: list[tuple[list[Cell], list[str]]] = []
    for library in inputs.libraries:
        judged = {arch: _static_rows(inputs, library, arch) for arch in library.manifest.archs}
        for name, kernel in library.manifest.kernels.items():
            for arch, figures in kernel.archs.items():
                rows = judged.get(arch, {}).get(name, [])
                verdict = min((row.verdict for row in rows), key=VERDICTS.index, default="")
                beyond = _beyond_budget(rows)
                remarks = _excesses(beyond) if rows else [word for word, true in _remarks(figures).items() if true]
                cells: list[Cell] = [
                    f"{GATE_SYMBOLS[verdict]} {verdict}" if verdict else "○ no gate", name, arch, library.upstream,
                    figures.vgpr, figures.agpr, figures.sgpr, figures.vgpr_spills, figures.sgpr_spills,
                    figures.lds_bytes, figures.scratch_bytes, figures.occupancy_waves, figures.text_bytes,
                    "; ".join(remarks),
                ]  # fmt: skip
                kernels.append((cells, [*(f"{row.metric}: {row.note}" for row in beyond), *_hot_loop(rows)]))
    kernels.sort(key=lambda pair: severity(str(pair[0][0])))
    numbers = ("VGPR", "AGPR", "SGPR", "V spills", "S spills", "LDS", "scratch", "waves", "code")
    limits = "; ".join(
        f"{arch}: {limit.vgprs} VGPR (AGPR included), {limit.lds_bytes:,} bytes of LDS, {limit.waves} waves a SIMD"
        for arch, limit in compute_units().items()
        if any(cells[2] == arch for cells, _ in kernels)
    )
    return ReportTable(
        id="kernels",
        short="Kernels",
        title="Kernels and their resources",
        columns=columns(
            static_gate="status", kernel="kernel", arch="choice", upstream="choice", **dict.fromkeys(numbers, "number"),
            beyond_its_budget="prose",
        ),
        rows=[cells for cells, _ in kernels],
        details={at: lines for at, (_, lines) in enumerate(kernels) if lines},
        note=f"Hardware: {limits}. LDS is bytes a workgroup, scratch bytes a lane, waves those of a SIMD, code bytes; "
        "S spills go to VGPR lanes, V spills to memory. A kernel's details are its hot loop, and why it is excused "
        "from a budget." if limits else "",
        folded=(
            Folded(title="Budgets", lines=_limits(inputs)),
            Folded(title="Kernels exempt from budgets, and until when", lines=_excuses(inputs)),
        ) if kernels else (),
    )  # fmt: skip


def _remarks(figures: KernelResources) -> Mapping[str, bool]:
    """Remarks on a kernel that no gate judged."""
    return {
        "spills": figures.vgpr_spills > 0,
        "scratch": figures.scratch_bytes > 0,
        "can't be launched": figures.occupancy_waves == 0,
    }


def _parity(inputs: ReportInputs) -> ReportTable:
    worst_first = list(STATUSES)
    rows: list[list[Cell]] = []
    details: dict[int, list[str]] = {}
    for case in sorted(inputs.parity.cases if inputs.parity else (), key=lambda case: worst_first.index(case.outcome)):
        if case.text:
            details[len(rows)] = case.text.splitlines()
        rows.append([f"{STATUSES[case.outcome]} {case.outcome}", case.upstream, case.name, case.message])
    return ReportTable(
        id="parity",
        short="Parity",
        title="Parity with upstream's codegen",
        columns=columns(status="status", upstream="choice", case="text", message="prose"),
        rows=rows,
        details=details,
    )


def _ledger(inputs: ReportInputs, cases: Iterable[Tested]) -> ReportTable:
    used = Counter(
        tested.case.ledger.name for tested in cases if tested.case.ledger and tested.case.status == KNOWN_DEFECT
    )
    rows: list[list[Cell]] = []
    details: dict[int, list[str]] = {}
    for entry in sorted(inputs.ledger.entries, key=attrgetter("expires")):
        days = (entry.expires - inputs.today).days
        status = "✗ expired" if days < 0 else "! expires soon" if days <= 30 else "✓ believed"
        links = [entry.link] if entry.link else []
        details[len(rows)] = [entry.location, *links, *(f"problems: {glob}" for glob in entry.problems)]
        where = [", ".join(names).replace("*", "all") for names in (entry.upstreams, entry.archs)]
        rows.append(
            [
                status, entry.name, " or ".join(entry.outcomes), *where, used[entry.name], str(entry.expires), days,
                entry.reason,
            ]
        )  # fmt: skip
    return ReportTable(
        id="ledger",
        short="Ledger",
        title="Ledger of known defects",
        columns=columns(
            status="status", entry="name", outcome="choice", upstreams="choice", archs="choice", cases_here="number",
            expires="word", days_left="number", reason="prose",
        ),
        rows=rows,
        details=details,
    )  # fmt: skip


def _static_rows(inputs: ReportInputs, library: LibraryResults, arch: str) -> Mapping[str, list[VerdictRow]]:
    """Rows of the static gate by kernel of a library."""
    by_subject: defaultdict[str, list[VerdictRow]] = defaultdict(list)
    for gate in gates_of(inputs, library, arch):
        for row in gate.rows:
            if row.gate == "static":
                by_subject[row.subject].append(row)
    return by_subject


def _beyond_budget(rows: Iterable[VerdictRow]) -> list[VerdictRow]:
    """Rows of the static gate for a kernel's budgets. They have no baseline."""
    return [row for row in rows if ", budget " in row.threshold]


def _excesses(beyond: Iterable[VerdictRow]) -> list[str]:
    """Excesses of budgets as text. Excesses with the same excuse share a part."""
    by_excuse: defaultdict[str, list[str]] = defaultdict(list)
    for row in beyond:
        excused = row.note.partition(":")[0] if row.verdict == "unchanged" else row.verdict
        limit = row.threshold.partition(", budget ")[0]
        by_excuse[excused].append(f"{row.metric} {_number(row.candidate)} ({limit})")
    return [f"{', '.join(figures)}: {excused}" for excused, figures in by_excuse.items()]


def _hot_loop(rows: Iterable[VerdictRow]) -> list[str]:
    """Instructions of the hot loop by class, in a line."""
    counts = {row.metric.removeprefix("loop_"): row.candidate for row in rows if row.metric.startswith("loop_")}
    listed = ", ".join(f"{name.replace('_', ' ')} {_number(count)}" for name, count in counts.items())
    return [f"instructions of the hot loop: {listed}"] if listed else []


def _limits(inputs: ReportInputs) -> Sequence[str]:
    """The limits of reports/gates/budgets.yaml, each with its reason."""
    return [
        f"{budget.name} ({', '.join(word_list(budget.archs)).replace('*', 'every arch')}): "
        f"{', '.join(f'{limit.metric} {limit}' for limit in budget.limits.values())}: {budget.reason}"
        for budget in inputs.budgets.budgets
    ]


def _excuses(inputs: ReportInputs) -> Sequence[str]:
    """Allowed excesses: kernels, limits, expiry."""
    return [
        f"{allowance.name}: {allowance.budget} up to "
        f"{', '.join(f'{limit.metric} {limit}' for limit in allowance.limits.values())}, "
        f"until {allowance.expires}{' (expired)' if allowance.expires < inputs.today else ''}: "
        f"{allowance.reason} ({allowance.location})"
        for allowance in inputs.budgets.allowed
    ]


def _number(value: float | None) -> str:
    return "no figure" if value is None else f"{value:g}"
