"""``ckpm COMMAND ...``, also ``python -m ckpm COMMAND ...``. ckpm/commands.py has the table of commands."""

from __future__ import annotations

import gc
import os
import signal
import sys
from types import FrameType

_INTERRUPTED = 130  # as base/entry.py


def main() -> int:
    """Run the command of ``sys.argv`` and return its exit code."""
    heeded = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # a background process ignores it
    if heeded:
        signal.signal(signal.SIGINT, _end)
    from ckpm import commands  # only now: an interrupt while it is imported ends the process

    if heeded:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if commands.reads_only_the_matrix(sys.argv[1:]):
        gc.disable()  # keys live as long as the process, and collecting garbage among them took a tenth of it
    return commands.main()


def _end(number: int, frame: FrameType | None) -> None:
    """End the process at once: nothing has begun while imports run."""
    os.write(2, b"error: interrupted; run the same command again to go on\n")
    os._exit(_INTERRUPTED)


if __name__ == "__main__":  # processes that a command starts may import this
    sys.exit(main())
