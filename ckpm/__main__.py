"""``ckpm COMMAND ...``, also ``python -m ckpm COMMAND ...``. ckpm/commands.py has the table of commands."""

from __future__ import annotations

import gc
import signal
import sys

from ckpm.base.importing import Importing


def main() -> int:
    """Run the command of ``sys.argv`` and return its exit code."""
    with Importing():
        from ckpm import commands
        from ckpm.base.processes import ended_by_signals
    if commands.reads_only_the_matrix(sys.argv[1:]):
        gc.disable()  # keys live as long as the process, and collecting garbage among them took a tenth of it
    try:
        with ended_by_signals():
            return commands.main()
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # only temporary folders are still to be removed
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


if __name__ == "__main__":  # processes that a command starts may import this
    sys.exit(main())
