"""The command line of kernels/: a table of commands; every known failure becomes its message and exit code.

A command's modules are imported when it is called, so that it doesn't wait for the imports of the others.
"""

from __future__ import annotations

import argparse
from collections.abc import Collection, Sequence
from pathlib import Path

from ckpm.base.command_table import Commands, add_commands, run_command
from ckpm.matrix.options import Parser, add_selection_options


def _build(parser: argparse.ArgumentParser) -> None:
    from ckpm.cluster import command as cluster_command
    from ckpm.kernels.library import command

    add_selection_options(parser, tier="smoke", checkouts=True)
    command.add_options(parser)
    cluster_command.add_options(parser)
    parser.set_defaults(run=cluster_command.build)


def _render(parser: argparse.ArgumentParser) -> None:
    from ckpm.kernels.families import render_command

    render_command.add_options(parser)
    parser.set_defaults(run=render_command.run)


def _manifest(parser: argparse.ArgumentParser) -> None:
    from ckpm.kernels.library.write_manifest import write_manifest

    def run(args: argparse.Namespace) -> int:
        write_manifest(args.plan)
        return 0

    parser.add_argument("plan", type=Path)
    parser.set_defaults(run=run)


def _parity(parser: argparse.ArgumentParser) -> None:
    from ckpm.kernels.parity import command

    command.add_options(parser)
    parser.set_defaults(run=command.run_command)


def _reproduce(parser: argparse.ArgumentParser) -> None:
    from ckpm.kernels.library import reproduce

    reproduce.add_options(parser)
    parser.set_defaults(run=reproduce.run)


def _bench(parser: argparse.ArgumentParser) -> None:
    from ckpm.bench import command

    command.add_options(parser)
    parser.set_defaults(run=command.run)


def _measure(parser: argparse.ArgumentParser) -> None:
    from ckpm.attention.timing import measure

    measure.add_options(parser)
    parser.set_defaults(run=measure.run)


def _timing(parser: argparse.ArgumentParser) -> None:
    from ckpm.attention.timing import command

    command.add_options(parser)


def _timing_tables(parser: argparse.ArgumentParser) -> None:
    from ckpm.attention.timing import tables

    tables.add_options(parser)


def _guard(parser: argparse.ArgumentParser) -> None:
    from ckpm.decode.guard import command

    command.add_options(parser)


def _decode(parser: argparse.ArgumentParser) -> None:
    from ckpm.decode import compare

    compare.add_options(parser)


def _build_decode(parser: argparse.ArgumentParser) -> None:
    from ckpm.decode import built

    built.add_options(parser)


def _images(parser: argparse.ArgumentParser) -> None:
    from ckpm.docker import command

    command.add_options(parser)
    parser.set_defaults(run=command.run)


def _in_container(parser: argparse.ArgumentParser) -> None:
    from ckpm.docker import sessions

    sessions.add_options(parser)
    parser.set_defaults(run=sessions.run)


def _benchmark(parser: argparse.ArgumentParser) -> None:
    from ckpm.bench import elsewhere

    elsewhere.add_options(parser)
    parser.set_defaults(run=elsewhere.run)


def _plan(parser: argparse.ArgumentParser) -> None:
    from ckpm.kernels.changes import plan

    plan.add_options(parser)
    parser.set_defaults(run=plan.run)


def _doctor(parser: argparse.ArgumentParser) -> None:
    from ckpm.kernels.library import doctor

    doctor.add_options(parser)
    parser.set_defaults(run=doctor.run)


COMMANDS: Commands = {
    "build": ("build a library of kernels", _build),
    "render": ("write a library's sources without compiling them", _render),
    "manifest": ("write manifest.json for a built plan (called by the build)", _manifest),
    "parity": ("compare with the upstreams' own codegen", _parity),
    "reproduce": ("build twice and compare every artifact", _reproduce),
    "bench": ("measure the promised figures", _bench),
    "benchmark": ("the dispatcher's benchmark of a sweep: python -m attention benchmark", _benchmark),
    "measure": ("count what the gates' problems do on the emulator", _measure),
    "timing": ("model what workgroups of the gates' problems take, wave by wave", _timing),
    "timing-tables": ("model V2 and V3 on the problems of published tables", _timing_tables),
    "guard": ("compile a Triton kernel's configurations, without a GPU, and judge their registers", _guard),
    "build-decode": ("compile the decode kernels for the gates: build/<arch>/decode", _build_decode),
    "decode": ("counts of the decode kernels' two forms on the emulated device", _decode),
    "images": ("container images: list, render, lint, build", _images),
    "in-container": ("run nox sessions in a container", _in_container),
    "plan": ("what a change since a revision can touch, and what to run for it", _plan),
    "doctor": ("what a build finds on this machine", _doctor),
}


def parser(words: Collection[str] = tuple(COMMANDS)) -> argparse.ArgumentParser:
    """Return the parser of every command, with the options of commands that are named in a command line."""
    root = Parser(prog="python -m kernels", description="Build and check CK batch-prefill kernels.")
    return add_commands(root, COMMANDS, words)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command, return its exit code. Print ``error: ...`` for failures that a user can fix."""
    return run_command(parser, argv)
