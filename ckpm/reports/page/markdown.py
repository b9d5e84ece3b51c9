"""The summary for a pull request, in GitHub's Markdown: the verdict, the reasons against a pass, counts."""

from __future__ import annotations

from ckpm.base.display import code_span
from ckpm.base.display import markdown as shown
from ckpm.reports.gates.references import compare_with_references
from ckpm.reports.page.figure_tables import decode
from ckpm.reports.page.inputs import ReportInputs
from ckpm.reports.page.overall import SYMBOLS, Overall, count_status
from ckpm.reports.page.report_table import STATUSES
from ckpm.reports.page.timing_tables import rows_of_versions

_SHOWN = 15  # of each list: a comment of GitHub ends at 65,536 characters


def markdown(inputs: ReportInputs, verdict: Overall) -> str:
    """The summary, the verdict first."""
    lines = [f"## {SYMBOLS[verdict.verdict]} CK FMHA batch prefill: {shown(verdict.headline)}", ""]
    lines += ["| verdict | check | result |", "| --- | --- | --- |"]
    lines += [f"| {SYMBOLS[c.verdict]} {c.verdict} | {shown(c.name)} | {shown(c.text)} |" for c in verdict.checks]
    failing = [
        f"{tested.case.outcome}: {code_span(tested.case.name)} on {shown(tested.library.label)}: "
        f"{shown(tested.case.message)}"
        for tested in inputs.cases
        if tested.case.outcome in ("failed", "error")
    ]
    if inputs.parity:
        failing += [
            f"{case.outcome}: parity: {shown(case.name)}: {shown(case.message)}" for case in inputs.parity.failing
        ]
    figures = [f"{shown(str(row))} ({shown(row.gate)})" for gate in inputs.gates.values() for row in gate.failing]
    lines += [*_list("Cases that are not in order", failing), *_list("Figures that keep the gate from a pass", figures)]
    published = [
        shown(str(comparison)) for gate in inputs.gates.values() for comparison in compare_with_references(gate)
    ]
    lines += _list("Measured beside published figures: not a verdict", published)
    lines += _versions(inputs)
    lines += _decode(inputs)
    lines += _counts(inputs)
    soon = [
        f"{code_span(entry.name)} until {entry.expires}: {shown(entry.reason)}"
        for entry in inputs.ledger.entries
        if (entry.expires - inputs.today).days <= 30
    ]
    lines += _list("Ledger entries that end within 30 days", soon)
    return "\n".join(lines) + "\n"


def _versions(inputs: ReportInputs) -> list[str]:
    """The documents' tables of V2 and V3, if one of their rows was modelled or measured."""
    rows = rows_of_versions(inputs)
    if not any(row.modelled or row.measured for row in rows):
        return []
    lines = ["", "### V3 over V2, as modelled, as measured and as published"]
    for about in dict.fromkeys(row.about for row in rows):
        lines += ["", f"{shown(about)}:", ""]
        lines.append("| row | published, of TFLOP/s | modelled, of cycles | error | on a GPU | error |")
        lines.append("| --- | ---: | ---: | ---: | ---: | ---: |")
        for row in rows:
            if row.about == about:
                modelled, measured = (f"{pair.ratio:.2f}" if pair else "" for pair in (row.modelled, row.measured))
                label = f"{row.label} ({row.assumed})" if row.assumed else row.label
                cells = (shown(label), f"{row.published.ratio:.2f}", modelled, row.error_text(row.modelled))
                lines.append(f"| {' | '.join((*cells, measured, row.error_text(row.measured)))} |")
    return lines


def _decode(inputs: ReportInputs) -> list[str]:
    """The decode kernels' table, if a gate judged them."""
    table = decode(inputs)
    if not table.rows:
        return []
    lines = ["", f"### {table.title}", "", f"| {' | '.join(column.name for column in table.columns)} |"]
    lines.append("|" + "".join(" ---: |" if column.kind == "number" else " --- |" for column in table.columns))
    for row in table.rows:
        cells = ("" if cell is None else f"{cell:g}" if isinstance(cell, float) else str(cell) for cell in row)
        lines.append(f"| {' | '.join(map(shown, cells))} |")
    return [*lines, "", shown(table.note)]


def _counts(inputs: ReportInputs) -> list[str]:
    if not inputs.libraries:
        return []
    statuses = list(reversed(STATUSES))
    heads = [f"{STATUSES[status]} {status}" for status in statuses]
    lines = ["", "### Libraries", "", f"| library | kernels | with V spills | suite | {' | '.join(heads)} |"]
    lines.append("| --- | ---: | ---: | --- |" + " ---: |" * len(statuses))
    for library in inputs.libraries:
        kernels = library.manifest.kernels
        spilling = sum(any(figures.vgpr_spills for figures in kernel.archs.values()) for kernel in kernels.values())
        for suite in library.suites or ("none run",):
            numbers = [str(count_status(inputs, library, suite)[status]) for status in statuses]
            lines.append(f"| {shown(library.label)} | {len(kernels)} | {spilling} | {suite} | {' | '.join(numbers)} |")
    return lines


def _list(title: str, lines: list[str]) -> list[str]:
    if not lines:
        return []
    rest = [f"- and {len(lines) - _SHOWN} more: see the report"] if len(lines) > _SHOWN else []
    return ["", f"### {title} ({len(lines)})", "", *(f"- {line}" for line in lines[:_SHOWN]), *rest]
