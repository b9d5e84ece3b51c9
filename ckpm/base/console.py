"""The console of commands, and functions that print to it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from .display import printable


class PlainConsole(Console):
    """A console that prints texts, also in tables, literally: no markup, emoji or escape code."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def on_broken_pipe(self) -> None:
        """Raise, because the command chooses the exit code of a closed pipe (ckpm/base/entry.py); rich's is 1."""
        raise

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(printable(text), **options)


def console(*, whole_rows: bool = False) -> PlainConsole:
    """The console of standard output. In a log, rows stay on one line: COLUMNS widens it, as rich does a terminal.

    With ``whole_rows`` the terminal breaks its rows, not this program: a name that is copied there stays whole.
    """
    terminal = PlainConsole()
    return terminal if terminal.is_terminal and not whole_rows else PlainConsole(width=max(250, terminal.width))


def number(count: int, noun: str) -> str:
    """``1 kernel``, ``2 kernels``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def make_table(texts: Iterable[str], numbers: Iterable[str] = (), title: str = "", *, fold: bool = False) -> Table:
    """A table without lines: columns of text, folded or cut, then columns of numbers."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for name in texts:
        table.add_column(name, overflow="fold" if fold else "ellipsis", no_wrap=not fold)
    for name in numbers:
        table.add_column(name, justify="right", no_wrap=True)
    return table
