"""The report's tables as plain data: kernels, axes, cases, faults, figures of gates, parity, ledger."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from operator import attrgetter
from typing import Any

from kernels.codeobject import LIMITS
from reports import budget_text
from reports.case_text import STATUSES
from reports.inputs import Inputs, Tested
from reports.model import cannot_see, estimate, machines
from reports.references import beside
from reports.verdicts import VERDICTS
from reports.work import known_problems

Cell = str | int | float | None
_AXES = (
    "dtype", "mode", "hdim_q", "page_size", "kv_layout", "kv_table", "storage", "page_order", "table_end", "placement",
    "mask", "bias", "logits_soft_cap", "lse", "p_drop", "qscale", "tile_rows",
)  # fmt: skip
_AXIS_VALUES = attrgetter(*_AXES)
_GATE_SYMBOLS = dict(zip(VERDICTS, "✗✗✗?▼✓", strict=True))
_NOT_IN_TEXT = "the text is left out to keep this report small; read it in "
TEXT_BUDGET = 1_500_000  # characters of case texts in one report, and as many of faults


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """``kind``: number, status (begins with a symbol), choice (few values), word, name, kernel, prose or text."""

    name: str
    kind: str = "text"


@dataclass(frozen=True, slots=True, kw_only=True)
class Folded:
    """Lines that are read when wanted."""

    title: str
    lines: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows with the worst first. ``details`` are further lines of a row, by the row's number."""

    id: str
    title: str
    columns: tuple[Column, ...]
    rows: Sequence[Sequence[Cell]]
    details: Mapping[int, Sequence[str]] = field(default_factory=dict)
    note: str = ""
    short: str = ""  # the title in the navigation; the title itself if there is none
    folded: tuple[Folded, ...] = ()


def tables(inputs: Inputs) -> tuple[Table, ...]:
    """All tables in the order of the report. An empty one stays: that there is nothing is a finding, too."""
    worst_first = list(STATUSES)
    cases = sorted(inputs.cases, key=lambda one: worst_first.index(one.told.status))
    return (
        _kernels(inputs),
        _axes(cases),
        _cases(cases),
        _faults(cases),
        _model(inputs),
        _figures(inputs),
        _references(inputs),
        _parity(inputs),
        _ledger(inputs, cases),
    )


def _columns(*names: str, **kinds: str) -> tuple[Column, ...]:
    return tuple(Column(name=name, kind=kinds.get(name.replace(" ", "_"), "text")) for name in names)


def _kernels(inputs: Inputs) -> Table:
    found: list[tuple[list[Cell], list[str]]] = []
    for library in inputs.libraries:
        judged = {arch: budget_text.static_rows(inputs, library, arch) for arch in library.manifest["archs"]}
        for name, kernel in library.manifest["kernels"].items():
            for arch, figures in kernel["archs"].items():
                rows = judged.get(arch, {}).get(name, [])
                verdict = min((row.verdict for row in rows), key=VERDICTS.index, default="")
                beyond = budget_text.beyond_budget(rows)
                remarks = (
                    budget_text.excesses(beyond) if rows else [word for word, true in _remarks(figures).items() if true]
                )
                cells: list[Cell] = [
                    f"{_GATE_SYMBOLS[verdict]} {verdict}" if verdict else "○ no gate", name, arch, library.upstream,
                    figures["vgpr"], figures["agpr"], figures["sgpr"], figures["vgpr_spills"], figures["sgpr_spills"],
                    figures["lds_bytes"], figures["scratch_bytes"], figures["occupancy_waves"],
                    figures.get("text_bytes"), "; ".join(remarks),
                ]  # fmt: skip
                found.append((cells, [*(f"{row.metric}: {row.note}" for row in beyond), *budget_text.hot_loop(rows)]))
    found.sort(key=lambda pair: _severity(str(pair[0][0])))
    numbers = ("VGPR", "AGPR", "SGPR", "V spills", "S spills", "LDS", "scratch", "waves", "code")
    limits = "; ".join(
        f"{arch}: {limit.vgprs} VGPR (AGPR included), {limit.lds_bytes:,} bytes of LDS, {limit.waves} waves a SIMD"
        for arch, limit in LIMITS.items()
        if any(cells[2] == arch for cells, _ in found)
    )
    kinds = {name.replace(" ", "_"): "number" for name in numbers}
    return Table(
        id="kernels",
        short="Kernels",
        title="Kernels and their resources",
        columns=_columns(
            "static gate", "kernel", "arch", "upstream", *numbers, "beyond its budget",
            static_gate="status", kernel="kernel", arch="choice", upstream="choice", beyond_its_budget="prose", **kinds,
        ),
        rows=[cells for cells, _ in found],
        details={at: lines for at, (_, lines) in enumerate(found) if lines},
        note=f"Hardware: {limits}. LDS is bytes a workgroup, scratch bytes a lane, waves those of a SIMD, code bytes; "
        "S spills go to VGPR lanes, V spills to memory. A kernel's details are its hot loop, and why it is excused "
        "from a budget." if limits else "",
        folded=(
            Folded(title="Budgets", lines=budget_text.limits(inputs)),
            Folded(title="Who is excused from them, until when", lines=budget_text.excuses(inputs)),
        ) if found else (),
    )  # fmt: skip


