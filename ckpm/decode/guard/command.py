"""``ckpm guard FILE|KERNEL``: check a Triton kernel's registers, spills and LDS against limits and accepted values."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table as Printed

from ckpm.base.console import console, number
from ckpm.base.display import show
from ckpm.base.errors import CheckFailedError, InputError, UsageError
from ckpm.base.paths import data
from ckpm.decode.guard.bare import budget_of, table_of
from ckpm.decode.guard.candidates import JudgedCandidate, candidate
from ckpm.decode.guard.compiling import configurations, demand_triton, function_of, jit_function, judge
from ckpm.decode.guard.figures import DIRECTIONS
from ckpm.decode.guard.pruning import complaints
from ckpm.decode.guard.ratchet import AcceptedKernel, changes, merge
from ckpm.decode.guard.table import CaseRow, Guarded, GuardedKernels, read_guard_table
from ckpm.matrix.dialects import check_built_arch
from ckpm.matrix.sessions import sessions

OWN = data("reports", "guard.yaml")
_SHOWN = 20  # changes in a message


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "what",
        metavar="FILE|KERNEL",
        help="a Python file with Triton kernels, a table of them (.yaml; its form is in ckpm/decode/guard/table.py), "
        f"or a kernel of {OWN.parent.name}/{OWN.name}",
    )
    parser.add_argument(
        "--arch", default=None, help=f"check this arch only (default: the table's, or {', '.join(sessions().emulated)})"
    )
    parser.add_argument(
        "--signature",
        action="append",
        default=[],
        metavar="TEXT",
        help="Python file only: 'KERNEL: x=*bf16:16, n=i32, BLOCK=64', instead of the comment '# guard:' above it",
    )
    parser.add_argument(
        "--budget",
        default="",
        metavar="TEXT",
        help="limits, Python file only: vgpr=128,vgpr_spills=0,lds_bytes=65536,waves=2",
    )
    parser.add_argument("--accept", default=None, metavar="REASON", help="make these figures the accepted ones")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Compile, print and judge every configuration."""
    if args.accept is not None and (not args.accept.strip() or args.arch):
        raise UsageError("--accept: say why in a few words, and accept all archs at once, without --arch.")
    if args.arch:
        check_built_arch(args.arch)
    table = chosen(args)
    demand_triton()
    outcome = [(guarded, judged_kernel(guarded, args.arch)) for guarded in table.kernels]
    judged = [result for _, cases in outcome for each in cases for result in each]
    if not judged:
        archs = ", ".join(dict.fromkeys(arch for guarded in table.kernels for arch in guarded.archs))
        raise UsageError(f"--arch {args.arch}: {args.what} has no kernel of {args.arch}, only of {archs}.")
    _print(judged)
    for line in (line for result in judged for line in complaints(result)):
        show(line)
    if broken := [line for guarded, cases in outcome for line in verdicts(guarded, cases)]:
        raise CheckFailedError("; ".join(broken), kind="over-budget")
    names = [guarded.name for guarded in table.kernels]
    return _accept(table, judged, names, args.accept) if args.accept else compare(table, judged, names, args.arch)


def chosen(args: argparse.Namespace) -> GuardedKernels:
    """The table to check: of a YAML file, made of a Python file, or our own with only the named kernel."""
    what = args.what
    if what.endswith(".py"):
        archs = (args.arch,) if args.arch else sessions().emulated
        return table_of(Path(what), archs, args.signature, budget_of(args.budget))
    if args.signature or args.budget:
        raise UsageError("--signature and --budget are of a Python file: a table has signature and budget of its own.")
    if what.endswith((".yaml", ".yml")):
        return read_guard_table(Path(what))
    own = read_guard_table(OWN)
    kernels = tuple(kernel for kernel in own.kernels if kernel.name == what)
    if not kernels:
        names = ", ".join(kernel.name for kernel in own.kernels)
        raise UsageError(
            f"'{what}' is neither a Python file nor a table (.yaml) nor a kernel of {OWN.name}, which has {names}."
        )
    return GuardedKernels(file=own.file, accepted=own.accepted, kernels=kernels)


def judged_kernel(guarded: Guarded, arch: str | None) -> list[list[JudgedCandidate]]:
    """Compile each case's configurations on each arch."""
    function = function_of(guarded.file, guarded.function)
    chosen = guarded.configurations or configurations(function)
    if not chosen:
        raise InputError(
            f"{guarded.name}: no autotuner and no configurations: name at least one in the table.", kind="kernel-file"
        )
    arguments = tuple(jit_function(function).arg_names)

    def judge_all(case: CaseRow, arch: str) -> list[JudgedCandidate]:
        variants = [
            candidate(guarded.name, arch, arguments, case.signature, case.constexprs, configuration)
            for configuration in chosen
        ]
        return [judge(function, variant, guarded.budget) for variant in variants]

    return [judge_all(case, target) for case in guarded.cases for target in guarded.archs if arch in (None, target)]


def verdicts(guarded: Guarded, cases: Sequence[Sequence[JudgedCandidate]]) -> list[str]:
    """List what is wrong with a kernel: a case without a configuration that fits, or a bad example that fits."""
    if guarded.breaks_budget:
        return [
            f"{result.candidate.description} fits, but the table marks {guarded.name} with breaks_budget: "
            "correct the table"
            for case in cases
            for result in case
            if result.fits
        ]
    return [
        f"no configuration of {guarded.name} fits its budget: "
        + "; ".join(f"{result.candidate.description}: {', '.join(result.reasons)}" for result in case)
        for case in cases
        if not any(result.fits for result in case)
    ]


def compare(table: GuardedKernels, judged: Sequence[JudgedCandidate], names: Sequence[str], arch: str | None) -> int:
    if not table.accepted.is_file() and table.file.suffix == ".py":
        show(f"{number(len(judged), 'configuration')} judged by the budget alone: --accept REASON keeps their figures")
        return 0
    if not table.accepted.is_file():
        raise CheckFailedError(
            f"{table.accepted}: no accepted figures yet. Accept these: --accept REASON.", kind="unaccepted"
        )
    differences = [
        difference
        for difference in changes(AcceptedKernel.read(table.accepted), judged, names)
        if arch in (None, difference.candidate.arch)
    ]
    if differences:
        more = f"\nand {len(differences) - _SHOWN} more" if len(differences) > _SHOWN else ""
        lines = "\n".join(str(difference) for difference in differences[:_SHOWN])
        raise CheckFailedError(
            f"{number(len(differences), 'figure')} differ from the accepted ones, for better or worse:\n{lines}{more}\n"
            "If that is meant: --accept REASON.",
            kind="unaccepted",
        )
    show(f"{number(len(judged), 'configuration')} as accepted")
    return 0


def _accept(table: GuardedKernels, judged: Sequence[JudgedCandidate], names: Sequence[str], reason: str) -> int:
    import triton

    before = AcceptedKernel.read(table.accepted) if table.accepted.is_file() else None
    accepted = merge(before, judged, names, compiler=f"triton {triton.__version__}", reason=reason)
    accepted.write(table.accepted)
    show(f"{number(len(judged), 'configuration')} accepted: {table.accepted.resolve()}")
    return 0


def _print(judged: Sequence[JudgedCandidate]) -> None:
    printed = Printed("configuration", *DIRECTIONS, "verdict")
    for result in judged:
        numbers = result.figures.numbers() if result.figures else {}
        printed.add_row(
            result.candidate.description,
            *(str(numbers.get(name, "")) for name in DIRECTIONS),
            "fits" if result.fits else "pruned",
        )
    console().print(printed)
