"""The console that commands print to."""

from __future__ import annotations

from rich.console import Console


def console() -> Console:
    """Standard output. A log has no width: there, rows stay on one line."""
    terminal = Console(highlight=False)
    return terminal if terminal.is_terminal else Console(width=180, highlight=False)
