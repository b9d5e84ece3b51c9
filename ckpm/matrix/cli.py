"""The commands about the matrix. They build and download nothing.

Modules that only some commands need are imported by these commands: a list of 23,000 names takes a fifth less time.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ckpm.base.display import show
from ckpm.base.errors import CheckFailedError, UsageError
from ckpm.base.files import write_atomically
from ckpm.base.rows import FORMATS, align, format_rows, table
from ckpm.matrix.dialects import Dialect, dialect, dialect_names
from ckpm.matrix.keys import COLUMNS, Key
from ckpm.matrix.options import add_dialect_options, add_selection_options, dialect_from, selection_from
from ckpm.matrix.selection import Selection, absences, profiles, select, select_some, tiers
from ckpm.matrix.where import compile_where


def add_list_options(parser: argparse.ArgumentParser) -> None:
    add_count_options(parser)
    parser.add_argument("--output", type=Path, default=None, metavar="FILE", help="(default: standard output)")
    parser.set_defaults(run=_list)


def add_count_options(parser: argparse.ArgumentParser) -> None:
    add_selection_options(parser)
    _add_tune(parser)
    parser.add_argument(
        "--sweep", type=Path, default=None, metavar="FILE", help="of a sweep configuration's kernels alone"
    )
    _add_format(parser)
    parser.set_defaults(run=_count)


def add_why_options(parser: argparse.ArgumentParser) -> None:
    add_selection_options(parser)
    _add_tune(parser)
    _add_format(parser)
    parser.add_argument(
        "--compute-units",
        type=int,
        default=None,
        metavar="N",
        help="also if dispatch takes its tile on N compute units",
    )
    parser.add_argument("name", metavar="NAME")
    parser.set_defaults(run=_why)


def add_validate_options(parser: argparse.ArgumentParser) -> None:
    add_dialect_options(parser)
    parser.add_argument("--arch", default=None, help="of --kernel (default: the last that has such kernels)")
    parser.add_argument("--kernel", default=None, metavar="NAME", help="judge this kernel instead of a file")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="(default: %(default)s)")
    parser.add_argument("file", type=Path, nargs="?", metavar="FILE", help="a configuration, JSON or YAML")
    parser.set_defaults(run=_validate)


def add_show_options(parser: argparse.ArgumentParser) -> None:
    add_dialect_options(parser)
    _add_format(parser)
    parser.add_argument("name", metavar="NAME")
    parser.set_defaults(run=_show)


def add_match_options(parser: argparse.ArgumentParser) -> None:
    from ckpm.matrix.problems import commands

    commands.add_match_options(parser)
    parser.set_defaults(run=lambda args: _emit(commands.match(args)))


def add_problems_options(parser: argparse.ArgumentParser) -> None:
    from ckpm.matrix.problems.case import SUITES, TIERS

    parser.add_argument("--suite", default=None, help=f"{', '.join(SUITES)} (default: all)")
    parser.add_argument("--shapes", action="store_true", help="list the tile engine's shapes instead")
    parser.add_argument("--test", default=None, metavar="GLOB", help="with --shapes: glob over the shapes' names")
    parser.add_argument("--tier", default="smoke", help=f"{', '.join(TIERS)} (default: %(default)s)")
    parser.add_argument("--count", action="store_true", help="how many, and an emulator's wave-instructions")
    _add_format(parser)
    parser.set_defaults(run=_problems)


def _add_format(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--format", choices=FORMATS, default="text", help="(default: %(default)s)")


def _list(args: argparse.Namespace) -> None:
    keys = _select_keys(*_selection(args))
    names = "".join(f"{key.name}\n" for key in keys)
    text = format_rows((key.row() for key in keys), args.format, names, COLUMNS)
    if args.output is None:
        _emit(text)
    else:
        write_atomically(args.output, text.encode())


def _selection(args: argparse.Namespace) -> tuple[Dialect, Selection]:
    if args.sweep is None:
        return _tuned_selection(args)
    from ckpm.matrix.configurations.sweeps import sweep_selection

    return sweep_selection(args)


def _count(args: argparse.Namespace) -> None:
    """Print counts by family and arch; 0 has the reason why an arch or the receipt has no kernel.

    A filter that leaves nothing anywhere is an error, as for list.
    """
    chosen, selection = _selection(args)
    reasons = {(arch, family): reason for arch, family, reason in absences(chosen, selection)}
    counts, totals, by_name = [], {}, dict[str, Key]()
    for family in selection.families:
        one_family = replace(selection, families=(family,))
        names: set[str] = set()
        for arch in selection.archs:
            keys = select(chosen, replace(one_family, archs=(arch,)))
            names.update(key.name for key in keys)
            by_name |= {key.name: key for key in keys}
            reason = reasons.get((arch, family), "")
            counts.append({"family": family, "arch": arch, "count": len(keys), "reason": reason})
        # a shard of all archs' kernels differs from a shard of one arch's
        dealt_together = selection.shard and len(selection.archs) > 1
        totals[family] = len(select(chosen, one_family) if dealt_together else names)
    receipt = Selection(
        archs=selection.archs, families=selection.families, receipt=selection.receipt, mask_impl=selection.mask_impl
    )
    if not any(totals.values()) and select(chosen, receipt):
        select_some(chosen, selection)
    text = ""
    if args.format == "text":
        from ckpm.matrix.problems.asked import unasked_values

        notes = "".join(f"note: {line}\n" for line in unasked_values(by_name.values()))
        text = _count_table(selection, counts, totals) + notes
    _emit(format_rows(counts, args.format, text))


def _count_table(selection: Selection, counts: Sequence[Mapping[str, Any]], totals: Mapping[str, int]) -> str:
    """One line a family, one column an arch; ``distinct`` counts a kernel of several archs once."""
    by_place = {(row["family"], row["arch"]): row["count"] for row in counts}
    table = [["family", *selection.archs, "distinct"]]
    for family in selection.families:
        table.append([family, *(str(by_place[family, arch]) for arch in selection.archs), str(totals[family])])
    sums = [sum(by_place[family, arch] for family in selection.families) for arch in selection.archs]
    table.append(["total", *map(str, sums), str(sum(totals.values()))])
    notes = [f"{row['reason']}\n" for row in counts if row["reason"]]
    return align(table, left=1) + "".join(notes)


def _show(args: argparse.Namespace) -> None:
    from ckpm.matrix.explain import find_key, receipts_with
    from ckpm.matrix.problems.serving import serves_every_batch

    family, key = find_key(dialect_from(args), args.name, args.mask)
    row: dict[str, Any] = {
        **key.row(),
        "batch_invariant": serves_every_batch(key),
        "archs": list(family.archs),
        "receipts": list(receipts_with(family, key)),
        "profiles": [name for name, text in profiles().items() if compile_where(text)(key)],
        "tiers": [name for name, texts in tiers().items() if any(compile_where(text)(key) for text in texts)],
    }
    if args.format == "json":
        _emit(json.dumps(row, indent=1) + "\n")
        return
    fields = [{"field": name, "value": _plain(value)} for name, value in row.items()]
    _emit(format_rows(fields, args.format, align([list(field.values()) for field in fields])))


def _add_tune(parser: argparse.ArgumentParser) -> None:
    purpose = "take fwd's tiles of a custom tune configuration"
    parser.add_argument("--tune", type=Path, default=None, metavar="FILE", help=purpose)


def _tuned_selection(args: argparse.Namespace) -> tuple[Dialect, Selection]:
    """The dialect, with the tiles of ``--tune``, and the selection."""
    chosen, selection = selection_from(args)
    if args.tune:
        from ckpm.matrix.configurations.tuned import take_tuned

        chosen = take_tuned(chosen, args.tune)
    return chosen, selection


def _why(args: argparse.Namespace) -> None:
    from ckpm.matrix.explain import why

    chosen, selection = _tuned_selection(args)
    explanation = why(chosen, selection, args.name, args.compute_units)
    if args.format == "json":
        _emit(json.dumps({"selected": not explanation.reasons, **asdict(explanation)}, indent=1) + "\n")
    elif args.format == "csv" and explanation.reasons:
        _emit(format_rows([asdict(reason) for reason in explanation.reasons], "csv"))
    elif args.format == "csv":
        _emit(
            format_rows(
                [{**asdict(axis), "alternatives": _plain(axis.alternatives)} for axis in explanation.axes], "csv"
            )
        )
    elif explanation.reasons:
        lines = [f"{explanation.name}", f"is not in {chosen.name} ({selection.summary()}):"]
        for reason in explanation.reasons:
            label = reason.kind if reason.name in reason.text else f"{reason.kind} {reason.name}"
            lines.append(f"  {label}: {reason.text}")
            lines += [f"    source: {reason.source}"] if reason.source else []
        _emit("\n".join(lines) + "\n")
    else:
        table = [["axis", "value", "other values", "written in"]]
        table += [[axis.name, axis.value, _plain(axis.alternatives) or "-", axis.location] for axis in explanation.axes]
        _emit(
            f"{explanation.name}\nis in {chosen.name} ({selection.summary()}):\n{align(table)}"
            f"receipts that hold it: {_plain(explanation.receipts)}\n"
            + "".join(f"comes with {feature}\n" for feature in explanation.features)
            + "".join(f"upstream's name: {name}\n" for name in explanation.also_written)
        )


def _validate(args: argparse.Namespace) -> None:
    """Judge a file's kernel in every dialect or the named one, or a kernel by name. Errors are a CheckFailedError."""
    from ckpm.matrix.configurations.configuration import read_configuration
    from ckpm.matrix.configurations.report import judge, judge_kernel

    if (args.file is None) == (args.kernel is None):
        raise UsageError("validate: give either a FILE or --kernel NAME.")
    if args.kernel is not None:
        report = judge_kernel(dialect_from(args), args.kernel, args.mask, args.arch)
    elif args.arch is not None:
        raise UsageError("validate FILE: --arch belongs to --kernel; a configuration has its arch.")
    else:
        named = args.dialect is not None or args.upstream is not None
        dialects = [dialect_from(args)] if named else [dialect(name) for name in dialect_names()]
        report = judge(str(args.file), read_configuration(args.file), dialects)
    _emit(json.dumps(report.record(), indent=1) + "\n" if args.format == "json" else report.text())
    if not report.valid:
        raise CheckFailedError(
            f"{report.subject}: {report.summary()}; the report lists what to fix.", kind="configuration"
        )


