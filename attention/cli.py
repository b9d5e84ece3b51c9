"""The command line of attention/: ``python -m attention --help`` lists the commands.

What a command needs is imported when it is called: none waits for the imports of the others.
"""

from __future__ import annotations

import argparse
from collections.abc import Collection, Sequence

from ckpm.base.command_table import Commands, add_commands, run_command
from ckpm.matrix.options import Parser


def _jit(parser: argparse.ArgumentParser) -> None:
    from ckpm.attention.jit import command

    command.add_options(parser)
    parser.set_defaults(run=command.run)


def _index(parser: argparse.ArgumentParser) -> None:
    from ckpm.attention.cpp import command

    command.add_index_options(parser)


def _declared(parser: argparse.ArgumentParser) -> None:
    from ckpm.attention.cpp import command

    command.add_declared_options(parser)


def _run_cpp(parser: argparse.ArgumentParser) -> None:
    from ckpm.attention.cpp import command

    command.add_run_options(parser)


def _benchmark(parser: argparse.ArgumentParser) -> None:
    from ckpm.attention.sweeps import command

    command.add_benchmark_options(parser)


def _best(parser: argparse.ArgumentParser) -> None:
    from ckpm.attention.sweeps import command

    command.add_best_options(parser)


COMMANDS: Commands = {
    "jit": ("compile kernels by name, or find them compiled, and load them", _jit),
    "index": ("write kernels.txt beside a built library, for C++ programs", _index),
    "declared": ("list the kernels that a C++ file declares", _declared),
    "run-cpp": ("compile a C++ program and run it over a device", _run_cpp),
    "benchmark": ("compile a sweep's kernels, run each on each shape that it serves", _benchmark),
    "best": ("the best kernel of each shape, from the results of a benchmark's shards", _best),
}


def parser(words: Collection[str] = tuple(COMMANDS)) -> argparse.ArgumentParser:
    """Knows every command, and the options of those that are among the words of a command line."""
    root = Parser(prog="python -m attention", description="From a problem to a running kernel.")
    return add_commands(root, COMMANDS, words)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; its exit code. Prints ``error: ...`` for failures that a user can fix."""
    return run_command(parser, argv)
