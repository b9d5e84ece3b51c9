"""Command lines with several commands: a table of them, of which each adds its options when it is asked for.

What a command needs can so be imported where its options are added: none waits for the imports of the others.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Collection, Mapping, Sequence

from .entry import exit_code

# name: (what it is for, what adds its options and says what runs it)
Commands = Mapping[str, tuple[str, Callable[[argparse.ArgumentParser], None]]]


def add_commands(root: argparse.ArgumentParser, table: Commands, words: Collection[str]) -> argparse.ArgumentParser:
    """Let ``root`` know every command, and the options of those that are among the words of a command line."""
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