def _remarks(figures: Mapping[str, Any]) -> Mapping[str, bool]:
    """What strikes about a kernel that no gate judged."""
    return {
        "spills": figures["vgpr_spills"] > 0,
        "scratch": figures["scratch_bytes"] > 0,
        "can't be launched": figures["occupancy_waves"] == 0,
    }


def _severity(status: str) -> int:
    """The worst verdict first; what no gate judged comes last."""
    word = status.partition(" ")[2]
    return VERDICTS.index(word) if word in VERDICTS else len(VERDICTS)


def _axes(cases: Iterable[Tested]) -> Table:
    counts: Counter[tuple[str, str, object, str]] = Counter()
    for one in cases:
        if problem := known_problems().get(one.case.name):
            counts.update(zip(repeat(one.suite), _AXES, _AXIS_VALUES(problem), repeat(one.told.status)))
    by_value: defaultdict[tuple[str, str, str], Counter[str]] = defaultdict(Counter)
    for (suite, axis, value, status), count in counts.items():
        by_value[suite, axis, _axis_value(axis, value)][status] += count
    statuses = list(reversed(STATUSES))
    rows: list[list[Cell]] = []
    for (suite, axis, text), found in by_value.items():
        worst = next(status for status in STATUSES if found[status])
        rows.append(
            [
                f"{STATUSES[worst]} {worst}", suite, axis, text, found.total(),
                *(found[status] for status in statuses),
            ]
        )  # fmt: skip
    worst_first = {f"{symbol} {status}": at for at, (status, symbol) in enumerate(STATUSES.items())}
    rows.sort(key=lambda row: worst_first[str(row[0])])
    return Table(
        id="axes",
        short="Axes",
        title="Correctness by suite and axis",
        columns=_columns(
            "worst", "suite", "axis", "value", "cases", *statuses,
            worst="status", suite="choice", axis="choice", cases="number",
            **{status.replace(" ", "_"): "number" for status in statuses},
        ),
        rows=rows,
        note="Each case counts once in every axis. Skipped: the library has no kernel for the problem.",
    )  # fmt: skip


def _axis_value(axis: str, value: object) -> str:
    if axis == "tile_rows" and not value:
        return "any"
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def _cases(cases: Sequence[Tested]) -> Table:
    rows: list[list[Cell]] = []
    for one in cases:
        library, suite, case, found = one.library, one.suite, one.case, one.told
        used = found.tolerance_used
        rows.append(
            [
                f"{STATUSES[found.status]} {found.status}", case.name, case.message or found.entry,
                # JSON has no infinity; the text says it
                float(f"{used:.3g}") if used is not None and math.isfinite(used) else None,
                round(case.seconds, 3), suite, library.label, found.kernel,
            ]
        )  # fmt: skip
    return Table(
        id="cases",
        short="Cases",
        title="Cases",
        columns=_columns(
            "status", "case", "message or ledger entry", "of tolerance", "seconds", "suite", "library", "kernel",
            status="status", library="choice", suite="choice", case="name", kernel="kernel", of_tolerance="number",
            seconds="number", message_or_ledger_entry="prose",
        ),
        rows=rows,
        details=_texts(cases),
        note="Of tolerance: the largest error over what is allowed there. Seconds: of the case on this machine.",
    )  # fmt: skip