def _problems(args: argparse.Namespace) -> None:
    """Print names of problems, or all their fields; with ``--count`` figures for each suite."""
    from ckpm.matrix.problems.case import SUITES, wave_instructions
    from ckpm.matrix.problems.commands import list_shapes
    from ckpm.matrix.problems.tables import problems

    if args.shapes:
        _emit(list_shapes(args))
        return
    by_suite = {suite: problems(suite, args.tier) for suite in ((args.suite,) if args.suite else SUITES)}
    if args.count:
        rows = [
            {
                "suite": suite,
                "problems": len(cases),
                "million_wave_instructions": sum(map(wave_instructions, cases)) // 10**6,
            }
            for suite, cases in by_suite.items()
        ]
        _emit(format_rows(rows, args.format, table(rows, left=1)))
    else:
        chosen = [problem for cases in by_suite.values() for problem in cases]
        text = "".join(f"{problem.name}\n" for problem in chosen)
        _emit(format_rows((problem.row() for problem in chosen), args.format, text))


def _select_keys(chosen: Dialect, selection: Selection) -> list[Key]:
    """The selected keys; none, with a message on stderr, if no arch has kernels. Other empty selections are errors."""
    absent = absences(chosen, selection)
    nowhere = len(absent) == len(selection.families) * len(selection.archs)
    keys = select(chosen, selection) if nowhere else select_some(chosen, selection)
    for _, _, reason in absent:
        show(reason, file=sys.stderr)
    return keys


def _plain(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(_plain, value))
    if isinstance(value, bool):
        return str(value).lower()
    return "-" if value is None else str(value)


def _emit(text: str) -> None:
    show(text, end="")
