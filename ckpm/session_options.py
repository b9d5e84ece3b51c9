"""Split the options of a line of nox among its sessions: each session takes the options that its command has.

noxfile.py runs ``python -m ckpm.session_options JSON``, because nox may run in an environment without ckpm's packages.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from ckpm.base.display import show
from ckpm.base.entry import exit_code
from ckpm.base.errors import UsageError, did_you_mean
from ckpm.commands import parser, split

Commands = Mapping[str, Sequence[str]]  # of sessions: the command with the options that the session itself passes


def split_options(commands: Commands, sessions: Sequence[str], options: Sequence[str]) -> dict[str, list[str]]:
    """Return the options for each session of a line that has a command. Other sessions take the whole line themselves.

    An option that the session itself passes is left out, and so is ``--rocm`` if the session names compiler or device.

    Raises:
        UsageError: an option concerns no session of the line, contradicts what a session passes itself, or names a
            file that several sessions would write.
    """
    of_line = [name for name in sessions if name in commands]
    actions = {name: _actions(commands[name]) for name in of_line}
    shares: dict[str, list[str]] = {name: [] for name in of_line}
    remaining = list(options)
    while remaining:
        arguments = [remaining.pop(0)]
        name, equals, value = _read(arguments[0])
        takers = [session for session in of_line if name in actions[session]]
        if not takers:
            if len(of_line) == len(sessions):
                raise _concerns_none(commands, of_line, name)
            continue
        if name == "--output" and len(takers) > 1:
            raise UsageError(
                f"--output is the file of a session, and {', '.join(takers)} would all write it: call nox for each."
            )
        if not equals:
            count = _count_values(actions[takers[0]][name].nargs, remaining)
            value = " ".join(remaining[:count])
            arguments += remaining[:count]
            del remaining[:count]
        for session in takers:
            if not _is_passed(session, commands[session], name, value):
                shares[session] += arguments
    return shares


def _actions(command: Sequence[str]) -> Mapping[str, argparse.Action]:
    """The options of a command's parser."""
    return parser(split(command)[0])._option_string_actions


def _read(word: str) -> tuple[str, str, str]:
    """The option's name, and the value after ``=``, or beside a short option's letter."""
    if word.startswith("-") and not word.startswith("--"):
        return word[:2], word[2:3], word[2:]
    return word.partition("=")


def _count_values(nargs: int | str | None, remaining: Sequence[str]) -> int:
    """The number of arguments that are the values of an option."""
    most = len(remaining) if nargs in ("*", "+") else 1 if nargs in (None, "?") else int(str(nargs))
    values = 0
    while values < min(most, len(remaining)) and (nargs is None or not remaining[values].startswith("-")):
        values += 1
    return values


def _is_passed(session: str, command: Sequence[str], name: str, value: str) -> bool:
    """Return True if a session itself decides about an option. Raises UsageError: it decides otherwise."""
    if name == "--rocm":
        return bool({"--toolchain", "--device"} & set(command))
    if name not in command:
        return False
    passed = [*command, ""][command.index(name) + 1]
    if value and passed != value:
        raise UsageError(f"{session} has {name} {passed}, and the line has {name} {value}: leave one of them out.")
    return True


def _concerns_none(commands: Commands, of_line: Sequence[str], name: str) -> UsageError:
    line = f"session of this line ({', '.join(of_line)})"
    if not name.startswith("-"):
        return UsageError(f"'{name}' is neither an option of a {line} nor its value. Sessions stand before --.")
    having = [session for session in commands if name in _actions(commands[session])]
    options = sorted({option for session in of_line for option in _actions(commands[session])})
    hint = f"Sessions with it: {', '.join(having)}." if having else f"No session has it{did_you_mean(name, options)}"
    return UsageError(f"{name} concerns no {line}. {hint} `nox -l` lists the sessions.")


def main(line: str) -> int:
    """Print the result for the arguments of :func:`split_options`, all as JSON."""
    arguments: dict[str, Any] = json.loads(line)
    show(json.dumps(split_options(**arguments)))
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(lambda: main(sys.argv[1])))
