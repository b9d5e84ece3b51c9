"""The report's sections, a table each: kernels, axes, cases, faults, figures, parity, ledger."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from operator import attrgetter

from ckpm.base.results import KNOWN_DEFECT
from ckpm.kernels.code.code_object import KernelResources
from ckpm.matrix.dialects import compute_units
from ckpm.reports.page import benchmark_tables, budget_text, case_tables, decode_tables, figure_tables, timing_tables
from ckpm.reports.page.columns import GATE_SYMBOLS, STATUSES, Cell, Folded, Table, columns, severity
from ckpm.reports.page.inputs import Inputs, Tested
from ckpm.reports.verdicts import VERDICTS


def tables(inputs: Inputs) -> tuple[Table, ...]:
    """All tables in the order of the report. Empty tables stay."""
    worst_first = list(STATUSES)
    cases = sorted(inputs.cases, key=lambda one: worst_first.index(one.case.status))
    return (
        _kernels(inputs),
        case_tables.axes(cases),
        case_tables.cases(cases),
        case_tables.faults(cases),
        figure_tables.model(inputs),
        timing_tables.versions(inputs),
        timing_tables.timing(inputs),
        timing_tables.phases(inputs),
        timing_tables.timing_checks(inputs),
        decode_tables.decode(inputs),
        figure_tables.gate_rows(inputs),
        figure_tables.references(inputs),
        benchmark_tables.best_kernels(inputs),
        _parity(inputs),
        _ledger(inputs, cases),
    )


def _kernels(inputs: Inputs) -> Table:
    kernels: list[tuple[list[Cell], list[str]]] = []
    for library in inputs.libraries:
        judged = {arch: budget_text.static_rows(inputs, library, arch) for arch in library.manifest.archs}
        for name, kernel in library.manifest.kernels.items():
            for arch, figures in kernel.archs.items():
                rows = judged.get(arch, {}).get(name, [])
                verdict = min((row.verdict for row in rows), key=VERDICTS.index, default="")
                beyond = budget_text.beyond_budget(rows)
                remarks = (
                    budget_text.excesses(beyond) if rows else [word for word, true in _remarks(figures).items() if true]
                )
                cells: list[Cell] = [
                    f"{GATE_SYMBOLS[verdict]} {verdict}" if verdict else "○ no gate", name, arch, library.upstream,
                    figures.vgpr, figures.agpr, figures.sgpr, figures.vgpr_spills, figures.sgpr_spills,
                    figures.lds_bytes, figures.scratch_bytes, figures.occupancy_waves, figures.text_bytes,
                    "; ".join(remarks),
                ]  # fmt: skip
                kernels.append((cells, [*(f"{row.metric}: {row.note}" for row in beyond), *budget_text.hot_loop(rows)]))
    kernels.sort(key=lambda pair: severity(str(pair[0][0])))
    numbers = ("VGPR", "AGPR", "SGPR", "V spills", "S spills", "LDS", "scratch", "waves", "code")
    limits = "; ".join(
        f"{arch}: {limit.vgprs} VGPR (AGPR included), {limit.lds_bytes:,} bytes of LDS, {limit.waves} waves a SIMD"
        for arch, limit in compute_units().items()
        if any(cells[2] == arch for cells, _ in kernels)
    )
    kinds = {name.replace(" ", "_"): "number" for name in numbers}
    return Table(
        id="kernels",
        short="Kernels",
        title="Kernels and their resources",
        columns=columns(
            "static gate", "kernel", "arch", "upstream", *numbers, "beyond its budget",
            static_gate="status", kernel="kernel", arch="choice", upstream="choice", beyond_its_budget="prose", **kinds,
        ),
        rows=[cells for cells, _ in kernels],
        details={at: lines for at, (_, lines) in enumerate(kernels) if lines},
        note=f"Hardware: {limits}. LDS is bytes a workgroup, scratch bytes a lane, waves those of a SIMD, code bytes; "
        "S spills go to VGPR lanes, V spills to memory. A kernel's details are its hot loop, and why it is excused "
        "from a budget." if limits else "",
        folded=(
            Folded(title="Budgets", lines=budget_text.limits(inputs)),
            Folded(title="Who is excused from them, until when", lines=budget_text.excuses(inputs)),
        ) if kernels else (),
    )  # fmt: skip


def _remarks(figures: KernelResources) -> Mapping[str, bool]:
    """Remarks on a kernel that no gate judged."""
    return {
        "spills": figures.vgpr_spills > 0,
        "scratch": figures.scratch_bytes > 0,
        "can't be launched": figures.occupancy_waves == 0,
    }


def _parity(inputs: Inputs) -> Table:
    worst_first = list(STATUSES)
    rows: list[list[Cell]] = []
    details: dict[int, list[str]] = {}
    for case in sorted(inputs.parity.cases if inputs.parity else (), key=lambda case: worst_first.index(case.outcome)):
        if case.text:
            details[len(rows)] = case.text.splitlines()
        rows.append([f"{STATUSES[case.outcome]} {case.outcome}", case.upstream, case.name, case.message])
    return Table(
        id="parity",
        short="Parity",
        title="Parity with upstream's codegen",
        columns=columns("status", "upstream", "case", "message", status="status", upstream="choice", message="prose"),
        rows=rows,
        details=details,
    )


def _ledger(inputs: Inputs, cases: Iterable[Tested]) -> Table:
    used = Counter(one.case.ledger.name for one in cases if one.case.ledger and one.case.status == KNOWN_DEFECT)
    rows: list[list[Cell]] = []
    details: dict[int, list[str]] = {}
    for entry in sorted(inputs.ledger.entries, key=attrgetter("expires")):
        days = (entry.expires - inputs.today).days
        status = "✗ expired" if days < 0 else "! expires soon" if days <= 30 else "✓ believed"
        links = [entry.link] if entry.link else []
        details[len(rows)] = [entry.place, *links, *(f"problems: {glob}" for glob in entry.problems)]
        where = [", ".join(names).replace("*", "all") for names in (entry.upstreams, entry.archs)]
        rows.append(
            [
                status, entry.name, " or ".join(entry.outcomes), *where, used[entry.name], str(entry.expires), days,
                entry.reason,
            ]
        )  # fmt: skip
    return Table(
        id="ledger",
        short="Ledger",
        title="Ledger of known defects",
        columns=columns(
            "status", "entry", "outcome", "upstreams", "archs", "cases here", "expires", "days left", "reason",
            status="status", entry="name", cases_here="number", days_left="number", expires="word", reason="prose",
            outcome="choice", archs="choice", upstreams="choice",
        ),
        rows=rows,
        details=details,
    )  # fmt: skip
