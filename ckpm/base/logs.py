"""Progress of a command: the messages that modules log, printed as lines."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterator

from .display import show


class _Lines(logging.Handler):
    """A handler that prints to sys.stdout or sys.stderr. Rich prints such lines above its bar on a terminal."""

    def __init__(self, stream: str) -> None:
        super().__init__()
        self._stream = stream

    def emit(self, record: logging.LogRecord) -> None:
        show(self.format(record), file=getattr(sys, self._stream), flush=True)  # a closed pipe is the command's error


@contextlib.contextmanager
def print_logs(stream: str = "stdout", verbosity: int = 0) -> Iterator[None]:
    """Print ckpm's log messages: with a verbosity of 1 also debug messages, with -1 only warnings."""
    logger, handler = logging.getLogger("ckpm"), _Lines(stream)
    before = logger.level
    logger.setLevel(logging.INFO - 10 * verbosity)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
