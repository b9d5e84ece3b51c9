"""``ckpm COMMAND ...``, also ``python -m ckpm COMMAND ...``. ckpm/commands.py has the table of commands."""

from __future__ import annotations

import gc
import sys

from ckpm.base.importing import Importing


def main() -> int:
    """Run the command of ``sys.argv`` and return its exit code."""
    with Importing():
        from ckpm import commands
    if commands.reads_only_the_matrix(sys.argv[1:]):
        gc.disable()  # keys live as long as the process, and collecting garbage among them took a tenth of it
    return commands.main()


if __name__ == "__main__":  # processes that a command starts may import this
    sys.exit(main())
