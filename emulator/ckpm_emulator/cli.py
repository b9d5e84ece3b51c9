"""The commands of ``ckpm-emulator``.

``run -- PROGRAM`` runs a HIP program on the emulated device. ``coverage`` and ``inspect`` check GPU code without
running it. ``core`` builds the interpreter. ``decode`` is for programs that run.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import gc
import importlib.util
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from ckpm_emulator import program_cache, standalone, toolchain
from ckpm_emulator.entry import demand_writable, ended_by_signals, exit_code, printable
from ckpm_emulator.errors import CheckFailedError, InputError, OutputError, unknown_words
from ckpm_emulator.options import ARCHS, Options, Trace

_AMD = "tinygrad.runtime.autogen.amd"
_PACKAGES = ("tinygrad", "tinygrad.renderer", "tinygrad.runtime", "tinygrad.runtime.autogen")
_OTHERS = tuple(f"{_AMD}.{arch}.{table}" for arch in ("rdna3", "rdna4") for table in ("operands", "ins"))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return 0, or the exit code of its failure. Progress goes to stderr."""
    return exit_code(lambda: _run(_parser().parse_args(arguments)))


class _Parser(argparse.ArgumentParser):
    """A parser without abbreviations of options: a new option never changes the meaning of a line."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, **options)


def _parser() -> argparse.ArgumentParser:
    program = "ckpm-emulator" if Path(sys.argv[0]).name == "ckpm-emulator" else "python -m ckpm_emulator"
    parser = _Parser(prog=program, description="The emulated gfx9 device.")
    commands = parser.add_subparsers(dest="command", required=True)
    cover = commands.add_parser(
        "coverage", help="list the opcodes that files need, or that an arch has, and what lacks"
    )
    subject = cover.add_mutually_exclusive_group(required=True)
    subject.add_argument(
        "files", nargs="*", default=[], type=Path, metavar="FILE", help="library, object, bundle or code object"
    )
    subject.add_argument("--isa", action="store_true", help="all instructions that LLVM has for an arch, by encoding")
    cover.add_argument("--arch", choices=list(ARCHS), default=Options.arch, help="of --isa (default: %(default)s)")
    cover.add_argument("-v", "--verbose", action="store_true", help="every opcode and modifier with its count")
    cover.set_defaults(run=_coverage)
    look = commands.add_parser("inspect", help="each kernel's hot loop, missing waits and missing wait states, as JSON")
    look.add_argument("file", type=Path, metavar="FILE", help="library, object, bundle or code object")
    look.add_argument("--arch", choices=list(ARCHS), required=True, help="of which code objects")
    look.set_defaults(run=_inspect)
    _add_run(commands)
    decode = commands.add_parser("decode", help="a code object (standard input) to a program for the core (output)")
    decode.add_argument("--hazards", action="store_true", help="with missing wait states as faults")
    decode.set_defaults(run=_decode)
    decode.add_argument("--function", type=functools.partial(int, base=16), metavar="ADDRESS", help="this one alone")
    core = commands.add_parser("core", help="compile the interpreter now, and not when a device is first asked for")
    core.add_argument("--plain", action="store_true", help="the one without short ways, to compare with")
    core.set_defaults(run=_core)
    return parser


def _add_run(commands: Any) -> None:
    run = commands.add_parser("run", help="run a HIP program, unmodified, on the emulated device")
    run.add_argument("--arch", choices=list(ARCHS), help="default: what the program has code for, else gfx950")
    run.add_argument("--checks", default="", metavar="NAMES", help=f"all, or some of {','.join(standalone.CHECKS)}")
    run.add_argument("--cus", type=_number, metavar="N", help="compute units that it shows; default: a board's")
    run.add_argument("--threads", type=_number, default=0, metavar="N", help="of the host; default: one a processor")
    run.add_argument(
        "--srd-range-rule", choices=["on", "off"], help="a buffer's whole range must be mapped; default: on for gfx950"
    )
    run.add_argument("--expect-faults", action="store_true", help="a program that goes on after a fault may end with 0")
    run.add_argument(
        "--max-instructions", type=_count, default=0, metavar="N", help="a wave that executes more is a fault"
    )
    run.add_argument("--kernel", default="", metavar="TEXT", help="check launches of kernels with this in their name")
    run.add_argument("--launch-skip", type=_count, default=0, metavar="N", help="but for the first N of them")
    run.add_argument("--launch-count", type=_count, default=0, metavar="N", help="and only N; default: all")
    run.add_argument(
        "--suppressions", type=Path, metavar="FILE", help="lines of a check and a part of the kernel's name: no check"
    )
    run.add_argument("--error-exitcode", type=_exit_code, default=0, metavar="N", help="after a report of a check")
    run.add_argument("--quiet", action="store_true", help="report no calls that fail: the program provokes them")
    run.add_argument("--trace", type=Path, metavar="FILE", help="write the instructions of each launch's first wave")
    run.add_argument("--counters", type=Path, metavar="FILE", help="counts of all launches as JSON, at the end")
    run.add_argument("--root", type=Path, metavar="FOLDER", help="the program is from the distribution installed there")
    run.add_argument("program", nargs=argparse.REMAINDER, metavar="-- PROGRAM [ARGUMENT...]")
    run.set_defaults(run=_run_program)


def _within(text: str, least: int, most: int) -> int:
    with contextlib.suppress(ValueError):
        if least <= (number := int(text)) <= most:
            return number
    raise argparse.ArgumentTypeError(f"{text}: give {least} to {most}")


_number = functools.partial(_within, least=1, most=1024)  # compute units, threads of the host: no machine has more
_count = functools.partial(_within, least=0, most=(1 << 63) - 1)
_exit_code = functools.partial(_within, least=1, most=255)


def _suppressions(file: Path) -> tuple[str, ...]:
    """The lines of a file without comments: a check, and a part of the kernel's name or of the report."""
    lines = [line.strip() for line in file.read_text().splitlines()]
    lines = [line for line in lines if line and not line.startswith("#")]
    checks = [check for check in standalone.CHECKS if check not in standalone.OF_PROCESS]
    for line in lines:
        check, _, part = line.partition(" ")
        if check not in checks or ";" in part:
            raise InputError(
                f"{file}: {line!r} has no check of {', '.join(checks)} before a blank, or a ';'", kind="suppressions"
            )
    return tuple(lines)


