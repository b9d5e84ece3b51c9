"""Handle Ctrl-C while a program imports its modules: a line and an exit code instead of a traceback.

This module is imported first, so its own imports are few.
"""

from __future__ import annotations

import os
import signal
from types import FrameType

_INTERRUPTED = 130  # as ckpm/base/entry.py


class Importing:
    """A context in which SIGINT ends the process at once, since it has begun nothing yet.

    An ignored signal, as of a program in the background, stays ignored. Main thread only.
    """

    def __enter__(self) -> None:
        self._heeded = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if self._heeded:
            signal.signal(signal.SIGINT, _end)

    def __exit__(self, *_: object) -> None:
        if self._heeded:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(number: int, frame: FrameType | None) -> None:
    os.write(2, b"error: interrupted; run the same command again to go on\n")
    os._exit(_INTERRUPTED)
