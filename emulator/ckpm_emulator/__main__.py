"""``python -m ckpm_emulator COMMAND``: see ``emulator/ckpm_emulator/cli.py``. Ctrl-C during its imports ends as it does later."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

_INTERRUPTED = 130


def _end(number: int, frame: FrameType | None) -> None:
    os.write(2, b"error: interrupted; run the same command again\n")
    os._exit(_INTERRUPTED)


# as base/importing.py, which this room may not import
if __name__ == "__main__":
    heeded = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if heeded:
        signal.signal(signal.SIGINT, _end)
    from ckpm_emulator.cli import main

    if heeded:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(main())