def _texts(cases: Sequence[Tested]) -> dict[int, list[str]]:
    """Texts of the cases as lines, in their order, until the budget is spent; faults have a table of their own.

    Passed cases without a remark have none: their row says everything. A text that is left out is replaced by the
    name of the file that holds it.
    """
    left = TEXT_BUDGET
    found: dict[int, list[str]] = {}
    seen: set[str] = set()
    for at, one in enumerate(cases):
        if one.told.status in ("passed", "skipped"):
            continue
        lines = [line for line in one.case.text.splitlines() if not line.startswith("fault: ")]
        # lines that other cases have, too, are stored once
        cost = sum(len(line) for line in lines if line not in seen) + 8 * len(lines)
        if cost > left:
            lines = [_NOT_IN_TEXT + str(one.library.results_file(one.suite))]
        else:
            left -= cost
            seen.update(lines)
        found[at] = lines
    return found


def _faults(cases: Iterable[Tested]) -> Table:
    rows: list[list[Cell]] = []
    details: dict[int, list[str]] = {}
    left = TEXT_BUDGET
    for one in cases:
        library, suite, case, found = one.library, one.suite, one.case, one.told
        if found.fault is None:
            continue
        lines = [line for name, value in found.fault.items() for line in _field(name, value)]
        cost = sum(map(len, lines))
        left -= cost
        details[len(rows)] = lines if left > 0 else [_NOT_IN_TEXT + str(library.results_file(suite))]
        rows.append(
            [
                f"{STATUSES[found.status]} {found.status}", case.name, _where(found.fault),
                str(found.fault.get("text", "")), _hex(found.fault.get("pc")), found.entry,
                str(found.fault.get("kind", "")), library.label, found.kernel,
            ]
        )  # fmt: skip
    return Table(
        id="faults",
        short="Faults",
        title="Faults",
        columns=_columns(
            "status", "case", "what happened", "instruction", "pc", "ledger entry", "kind", "library", "kernel",
            status="status", library="choice", kind="choice", case="name", kernel="kernel", ledger_entry="choice",
            instruction="name", what_happened="prose", pc="word",
        ),
        rows=rows,
        details=details,
        note="A launch that a fault ended: the instruction at fault, the lane, the address and the nearest allocation.",
    )  # fmt: skip


def _where(fault: Mapping[str, Any]) -> str:
    """The fault's first line and the nearest allocation, without what the other columns say."""
    lines = [line.strip() for line in str(fault.get("message", "")).splitlines()]
    return "; ".join(line for line in lines if line and not line.startswith(("kernel ", "pc ")))


def _field(name: str, value: Any) -> list[str]:
    if name in ("address", "pc", "base"):
        return [f"{name}: {_hex(value)}"]
    if isinstance(value, dict):
        return [f"{name} {line}" for inner, found in value.items() for line in _field(inner, found)]
    if name in ("message", "kernel", "text") or value == "":  # the row tells them
        return []
    return [f"{name}: {value}"]


def _hex(value: Any) -> str:
    return f"{value:#x}" if isinstance(value, int) else str(value if value is not None else "")


def _model(inputs: Inputs) -> Table:
    rows: list[list[Cell]] = []
    known = machines()
    for library in inputs.libraries:
        for one in library.measured.problems if library.measured else ():
            machine = known.get(library.measured.provenance["arch"]) if library.measured else None
            if machine is None:
                continue
            guess = estimate(one, machine)
            rows.append(
                [
                    one.problem, library.label, guess.bound, round(guess.workgroup_cycles),
                    round(guess.steady_cycles), round(guess.grid_cycles), round(guess.steady_tflops, 1),
                    round(100 * guess.of_roof, 1), round(guess.intensity, 1), one.counters["instructions"],
                    one.counters["lds_bank_conflicts"], one.compulsory_bytes, one.kernel,
                ]
            )  # fmt: skip
    numbers = (
        "workgroup cycles", "steady cycles", "grid cycles", "TFLOP/s, full GPU", "% of roof", "flop/byte",
        "wave-instructions", "LDS conflict cycles", "bytes at least",
    )  # fmt: skip
    return Table(
        id="model",
        short="Model",
        title="Performance by the emulated gate's model",
        columns=_columns(
            "problem", "library", "bound by", *numbers, "kernel",
            problem="name", library="choice", kernel="kernel", bound_by="choice",
            **{name.replace(" ", "_"): "number" for name in numbers},
        ),
        rows=rows,
        note="Cycles from what the emulator counts: a model, no measurement.",
        folded=(Folded(title="What the model cannot see", lines=cannot_see()),) if rows else (),
    )  # fmt: skip


