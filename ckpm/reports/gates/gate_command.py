"""``ckpm gate`` and ``ckpm accept``: compare a built library with its baseline, or make it the baseline.

Each gate reads figures of subjects (kernels, problems) from the library and the files beside it, and compares them
with its own baseline file. The verdict is over the rows of all gates.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import os
import shlex
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from ckpm.base import junit
from ckpm.base.display import show
from ckpm.base.errors import InconclusiveError, UsageError
from ckpm.base.outputs import refuse_inputs
from ckpm.base.paths import INSTALLED
from ckpm.base.results import LIBRARY_SHA256
from ckpm.matrix.dialects import check_built_arch
from ckpm.matrix.options import DEFAULT_ARCH, add_library_options
from ckpm.reports.gates import baseline
from ckpm.reports.gates.baseline import Baseline, Commands, accept, complete
from ckpm.reports.gates.budgets import BuiltLibrary, read_budgets
from ckpm.reports.gates.comparing import compare, read_thresholds
from ckpm.reports.gates.library_gates import DECODE, JudgedLibrary, gated_library
from ckpm.reports.junit import write_gate
from ckpm.reports.verdicts import BASELINES, CANDIDATE, EMULATED, STATIC, SUITES, Gate, VerdictRow, demand


def add_gate_options(gate: argparse.ArgumentParser) -> None:
    _add_options(gate)
    gate.add_argument("--output", type=Path, metavar="FILE", help="the result (default: gate.json beside the manifest)")
    gate.add_argument("--history", action="store_true", help="list when and why accepted figures changed instead")
    gate.set_defaults(run=lambda args: run_history(args) if args.history else run_gate(args))


def add_accept_options(accept: argparse.ArgumentParser) -> None:
    _add_options(accept)
    accept.add_argument("--reason", required=True, metavar="TEXT", help="why these figures are right, for the history")
    kept = accept.add_mutually_exclusive_group()
    kept.add_argument("--replace", action="store_true", help="also a baseline of another selection, with all its rows")
    kept.add_argument("--partial", action="store_true", help="only the built kernels' rows, of the static gate")
    accept.set_defaults(run=run_accept)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--arch", default=DEFAULT_ARCH, help="(default: %(default)s)")
    add_library_options(parser)
    parser.add_argument(
        "--family",
        default=None,
        metavar="NAMES",
        help=f"family of the built library (default: batch_prefill), or {DECODE}",
    )
    parser.add_argument("--work", type=Path, default=Path(), help="folder that holds build/ (default: here)")
    parser.add_argument("--only", choices=(EMULATED, STATIC, SUITES), help="one gate instead of all")
    parser.add_argument(
        "--baselines", type=Path, default=baseline.FOLDER, metavar="FOLDER", help="(default: reports/baselines)"
    )


def run_gate(args: argparse.Namespace) -> None:
    """Judge a library, and write the result whatever the verdict."""
    judged = _read_judged(args)
    output = args.output or judged.inputs[0].with_name("gate.json")
    junit.clear(output, *judged.inputs)
    names, identity = _chosen(args, judged), judged.identity
    complete(identity, args.baselines)
    files = {name: baseline.path_of(identity, name, args.baselines) for name in names}
    refuse_inputs(output, files.values())
    rows: list[VerdictRow] = []
    provenance = {**identity, **_candidate(judged, output)}
    if args.baselines.resolve() != baseline.FOLDER.resolve():
        provenance[BASELINES] = str(args.baselines)
    for name, file in files.items():
        try:
            accepted = baseline.read(file, judged.commands)
            kernels = judged.kernels if name == STATIC else None
            baseline.demand_same(accepted, identity, file, kernels, judged.commands)
            rows += judge(name, judged, accepted)
        except InconclusiveError as error:
            row = VerdictRow(
                gate=name, subject="library", metric="comparison", verdict="not comparable", note=str(error)
            )
            gate = Gate.of([*rows, row], provenance)
            write_gate(gate, output)  # the report must show it
            if gate.verdict == "regressed":  # a gate before this one
                demand(gate, output)
            raise
        provenance[f"baseline_{name}"] = f"accepted for: {accepted.facts.get('reason', 'no reason')}"
        if identity["upstream"] == baseline.CHECKOUT:
            provenance[f"baseline_{name}_of"] = accepted.facts["upstream_identity"]
    left_out = {f"left_out_{name}": why for name, why in judged.left_out.items()}
    gate = Gate.of(rows, {**provenance, **left_out})
    write_gate(gate, output)
    show(f"{gate.summary()}; see {output}")
    for name, why in judged.left_out.items():
        show(f"  left out: the {name} gate: {why}")
    improved = [row for row in gate.rows if row.verdict == "improved"]
    for row in improved:
        show(f"  {row}")
    if improved and not gate.failing:
        show(f"Accept the improvement, or a later loss of it goes unnoticed: {judged.commands.accept}")
    if gate.verdict != "regressed" and any(row.verdict == "missing" for row in gate.failing):
        show(f"What the baseline lacks is judged after it was accepted: {judged.commands.accept}")
    demand(gate, output)


def _candidate(judged: JudgedLibrary, output: Path) -> dict[str, str]:
    """The judged library's place, from the gate's file, and its sha256. None of the decode kernels."""
    if judged.budgeted is None:
        return {}
    library = os.path.relpath(judged.inputs[0].with_name(judged.budgeted.library), output.parent)
    return {CANDIDATE: library, f"{CANDIDATE} {LIBRARY_SHA256}": judged.budgeted.library_sha256}


def judge(gate: str, judged: JudgedLibrary, accepted: Baseline) -> tuple[VerdictRow, ...]:
    """Compare each figure of a gate with the baseline, then list the figures beyond a budget."""
    thresholds, measured = read_thresholds(gate), judged.figures[gate]()
    rows = compare(gate, accepted.figures, measured.figures, thresholds, measured.notes)
    if gate != STATIC or judged.budgeted is None:
        return rows
    keys = {key.name: key for key in judged.budgeted.keys(tuple(measured.figures))}
    built = BuiltLibrary(**{name: judged.identity[name] for name in ("arch", "upstream", "toolchain")})
    today = datetime.datetime.now(datetime.UTC).date()
    return (*rows, *read_budgets(thresholds).rows(keys, measured.figures, thresholds, built=built, today=today))


def run_accept(args: argparse.Namespace) -> None:
    """Store the library's figures as the baseline."""
    if INSTALLED and args.baselines == baseline.FOLDER:
        raise UsageError(
            f"{baseline.FOLDER} belongs to the installed ckpm, whose next version replaces it. "
            "Choose a folder of your own with --baselines FOLDER, here and for the gate."
        )
    if not args.reason.strip():
        raise UsageError("a baseline is accepted with a reason: --reason TEXT.")
    judged = _read_judged(args)
    names, identity = [STATIC] if args.partial else _chosen(args, judged), judged.identity
    measured = {name: judged.figures[name]().figures for name in names}  # before the first is stored
    with baseline.hold_baselines(identity, args.baselines):
        if args.partial:
            file = baseline.path_of(identity, STATIC, args.baselines)
            accepted, own = baseline.read(file, judged.commands), measured[STATIC]
            measured = {STATIC: baseline.merge(accepted, own, identity, file, judged.commands)}
            identity = {name: value for name, value in accepted.facts.items() if name != "reason"}
            show(f"{len(own)} of {len(accepted.figures)} kernels, the others are as they were:")
        others = baseline.others_selection(identity, measured, args.baselines)
        if not args.replace:
            baseline.demand_selection(others, measured, identity, judged.commands)
        paths = accept(identity, measured, args.reason, args.baselines)
    show("\n".join((*others, *map(str, paths))))


