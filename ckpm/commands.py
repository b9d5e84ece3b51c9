"""The table of commands, and functions to run them. A command's module is imported when the command is called."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ckpm import __version__
from ckpm.base import logs
from ckpm.base.display import one_line, show
from ckpm.base.entry import exit_code
from ckpm.base.errors import UsageError, did_you_mean
from ckpm.base.paths import clone_not_read
from ckpm.base.processes import revision
from ckpm.matrix.options import Parser

if TYPE_CHECKING:
    from ckpm.matrix.explain import Explanation


class Command(NamedTuple):
    """A row of the table. ``options`` is ``module:function``: the function adds options to a parser and sets ``run``.

    ``remote`` is a second such function, which lets the command run on many machines.
    """

    purpose: str
    options: str
    remote: str = ""


_GROUPS: Mapping[str, Mapping[str, Command]] = {  # of the help, named like the tags of noxfile.py
    "use": {
        "build": Command(
            "build a library, render its sources, or build it twice",
            "ckpm.kernels.library.command:add_options",
            "ckpm.cluster.command:add_build_options",
        ),
        "test": Command(
            "run a suite on a built library, on a GPU or on the emulator",
            "ckpm.suites.cli:add_options",
            "ckpm.cluster.command:add_test_options",
        ),
        "gate": Command(
            "compare a library with its accepted baseline", "ckpm.reports.gates.gate_command:add_gate_options"
        ),
        "accept": Command(
            "accept a library's figures as baseline", "ckpm.reports.gates.gate_command:add_accept_options"
        ),
        "compare": Command("time two libraries on one device", "ckpm.reports.gates.compare_command:add_options"),
        "report": Command("write all results as Markdown, HTML or tables", "ckpm.reports.page.commands:add_options"),
        "list": Command("list the selected kernels", "ckpm.matrix.cli:add_list_options"),
        "count": Command("count the selected kernels by family and arch", "ckpm.matrix.cli:add_count_options"),
        "why": Command("explain why a kernel is selected or left out", "ckpm.matrix.cli:add_why_options"),
        "show": Command("show a kernel's fields, receipts, profiles and tiers", "ckpm.matrix.cli:add_show_options"),
        "validate": Command("check a configuration or a kernel", "ckpm.matrix.cli:add_validate_options"),
        "problems": Command("list a suite's problems, or the shapes to test", "ckpm.matrix.cli:add_problems_options"),
        "match": Command("list which kernels serve which shapes", "ckpm.matrix.cli:add_match_options"),
        "first-gpu-run": Command(
            "answer on this machine's GPU what the emulator can't", "ckpm.reports.board.command:add_options"
        ),
        "gpu-results": Command(
            "show or compare files of first-gpu-run", "ckpm.reports.board.command:add_results_options"
        ),
        "doctor": Command(
            "check this machine: toolchains, upstreams, device, cache", "ckpm.kernels.library.doctor:add_options"
        ),
        "sweep run": Command("compile and time a sweep's kernels", "ckpm.timing.sweeps.command:add_benchmark_options"),
        "sweep best": Command("list the best kernel of each shape", "ckpm.timing.sweeps.command:add_best_options"),
        "jit": Command("compile kernels by name, and load them", "ckpm.attention.jit.command:add_options"),
        "cpp index": Command("write the index that C++ programs read", "ckpm.attention.cpp.command:add_index_options"),
        "cpp kernels": Command(
            "list the kernels that a C++ file declares", "ckpm.attention.cpp.command:add_declared_options"
        ),
        "cpp run": Command(
            "compile a C++ program and run it on a device", "ckpm.attention.cpp.command:add_run_options"
        ),
    },
    "develop": {
        "plan": Command(
            "list what a change can touch, and what to run for it", "ckpm.kernels.changes.plan:add_options"
        ),
        "parity": Command("compare the matrix with the upstreams' codegen", "ckpm.kernels.parity.command:add_options"),
        "bench": Command("measure the promised figures", "ckpm.bench.command:add_options"),
        "measure": Command("count what the gates' problems do on the emulator", "ckpm.timing.measure:add_options"),
        "model": Command("show modelled cycles of measured counts", "ckpm.reports.gates.model_command:add_options"),
        "timing model": Command("model workgroups of the gates' problems", "ckpm.timing.command:add_options"),
        "timing show": Command(
            "show modelled workgroups and their stalls", "ckpm.reports.page.timing_command:add_options"
        ),
        "timing tables": Command("model V2 and V3 on published problems", "ckpm.timing.tables:add_options"),
        "timing splits": Command("model splits over keys beside the memory", "ckpm.timing.splits:add_options"),
        "timing score": Command("score the model on published measurements", "ckpm.timing.score_command:add_options"),
        "timing board": Command(
            "time published problems on this machine's GPU", "ckpm.reports.board.published:add_options"
        ),
        "guard": Command(
            "check registers of a Triton kernel's configurations", "ckpm.decode.guard.command:add_options"
        ),
        "decode build": Command("compile the decode kernels for the gates", "ckpm.decode.built:add_options"),
        "decode compare": Command("compare the decode kernels' two forms", "ckpm.decode.compare:add_options"),
    },
    "ship": {
        "images": Command("list, render, lint and build container images", "ckpm.docker.command:add_options"),
        "in-container": Command("run nox sessions in a container", "ckpm.docker.sessions:add_options"),
        "qualify": Command(
            "run and judge the stages of a release", "ckpm.reports.release.commands:add_qualify_options"
        ),
        "verify-bundle": Command(
            "check a released bundle, offline", "ckpm.reports.release.commands:add_verify_options"
        ),
        "workflows render": Command("render or check .github/workflows", "ckpm.workflows.render:add_options"),
        "workflows collect": Command("join what the jobs of a workflow left", "ckpm.workflows.collect:add_options"),
        "workflows head": Command("compare two states of CK, as a page", "ckpm.workflows.head:add_options"),
        "workflows ran-on": Command(
            "check that a job's results are of its arch", "ckpm.workflows.collect:add_ran_on_options"
        ),
        "workflows planned": Command("run what changed since the proven commit", "ckpm.workflows.planned:add_options"),
        "workflows run": Command("run a workflow's jobs here", "ckpm.workflows.runner:add_options"),
    },
}
COMMANDS = {name: command for commands in _GROUPS.values() for name, command in commands.items()}
_LONGEST = 120  # characters of a wrong word
_VERBOSITY = (("v", "verbose", 1, "also print details"), ("q", "quiet", -1, "print no progress, only results"))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command of a command line, by default this process's, and return its exit code."""
    arguments = sys.argv[1:] if argv is None else argv
    return exit_code(lambda: _run(arguments))


