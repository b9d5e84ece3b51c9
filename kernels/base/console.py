"""The console that commands print to, and words for it."""

from __future__ import annotations

from rich.console import Console


def console() -> Console:
    """Standard output. A log has no width: there, rows stay on one line."""
    terminal = Console(highlight=False)
    return terminal if terminal.is_terminal else Console(width=180, highlight=False)


def number(count: int, noun: str) -> str:
    """``1 kernel``, ``2 kernels``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