def _run(chosen: argparse.Namespace) -> int:
    if sys.stdout is None and chosen.run is not _run_program:  # a program may do without
        raise OutputError("standard output: it is closed. Send it to a file, or to /dev/null.")
    code: int = chosen.run(chosen)
    return code


def _run_program(chosen: argparse.Namespace) -> int:
    command = chosen.program[1:] if chosen.program[:1] == ["--"] else chosen.program
    if not command:
        raise InputError(
            "no program was named: python -m ckpm_emulator run [OPTIONS] -- PROGRAM [ARGUMENT...]", kind="program"
        )
    arch = chosen.arch or standalone.arch_of(command) or Options.arch
    options = Options(arch=arch, cu_count=chosen.cus, threads=chosen.threads).replace(**_checks(chosen.checks))
    for file in filter(None, (chosen.trace, chosen.counters)):
        demand_writable(file)
    if chosen.trace:
        options = options.replace(trace=Trace(file=str(chosen.trace.absolute())))
    if chosen.srd_range_rule:
        options = options.replace(srd_range_rule=chosen.srd_range_rule == "on")
    options = options.replace(
        max_instructions=chosen.max_instructions,
        checked_kernel=chosen.kernel,
        launch_skip=chosen.launch_skip,
        launch_count=chosen.launch_count,
        suppressions=_suppressions(chosen.suppressions) if chosen.suppressions else (),
    )
    run = standalone.Run(
        command=command,
        options=options,
        counters=chosen.counters,
        root=chosen.root,
        faults_expected=chosen.expect_faults,
        leaks_fail="leaks" in chosen.checks.split(","),
        error_exit=chosen.error_exitcode,
        quiet=chosen.quiet,
    )
    standalone.execute(run)
    return 0


def _checks(chosen: str) -> dict[str, bool]:
    """Options by the names of checks."""
    names = [name for name in chosen.split(",") if name]
    if "all" in names:
        names = [*(name for name in standalone.CHECKS if name not in standalone.ALLOWED), *names]
        names.remove("all")
    if unknown := [name for name in names if name not in standalone.CHECKS]:
        raise unknown_words("check", unknown, ("all", *standalone.CHECKS))
    return {"lds_bounds": False, **dict.fromkeys(names, True)}


def _decode(chosen: argparse.Namespace) -> int:
    gc.disable()  # nothing of a process that ends at once is garbage worth a search
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # NumPy starts them when it is imported
    import_tables_only()
    code = sys.stdin.buffer.read()
    if not chosen.hazards:
        sys.stdout.buffer.write(program_cache.program(code, chosen.function))
        return 0
    from ckpm_emulator.inspection.early import too_early  # only here: others don't wait for its tables

    sys.stdout.buffer.write(program_cache.program(code, chosen.function, judge=too_early))
    return 0


class _Absent(ModuleType):
    """An empty module in place of tables whose classes are listed among the formats, but never used."""

    OPERANDS: Mapping[Any, Any] = {}

    def __getattr__(self, name: str) -> None:
        return None


def import_tables_only() -> None:
    """Restrict this process's imports of tinygrad to the tables of CDNA, unless it already has more.

    Their import brings tinygrad's tensors and its tables of other GPUs, too, which takes as long as decoding a kernel.
    """
    if "tinygrad" in sys.modules:
        return
    for name in _PACKAGES:
        spec = importlib.util.find_spec(name)
        if spec is None:  # the import itself reports what is missing
            return
        sys.modules[name] = importlib.util.module_from_spec(spec)  # its submodules are found, its own code is not run
    for name in _OTHERS:
        sys.modules[name] = _Absent(name)


def _inspect(chosen: argparse.Namespace) -> int:
    from ckpm_emulator.inspection import inspect as inspection  # only here: it imports the decoder's tables

    with ended_by_signals():
        print(inspection.as_json(inspection.inspect(chosen.file, chosen.arch)))
    return 0


def _core(chosen: argparse.Namespace) -> int:
    print(toolchain.library(plain=chosen.plain))
    return 0


def _coverage(chosen: argparse.Namespace) -> int:
    if chosen.isa:
        from ckpm_emulator.inspection import isa  # as below

        print(isa.report(chosen.arch))
        return 0
    from ckpm_emulator.inspection import coverage  # only here: it imports the decoder's tables

    covered = [coverage.cover(path) for path in chosen.files]
    print(printable(coverage.report(covered, verbose=chosen.verbose)))
    return CheckFailedError.exit_code if any(file_coverage.missing for file_coverage in covered) else 0