def parser(name: str) -> argparse.ArgumentParser:
    """The parser of a command of the table."""
    command = COMMANDS[name]
    command_parser = Parser(prog=f"ckpm {name}", description=f"{command.purpose[0].upper()}{command.purpose[1:]}.")
    command_parser.set_defaults(log_to="stdout", verbosity=0)
    for reference in filter(None, (command.options, command.remote)):
        module, _, function = reference.partition(":")
        getattr(importlib.import_module(module), function)(command_parser)
    for letter, word, value, purpose in _VERBOSITY:
        command_parser.add_argument(
            f"-{letter}", f"--{word}", dest="verbosity", action="store_const", const=value, help=purpose
        )
    return command_parser


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse a command line."""
    name, options = split(arguments)
    return parser(name).parse_args(options)


def split(arguments: Sequence[str]) -> tuple[str, list[str]]:
    """Split a command line into the command's name and its options."""
    for length in (2, 1):
        if (name := " ".join(arguments[:length])) in COMMANDS:
            return name, list(arguments[length:])
    if subcommands := [name.partition(" ")[2] for name in COMMANDS if name.startswith(f"{arguments[0]} ")]:
        hint = did_you_mean(" ".join(arguments[1:2]), subcommands)
        raise UsageError(f"ckpm {arguments[0]} needs one of: {', '.join(subcommands)}{hint} See ckpm --help.")
    names = [*dict.fromkeys(name.partition(" ")[0] for name in COMMANDS), *COMMANDS]
    hint = did_you_mean(arguments[0], names)
    raise UsageError(f"there is no command '{one_line(arguments[0], _LONGEST)}'{hint} See ckpm --help.")


def reads_only_the_matrix(arguments: Sequence[str]) -> bool:
    """Return True if a command line calls a command of the matrix."""
    return bool(arguments) and arguments[0] in COMMANDS and COMMANDS[arguments[0]].options.startswith("ckpm.matrix.")


def _run(arguments: Sequence[str]) -> int:
    if arguments[:1] == ["--version"]:
        show(f"ckpm {__version__}{revision()}")
        return 0
    if not arguments or (
        arguments[-1] in ("-h", "--help") and arguments[0] not in COMMANDS and " ".join(arguments[:2]) not in COMMANDS
    ):
        only = arguments[0] if len(arguments) > 1 else ""
        show(f"usage: ckpm COMMAND ...\n\nBuild and check AMD Composable Kernel attention libraries.\n\n{_table(only)}")
        show("\n  --version  print the version, and in a clone the revision\n  ckpm COMMAND --help  list its options")
        return 0 if arguments else UsageError.exit_code
    if refusal := clone_not_read():
        raise UsageError(refusal)
    args = parse(arguments)
    with logs.print_logs(args.log_to, args.verbosity):
        code: int | None = args.run(args)
    return code or 0


def _table(only: str) -> str:
    """A row for each command, or for each command that begins with the word ``only``, in groups."""
    groups = []
    for group, commands in _GROUPS.items():
        listed = {name: row for name, row in commands.items() if not only or name.partition(" ")[0] == only}
        rows = [f"  {name:<18}{row.purpose}" for name, row in listed.items()]
        groups += ["\n".join((f"{group}:", *rows))] if rows else []
    return "\n\n".join(groups)


def build(arch: str = "gfx950", *options: str, work: Path = Path()) -> Path:
    """Build a library as ``ckpm build --arch ARCH OPTIONS`` does, and return its path.

    Later calls of this process find it (ckpm.library_folders).
    """
    from ckpm.attention import call
    from ckpm.base.jobs import job_count
    from ckpm.base.logs import print_logs
    from ckpm.kernels.library import building
    from ckpm.kernels.library.command import read_options

    args = parse(["build", "--arch", arch, "--work", str(work), *options])
    with print_logs():
        build_options = read_options(args)
        building.run(build_options.request, jobs=job_count(build_options.jobs))
    library = build_options.request.work / build_options.request.folder / "libckpm.so"
    call.add_folder(library.absolute().parents[2])
    return library


def list_kernels(*options: str) -> list[str]:
    """The names of the kernels that ``ckpm list OPTIONS`` lists."""
    from ckpm.matrix.options import selection_from
    from ckpm.matrix.selection import select_some

    return [key.name for key in select_some(*selection_from(parse(["list", *options])))]


def why(name: str, *options: str) -> Explanation:
    """Explain why a kernel is selected or left out, as ``ckpm why OPTIONS NAME`` does."""
    from ckpm.matrix import explain
    from ckpm.matrix.options import selection_from

    arguments = parse(["why", *options, name])
    return explain.why(*selection_from(arguments), name, arguments.compute_units)
