"""Run ``ckpm-emulator COMMAND``, or ``python -m ckpm_emulator COMMAND``; ``cli.py`` has the commands."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType


def run() -> int:
    """Run the command of the command line; return its exit code."""
    heeded = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # ignored if it runs in the background
    if heeded:
        signal.signal(signal.SIGINT, _end)  # an import that is interrupted would print a traceback
    from ckpm_emulator.cli import main

    if heeded:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return main()


def _end(number: int, frame: FrameType | None) -> None:
    os.write(2, b"error: interrupted; run the same command again to go on\n")
    os._exit(128 + number)


if __name__ == "__main__":
    sys.exit(run())