def run_history(args: argparse.Namespace) -> None:
    """Print a line for each accepted baseline of each gate, and below it the metrics whose sums it changed."""
    judged = _read_judged(args)
    complete(judged.identity, args.baselines)
    accepted = baseline.read_history(baseline.history_of(judged.identity, args.baselines))
    for name in _chosen(args, judged):
        lines = [line for line in accepted if line.gate == name]
        changes = _changes(lines)
        for at, line in enumerate(lines):
            show(f"{line.date} {name}: {line.subjects} subjects: {line.reason}")
            for text in changes.get(at, ()):
                show(f"  {text}")


def _changes(lines: Sequence[baseline.Acceptance]) -> dict[int, list[str]]:
    """Changes of the metrics' sums, by number of the history's line."""
    changes: dict[int, list[str]] = {}
    for metric in dict.fromkeys(metric for line in lines for metric in line.sums):
        having = [(number, line.sums[metric]) for number, line in enumerate(lines) if metric in line.sums]
        for (_, before), (at, after) in pairwise(having):
            if before != after:
                changes.setdefault(at, []).append(f"{metric}: {before:g} -> {after:g}")
    return changes


def _read_judged(args: argparse.Namespace) -> JudgedLibrary:
    """Read the library or the decode kernels that the options name."""
    check_built_arch(args.arch)
    kind = args.family
    if kind == DECODE:
        from ckpm.reports.gates import decode  # only here: NumPy and the emulator

        judged = decode.built(args.arch, args.work)
    else:
        judged = gated_library(args.arch, args.upstream, kind, args.work)
    return dataclasses.replace(judged, commands=_repeat_options(args, judged.commands))


def _repeat_options(args: argparse.Namespace, commands: Commands) -> Commands:
    """The commands with the other options of the call."""
    work = "" if args.work == Path() else f" --work {shlex.quote(str(args.work))}"
    only = f" --only {args.only}" if args.only else ""
    folder = "" if args.baselines == baseline.FOLDER else f" --baselines {shlex.quote(str(args.baselines))}"
    return Commands(
        accept=f"{commands.accept}{work}{only}{folder}", build=lambda selection: f"{commands.build(selection)}{work}"
    )


def _chosen(args: argparse.Namespace, judged: JudgedLibrary) -> list[str]:
    """The gates that the library can have, or the gate of ``--only``."""
    names = [name for name in judged.figures if name not in judged.left_out]
    if args.only and args.only not in names:
        raise UsageError(f"--only {args.only}: {judged.left_out.get(args.only, 'these kernels have no such gate')}.")
    return [args.only] if args.only else names
