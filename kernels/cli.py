"""The command line of kernels/: a thin table of commands; every known failure becomes its message and exit code."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

from kernels.bench import command as bench
from kernels.bench import measure
from kernels.build import command as build_command
from kernels.build import doctor, reproduce
from kernels.build.write_manifest import write_manifest
from kernels.cluster import command as cluster_command
from kernels.cluster import plan_command
from kernels.containers import command as images_command
from kernels.containers import sessions
from kernels.families import render_command
from kernels.parity import command as parity_command
from matrix.base.entry import exit_code
from matrix.options import Parser, add_selection_options


def _selects_and_builds(parser: argparse.ArgumentParser) -> None:
    add_selection_options(parser, tier="smoke")
    build_command.add_options(parser)
    cluster_command.add_options(parser)


def _manifest_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("plan", type=Path)


def _manifest(args: argparse.Namespace) -> int:
    write_manifest(args.plan)
    return 0


# name: (what it is for, its options, its function)
COMMANDS: dict[str, tuple[str, Callable[[argparse.ArgumentParser], None], Callable[[argparse.Namespace], int]]] = {
    "build": ("build a library of kernels", _selects_and_builds, cluster_command.build),
    "render": ("write a library's sources without compiling them", render_command.add_options, render_command.run),
    "manifest": ("write manifest.json for a built plan (called by the build)", _manifest_options, _manifest),
    "parity": ("compare with the upstreams' own codegen", parity_command.add_options, parity_command.run_command),
    "reproduce": ("build twice and compare every artifact", reproduce.add_options, reproduce.run),
    "bench": ("measure the promised figures", bench.add_options, bench.run),
    "measure": ("count what the gates' problems do on the emulator", measure.add_options, measure.run),
    "images": ("container images: list, render, lint, build", images_command.add_options, images_command.run),
    "in-container": ("run nox sessions in a container", sessions.add_options, sessions.run),
    "cluster-plan": ("what a build takes on many machines, on paper", plan_command.add_options, plan_command.run),
    "doctor": ("what a build finds on this machine", doctor.add_options, doctor.run),
}


def parser() -> argparse.ArgumentParser:
    root = Parser(prog="python -m kernels", description="Build and check CK batch-prefill kernels.")
    commands = root.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, (purpose, add_options, run) in COMMANDS.items():
        command = commands.add_parser(name, help=purpose)
        add_options(command)
        command.set_defaults(run=run)
    return root


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; its exit code. Prints ``error: ...`` for failures that a user can fix."""

    def command() -> int:
        args = parser().parse_args(argv)
        code: int = args.run(args)
        return code

    return exit_code(command)
