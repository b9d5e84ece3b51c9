"""The pages of docs/ and README as tests see them: blocks of commands and of changes, in order.

A block of commands is fenced as ``console``. ``$ `` begins a command, ``> `` continues it as the shell's second prompt
does. Any other line is output that the command must print; ``...`` stands for any lines. Words after ``console`` give
the reason why a command is not run here (gpu, cluster, hours), or its exit code (exit=9). A block fenced as ``diff`` is
a change that the reader makes, applied before the next blocks.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).parents[2]
NOT_HERE = ("gpu", "cluster", "checkout", "hours")
_FENCE = re.compile(r"(`{3,})(.*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command as typed, of several lines if it is continued, with the output lines that the page shows."""

    line: int
    text: str
    output: tuple[str, ...] = ()
    exit_code: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A fenced block. ``kind`` is its first word, ``marks`` are the others; ``lines`` are the text inside."""

    page: str
    line: int  # of the fence
    kind: str
    marks: tuple[str, ...]
    lines: tuple[str, ...]

    @property
    def is_run(self) -> bool:
        return not set(self.marks) & set(NOT_HERE)

    @property
    def text(self) -> str:
        return "\n".join(self.lines) + "\n"

    def commands(self) -> list[Command]:
        """The commands of a ``console`` block. Raises ValueError: output precedes the first command."""
        exits = [int(mark.removeprefix("exit=")) for mark in self.marks if mark.startswith("exit=")]
        commands: list[Command] = []
        for number, line in enumerate(self.lines, start=self.line + 1):
            if line.startswith("$ "):
                commands.append(Command(line=number, text=line[2:]))
            elif not commands:
                raise ValueError(f"{self.page}:{number}: a block of commands begins with '$ '")
            elif line.startswith("> "):
                commands[-1] = replace(commands[-1], text=f"{commands[-1].text}\n{line[2:]}", output=())
            else:
                commands[-1] = replace(commands[-1], output=(*commands[-1].output, line))
        if exits and commands:
            commands[-1] = replace(commands[-1], exit_code=exits[0])
        return commands


def page_files() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def name_of(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()


def blocks(page: str, text: str) -> Iterator[Block]:
    """Every fenced block of a page's text."""
    fence, start, head, body = "", 0, "", list[str]()
    for number, line in enumerate(text.splitlines(), start=1):
        match = _FENCE.fullmatch(line.strip())
        if not fence and match:
            fence, start, head, body = match[1], number, match[2], []
        elif fence and line.strip() == fence:
            kind, *marks = head.split() or [""]
            yield Block(page=page, line=start, kind=kind, marks=tuple(marks), lines=tuple(body))
            fence = ""
        elif fence:
            body.append(line)


def prose(text: str) -> str:
    """Return a page's text without its fenced blocks; lines keep their numbers."""
    kept = text.splitlines()
    for block in blocks("", text):
        count = len(block.lines) + 2
        kept[block.line - 1 : block.line - 1 + count] = [""] * count
    return "\n".join(kept)


def apply_diff(block: Block, folder: Path) -> str:
    """Make the change of a ``diff`` block below ``folder``; return git's message if the change does not fit."""
    command = ["git", "apply", "-"]
    # outside of any repository: else git would look for the files from that one's top
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(folder.parent)}
    done = subprocess.run(
        command, input=block.text, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    return "" if done.returncode == 0 else f"{block.page}:{block.line}: {done.stderr.strip()}"
