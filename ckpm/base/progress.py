"""The progress of a command's steps: a bar on a terminal, lines elsewhere."""

from __future__ import annotations

import datetime
import logging
import os
import time
from types import TracebackType
from typing import Self

from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn
from rich.text import Text

from .console import console


class _Elapsed(ProgressColumn):
    """The time since the start. Rich's own column stops with the last step, and a link begins then."""

    def render(self, task: Task) -> Text:
        return Text(str(datetime.timedelta(seconds=int(task.elapsed or 0))), style="progress.elapsed")


class Steps:
    """A bar on a terminal, else lines with the count of finished steps and the seconds since the start.

    ``in_lines`` is True in CI, and where standard output is not a terminal. ``log`` takes the lines; below its level
    INFO there is no bar either.
    """

    def __init__(self, name: str, total: int, log: logging.Logger) -> None:
        self.total, self.done = total, 0
        self._log, self._started = log, time.monotonic()
        terminal = console()
        self.in_lines = not terminal.is_terminal or "CI" in os.environ
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            _Elapsed(),
            console=terminal,
            disable=self.in_lines or not log.isEnabledFor(logging.INFO),
        )
        self._task = self._bar.add_task(name, total=total)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def show_bar(self, text: str | None = None) -> None:
        """Move the bar to the finished steps, and set its text."""
        self._bar.update(self._task, completed=self.done, description=text)

    def line(self, text: str) -> None:
        """Log a line."""
        self._log.info(f"[{self.done}/{self.total}] {time.monotonic() - self._started:5.0f} s  {text}")