def _figures(inputs: Inputs) -> Table:
    rows: list[list[Cell]] = []
    left_out = 0
    for file, gate in inputs.gates.items():
        for row in gate.rows:
            if row.gate == "static" and row.verdict == "unchanged" and not row.note:
                left_out += 1
                continue
            ratio = row.candidate / row.baseline if row.baseline and row.candidate is not None else None
            rows.append(
                [
                    f"{_GATE_SYMBOLS[row.verdict]} {row.verdict}", row.gate, row.subject, row.metric, row.unit,
                    row.baseline, row.candidate, None if ratio is None else round(ratio, 4), row.threshold,
                    "" if row.verdict == "unchanged" and row.note.startswith("kernel ") else row.note,
                    str(file.relative_to(inputs.folder)),
                ]
            )  # fmt: skip
    rows.sort(key=lambda row: _severity(str(row[0])))
    return Table(
        id="figures",
        short="Figures",
        title="Figures of the gates",
        columns=_columns(
            "verdict", "gate", "subject", "metric", "unit", "baseline", "candidate", "ratio", "allowed", "note", "file",
            verdict="status", gate="choice", metric="choice", subject="name", baseline="number", candidate="number",
            ratio="number", file="choice", unit="word", note="prose",
        ),
        rows=rows,
        note=f"{left_out} unchanged figures of the static gate are left out; the table of kernels shows them. "
        "What has no baseline is beyond a budget."
        if left_out
        else "",
    )  # fmt: skip


def _references(inputs: Inputs) -> Table:
    rows: list[list[Cell]] = [
        [
            found.subject, found.reference.metric, found.reference.variant, round(found.measured, 4),
            found.reference.value, found.reference.unit, round(found.ratio, 4), found.word, found.reference.label,
            found.reference.source.title, found.reference.source.hardware, found.reference.source.rocm or "not told",
            found.rocm, str(file.relative_to(inputs.folder)),
        ]
        for file, gate in inputs.gates.items()
        for found in beside(gate)
    ]  # fmt: skip
    return Table(
        id="references",
        title="Measured beside published figures",
        columns=_columns(
            "problem", "metric", "of", "measured", "published", "unit", "ratio", "that is", "figure", "document",
            "hardware", "ROCm there", "ROCm here", "file",
            problem="name", metric="choice", of="choice", measured="number", published="number", ratio="number",
            that_is="choice", document="prose", hardware="choice", file="choice",
        ),
        rows=rows,
        note="Of the problems that a GPU of the document's kind was timed on. No verdict follows from them. "
        "python -m reports references lists all figures and what their documents tell.",
    )  # fmt: skip


def _parity(inputs: Inputs) -> Table:
    worst_first = list(STATUSES)
    rows: list[list[Cell]] = []
    details: dict[int, list[str]] = {}
    for case in sorted(inputs.parity.cases if inputs.parity else (), key=lambda case: worst_first.index(case.outcome)):
        if case.text:
            details[len(rows)] = case.text.splitlines()
        rows.append([f"{STATUSES[case.outcome]} {case.outcome}", case.suite, case.name, case.message])
    return Table(
        id="parity",
        short="Parity",
        title="Parity with upstream's codegen",
        columns=_columns("status", "suite", "case", "message", status="status", suite="choice", message="prose"),
        rows=rows,
        details=details,
    )


def _ledger(inputs: Inputs, cases: Iterable[Tested]) -> Table:
    used = Counter(one.told.entry for one in cases if one.told.status == "known defect")
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
        columns=_columns(
            "status", "entry", "outcome", "upstreams", "archs", "cases here", "expires", "days left", "reason",
            status="status", entry="name", cases_here="number", days_left="number", expires="word", reason="prose",
            outcome="choice", archs="choice", upstreams="choice",
        ),
        rows=rows,
        details=details,
    )  # fmt: skip
