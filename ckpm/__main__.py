"""``ckpm COMMAND ...``, also ``python -m ckpm COMMAND ...``. ckpm/commands.py has the table of commands."""

from __future__ import annotations

import gc
import os
import signal
import sys
from pathlib import Path
from types import FrameType

_INTERRUPTED = 130  # as base/entry.py
_INSTALLED = Path(__file__).resolve().parent / "rooms"
HOME = _INSTALLED if _INSTALLED.is_dir() else _INSTALLED.parents[1]  # the folder that holds the rooms


def main() -> int:
    """Run the command of ``sys.argv`` and return its exit code."""
    heeded = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # a background process ignores it
    if heeded:
        signal.signal(signal.SIGINT, _end)
    use_rooms()
    from ckpm import commands  # after use_rooms; takes longer than anything above

    if heeded:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if commands.reads_only_the_matrix(sys.argv[1:]):
        gc.disable()  # keys live as long as the process, and collecting garbage among them took a tenth of it
    return commands.main()


def use_rooms() -> None:
    """Let this process and those it starts find the rooms, and nothing of the current folder in their place."""
    sys.path.insert(0, str(HOME))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(HOME), os.environ.get("PYTHONPATH"))))
    os.environ["PYTHONSAFEPATH"] = "1"  # `python -m` would look into the current folder first


def _end(number: int, frame: FrameType | None) -> None:
    """End the process at once: nothing has begun while imports run."""
    os.write(2, b"error: interrupted; run the same command again to go on\n")
    os._exit(_INTERRUPTED)


if __name__ == "__main__":  # processes that a command starts may import this
    sys.exit(main())
