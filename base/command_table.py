"""Command lines with several commands. Only the given command adds its options, so it imports only what it needs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Collection, Mapping, Sequence

from .entry import exit_code

# name: (its purpose, the function that adds its options and sets ``run``)
Commands = Mapping[str, tuple[str, Callable[[argparse.ArgumentParser], None]]]


def add_commands(root: argparse.ArgumentParser, table: Commands, words: Collection[str]) -> argparse.ArgumentParser:
    """Add every command to ``root``, and the options of the commands that are among ``words``."""
    commands = root.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, (purpose, add_options) in table.items():
        command = commands.add_parser(name, help=purpose)
        if name in words:
            add_options(command)
    return root


def run_command(parser: Callable[[Sequence[str]], argparse.ArgumentParser], argv: Sequence[str] | None) -> int:
    """Run the command of a command line, by default this process's; its exit code, 0 if it returns none.

    ``parser`` makes the parser for its words. Prints ``error: ...`` for failures that a user can fix.
    """
    words = sys.argv[1:] if argv is None else argv

    def command() -> int:
        args = parser(words).parse_args(words)
        code: int | None = args.run(args)
        return code or 0

    return exit_code(command)
